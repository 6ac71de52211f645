package workload

import (
	"context"
	"math"
	"time"
)

// The cost of the generator is measured as the best of many short rounds, with fewer
// operations in a round if the values are large. Other work on the machine only makes a
// round longer, so the best round is the most accurate; short rounds fit between two
// interruptions.
const (
	costRounds = 30
	costOps    = 1000
	costBytes  = 16 << 20
	costTime   = time.Second // no round begins after this time
)

// measureCost returns the generator's cost of one operation: it runs the same mix with
// one worker against a target that does almost nothing. The cost includes the target's
// copy of a value, so it is too high rather than too low.
func measureCost(cfg Config) (time.Duration, error) {
	ops := costRound(cfg.ValueBytes)
	cfg.Workers = 1
	cfg.Keys = min(cfg.Keys, uint64(max(costBytes/2/cfg.ValueBytes, 1)))
	cfg.Preload = 0
	cfg.Present = min(cfg.Present, cfg.Keys)
	target := newSlotTarget(cfg.Keys, cfg.ValueBytes)
	target.fill(cfg.Present, NewLoader(cfg.ValueBytes, cfg.Seed))
	w := newWorker(newShared(&cfg, target), 0)
	return bestRound(ops, func() error { return w.step(context.Background(), 0) })
}

// costRound returns the number of operations in a round.
func costRound(valueBytes int) int { return max(min(costOps, costBytes/valueBytes), 50) }

// bestRound returns the time of one step in the best round.
func bestRound(ops int, step func() error) (time.Duration, error) {
	best := time.Duration(math.MaxInt64)
	deadline := time.Now().Add(costTime)
	for round := 0; round < costRounds && (round == 0 || time.Now().Before(deadline)); round++ {
		began := time.Now()
		for range ops {
			if err := step(); err != nil {
				return 0, err
			}
		}
		best = min(best, time.Since(began)/time.Duration(ops))
	}
	return best, nil
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
