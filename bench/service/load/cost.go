package load

import (
	"context"
	"errors"
	"time"

	"github.com/kvd-db/kvd/bench/process"
)

// Cost returns the generator's processor time for each key of a load, measured with a
// target that only looks up one of a few values; the look-up is included. Nothing else
// may run in the process meanwhile.
func Cost(ctx context.Context, c Closed) (time.Duration, error) {
	c.Callers, c.Keys = 1, max(idleKeys, uint64(c.Batch), uint64(c.OwnKeys))
	for c.Duration = costTime; ; c.Duration *= 2 { // on a busy machine nothing may happen for a while
		c.Warmup = c.Duration / 10
		var begin, used time.Duration
		o, err := c.Run(ctx, []Target{newIdle(c.Keys, c.ValueBytes)}, func(begins bool) {
			if begins {
				begin = process.OwnCPU()
			} else {
				used = process.OwnCPU() - begin
			}
		})
		if err := errors.Join(err, ctx.Err()); err != nil {
			return 0, err
		}
		if o.Keys > 0 {
			if each := used / time.Duration(o.Keys); each > 0 {
				return each, nil
			}
		}
	}
}

const (
	costTime = 50 * time.Millisecond
	// idleKeys is so small that the values stay in the processor's cache: cache misses
	// are not a cost of the generator.
	idleKeys = 1024
)

// idle is a target that does nothing.
type idle struct{ values map[string][]byte }

func newIdle(keys uint64, valueBytes int) *idle {
	t := &idle{values: make(map[string][]byte, keys)}
	values := NewValues(valueBytes)
	for id := range keys {
		var key [KeyBytes]byte
		PutKey(key[:], id)
		value := make([]byte, valueBytes)
		values.Fill(value, id, 0)
		t.values[string(key[:])] = value
	}
	return t
}

func (t *idle) Get(_ context.Context, key []byte) ([]byte, error) { return t.values[string(key)], nil }
func (t *idle) Set(context.Context, []byte, []byte) error         { return nil }

func (t *idle) Update(_ context.Context, key, _ []byte, check func([]byte) error) error {
	return check(t.values[string(key)])
}

func (t *idle) GetVersion(_ context.Context, key []byte) ([]byte, uint64, error) {
	return t.values[string(key)], 1, nil
}

func (t *idle) SetIfVersion(_ context.Context, _, _ []byte, version uint64) (uint64, error) {
	return version + 1, nil
}

func (t *idle) SetIfValue(context.Context, []byte, []byte, []byte) error { return nil }

func (t *idle) GetMany(_ context.Context, keys [][]byte, visit func(i int, value []byte) error) error {
	for i, key := range keys {
		if err := visit(i, t.values[string(key)]); err != nil {
			return err
		}
	}
	return nil
}
