package workload

import "context"

// loadWorkers put the keys of Load.
const loadWorkers = 16

// Load puts the keys 0 ... Keys-1 of a Config whose runs then have Present set to Keys. It
// calls told at the beginning, every second, and at the end, with its progress.
func Load(ctx context.Context, target Target, c *Config, seed uint64, told func(done, total uint64)) error {
	config := *c
	config.Mix, config.Distribution, config.FindRate = PureMixes[1], Uniform, 0
	config.Workers, config.Seed = int(min(loadWorkers, c.Keys)), seed
	config.Preload, config.Present = c.Keys, 0
	if err := config.Validate(); err != nil {
		return err
	}
	return newRun(newShared(&config, target, config.newPool())).preload(ctx, told)
}
