package workload

import (
	"context"
	"fmt"
	"time"

	"github.com/kvd-db/kvd/internal/loadgen"
)

// measureCost returns the generator's cost of one operation: it runs the same mix with
// one worker against a target that does almost nothing. The cost includes the target's
// copy of a value, so it is too high rather than too low. All values have the mean length
// then, and keys have KeyBytes. pool is that of the run.
func measureCost(cfg Config, pool *valuePool) (time.Duration, error) {
	cfg.ValueBytes, cfg.Sizes, cfg.KeyBytes = int(cfg.sizes().Mean()), nil, 0
	ops := loadgen.CostRound(cfg.ValueBytes)
	cfg.Workers = 1
	cfg.Keys = min(cfg.Keys, uint64(max(loadgen.CostBytes/2/cfg.ValueBytes, 1)))
	cfg.Preload = 0
	cfg.Present = min(cfg.Present, cfg.Keys)
	target := newSlotTarget(cfg.Keys, cfg.ValueBytes)
	target.fill(cfg.Present, newLoader(pool, cfg.Seed))
	w := newWorker(newShared(&cfg, target, pool), 0)
	return loadgen.BestRound(ops, func() error { return w.step(context.Background(), 0) })
}

// measureCosts measures the generator's cost of one operation, and of its checks.
func measureCosts(cfg Config, pool *valuePool) (c generatorCost, err error) {
	if c.all, err = measureCost(cfg, pool); err != nil {
		return c, fmt.Errorf("measure the cost of the generator: %w", err)
	}
	if c.verification, err = verificationCost(cfg, pool, c.all); err != nil {
		return c, fmt.Errorf("measure the cost of the checks: %w", err)
	}
	return c, nil
}

// verificationCost returns how much of the cost of an operation is verification: the
// checks of what is read, and the checksums of what is put.
func verificationCost(cfg Config, pool *valuePool, cost time.Duration) (time.Duration, error) {
	if cfg.Unverified {
		return 0, nil
	}
	again, err := measureCost(cfg, pool) // twice, since a busy machine makes a round longer
	if err != nil {
		return 0, err
	}
	cfg.Unverified = true
	unverified, err := measureCost(cfg, pool)
	if err != nil {
		return 0, err
	}
	cost = min(cost, again)
	value := make([]byte, int(cfg.sizes().Mean()))
	checksum, err := loadgen.BestRound(loadgen.CostRound(len(value)), func() error { seal(value, 1, 1); return nil })
	return max(cost-unverified, 0) + checksum*time.Duration(cfg.Mix.Put)/100, err
}

// slotTarget keeps the value of key n in slot n: the cheapest target that passes the
// checks of a worker. For one worker only.
type slotTarget struct {
	valueBytes int
	present    []bool
	values     []byte
}

func newSlotTarget(keys uint64, valueBytes int) *slotTarget {
	return &slotTarget{
		valueBytes: valueBytes,
		present:    make([]bool, keys),
		values:     make([]byte, keys*uint64(valueBytes)),
	}
}

// fill loads the first n keys.
func (s *slotTarget) fill(n uint64, l *Loader) {
	var key [KeyBytes]byte
	for id := range n {
		l.Fill(key[:], s.slot(id), id)
		s.present[id] = true
	}
}

func (s *slotTarget) slot(id uint64) []byte {
	return s.values[id*uint64(s.valueBytes):][:s.valueBytes]
}

func (s *slotTarget) Put(_ context.Context, key, value []byte) error {
	id := keyNumber(key)
	copy(s.slot(id), value)
	s.present[id] = true
	return nil
}

func (s *slotTarget) Delete(_ context.Context, key []byte) error {
	if len(key) == KeyBytes {
		s.present[keyNumber(key)] = false
	}
	return nil
}

func (s *slotTarget) Get(_ context.Context, key, _ []byte) ([]byte, bool, error) {
	if len(key) != KeyBytes {
		return nil, false, nil
	}
	id := keyNumber(key)
	if !s.present[id] {
		return nil, false, nil
	}
	return s.slot(id), true, nil
}

func (s *slotTarget) GetBatch(ctx context.Context, keys [][]byte, visit func(int, []byte, bool) error) error {
	for i, key := range keys {
		value, found, err := s.Get(ctx, key, nil)
		if err == nil {
			err = visit(i, value, found)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *slotTarget) Close() error { return nil }

// keyNumber is the inverse of putKey.
func keyNumber(key []byte) uint64 {
	var id uint64
	for _, c := range key[:KeyBytes] {
		id = id*10 + uint64(c-'0')
	}
	return id
}
