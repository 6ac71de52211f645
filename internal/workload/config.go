package workload

import (
	"errors"
	"fmt"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/loadgen"
)

// MaxGetBatch bounds Config.GetBatch.
const MaxGetBatch = 1024

// MaxRate bounds the operations a second of an open loop: one a nanosecond.
const MaxRate = 1_000_000_000

// Config describes a run. Zero means zero, but where a field says otherwise.
type Config struct {
	Mix          Mix
	Workers      int    // goroutines, each with one operation at a time
	Keys         uint64 // number of keys that puts draw from
	KeyBytes     int    // length of every key that is put; zero means KeyBytes
	ValueBytes   int    // length of every value, at least MinValueBytes
	FindRate     float64
	Distribution Distribution
	Theta        float64 // skew of the Zipfian distributions; zero means DefaultTheta
	Seed         uint64

	// Sizes gives values of several lengths; nil: all have ValueBytes, which otherwise is
	// the largest.
	Sizes *ValueSizes
	// Compressible is the share of a value's bytes that repeats others of the value.
	Compressible float64

	// Preload is the number of keys, from 0 on, to put before the measurement.
	Preload uint64
	// Present says that the target holds the keys 0 ... Present-1, put by a Loader or
	// an earlier run, and that none has been deleted since.
	Present uint64
	// GetBatch is the number of keys of one get; if it is more than one, the target
	// must be a BatchGetter. Such a get counts as one operation. Zero means one.
	GetBatch int
	// OpsPerSecond makes the loop open: operations begin by the clock, not when the
	// previous one ended. Zero means a closed loop.
	OpsPerSecond uint64
	// Poisson makes the operations of an open loop due at random times: see Timetable.
	Poisson bool
	// Reused says that the target may hold any of the keys, put by earlier runs. A read may
	// then ask for a key that this run has not put: its value is checked if there is one.
	Reused bool
	// Unverified omits the checks of answers. Values have checksums all the same, so that
	// later runs can check them.
	Unverified bool
	// CheckDeletes does a Get before each Delete, to count the deletes that found
	// something: a delete of kvd is blind and does not report it.
	CheckDeletes bool

	Operations uint64        // measured, of all workers together; 0: as many as fit in Duration
	Warmup     time.Duration // not measured; needs a Duration
	Duration   time.Duration // measured; 0: until the Operations are done
	Interval   time.Duration // between two lines of the report, whole seconds
}

// Validate returns an error for every invalid setting.
func (c *Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	errs = append(errs, c.Mix.validate())
	_, err := ParseDistribution(string(c.Distribution))
	errs = append(errs, err)
	check(c.Workers >= 1 && c.Workers <= loadgen.MaxWorkers, "%d threads; want 1 to %d", c.Workers, loadgen.MaxWorkers)
	check(c.Keys >= uint64(max(c.Workers, 1)) && c.Keys <= MaxKeys,
		"%d keys; want at least one for each thread, and at most %d", c.Keys, uint64(MaxKeys))
	check(c.ValueBytes >= MinValueBytes, "values of %d bytes; want at least %d, which make a value verifiable", c.ValueBytes, MinValueBytes)
	check(c.ValueBytes <= kv.MaxValueBytes, "values of %d bytes; want at most %d", c.ValueBytes, kv.MaxValueBytes)
	if c.Sizes != nil {
		least, most := c.Sizes.Bounds()
		check(least >= MinValueBytes, "values of %d bytes; want at least %d, which make a value verifiable", least, MinValueBytes)
		check(most == c.ValueBytes, "values of %s bytes, and the largest has %d; want that of the sizes", c.Sizes, c.ValueBytes)
	}
	check(c.KeyBytes == 0 || c.KeyBytes >= KeyBytes && c.KeyBytes <= MaxKeyBytes, "keys of %d bytes; want %d to %d", c.KeyBytes, KeyBytes, MaxKeyBytes)
	errs = append(errs, checkTheta(c.Theta), checkCompressible(c.Compressible))
	check(c.FindRate >= 0 && c.FindRate <= 1, "find rate %v; want 0 to 1", c.FindRate)
	check(c.Preload <= c.Keys, "preload of %d keys; the key space has %d", c.Preload, c.Keys)
	check(c.Present <= c.Keys, "%d keys present; the key space has %d", c.Present, c.Keys)
	check(c.Present == 0 || c.Preload == 0, "%d keys present and a preload of %d; want one of the two", c.Present, c.Preload)
	check(c.GetBatch >= 0 && c.GetBatch <= MaxGetBatch, "gets of %d keys; want 0 to %d", c.GetBatch, MaxGetBatch)
	check(c.OpsPerSecond <= MaxRate, "%d operations a second; want at most one a nanosecond", c.OpsPerSecond)
	check(!c.Poisson || c.OpsPerSecond > 0, "Poisson arrivals without a rate; they make an open loop")
	check(c.Warmup >= 0 && c.Warmup <= loadgen.MaxDuration, "warm-up of %v; want 0 to %v", c.Warmup, loadgen.MaxDuration)
	check(c.Operations > 0 || c.Duration > 0 && c.Duration <= loadgen.MaxDuration, "duration of %v; want more than 0, and at most %v", c.Duration, loadgen.MaxDuration)
	check(c.Operations <= loadgen.MaxOperations, "%d operations; want at most %d", c.Operations, uint64(loadgen.MaxOperations))
	check(c.Operations == 0 || c.Duration == 0 && c.Warmup == 0, "%d operations; want neither a duration nor a warm-up", c.Operations)
	check(c.Interval >= time.Second && c.Interval%time.Second == 0 && c.Interval <= loadgen.MaxDuration, "interval of %v; want whole seconds, at most %v", c.Interval, loadgen.MaxDuration)
	return errors.Join(errs...)
}

func checkTheta(theta float64) error {
	if theta >= 0 && theta <= MaxTheta {
		return nil
	}
	return fmt.Errorf("theta of %v; want more than 0, and at most %v", theta, MaxTheta)
}

func checkCompressible(share float64) error {
	if share >= 0 && share <= 1 {
		return nil
	}
	return fmt.Errorf("a compressible share of %v; want 0 to 1", share)
}

// keyBytes returns the length of the keys.
func (c *Config) keyBytes() int {
	if c.KeyBytes == 0 {
		return KeyBytes
	}
	return c.KeyBytes
}

// newPool returns a pool for the values of a run, which others may share.
func (c *Config) newPool() *valuePool { return prepared.poolFor(c.ValueBytes, c.Compressible, c.Seed) }

// sizes returns the distribution of the lengths of values.
func (c *Config) sizes() *ValueSizes {
	if c.Sizes == nil {
		return Fixed(c.ValueBytes)
	}
	return c.Sizes
}
