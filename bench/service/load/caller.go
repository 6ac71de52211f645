package load

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
)

// caller makes one call at a time. For one goroutine only.
type caller struct {
	target Target
	values *Values
	rng    *rand.Rand
	puts   uint64 // so far, starting at a number that no other caller uses
	key    [KeyBytes]byte
	value  []byte

	ids  []uint64 // of a batch
	keys [][]byte

	how  How
	own  []owned // of a load with keys of their own
	slot *owned  // the chosen key, if it is one of own
}

func newCaller(index int, t Target, values *Values, seed uint64, valueBytes int) *caller {
	return &caller{
		target: t,
		values: values,
		rng:    rand.New(rand.NewPCG(seed, uint64(index))),
		puts:   uint64(index+1) << 40,
		value:  make([]byte, valueBytes),
	}
}

// do gets or sets the chosen key, or gets the chosen batch, and checks the answer.
func (c *caller) do(ctx context.Context, id uint64, get bool) error {
	switch {
	case !get:
		c.puts++
		c.values.Fill(c.value, id, c.puts)
		if err := c.set(ctx, id); err != nil {
			return fmt.Errorf("set: %w", err)
		}
		return nil
	case len(c.ids) > 0:
		return c.getMany(ctx)
	}
	value, err := c.target.Get(ctx, c.key[:])
	if err != nil {
		return fmt.Errorf("get: %w", err)
	}
	return c.values.Check(value, id)
}

// set sets the chosen key, in the way of the load.
func (c *caller) set(ctx context.Context, id uint64) error {
	switch {
	case c.how == Updates:
		return c.update(ctx, id)
	case c.how.conditional():
		return c.setOwned(ctx, c.slot)
	}
	return c.target.Set(ctx, c.key[:], c.value)
}

func (c *caller) getMany(ctx context.Context) error {
	answered := 0
	err := c.target.(ManyGetter).GetMany(ctx, c.keys, func(i int, value []byte) error {
		answered++
		return c.values.Check(value, c.ids[i])
	})
	if err == nil && answered != len(c.ids) {
		err = fmt.Errorf("%w: %d values for %d keys", ErrWrongAnswer, answered, len(c.ids))
	}
	if err != nil {
		return fmt.Errorf("get many: %w", err)
	}
	return nil
}

func (c *caller) prepareBatch(size int) {
	c.ids = make([]uint64, size)
	c.keys = make([][]byte, size)
	for i := range c.keys {
		c.keys[i] = make([]byte, KeyBytes)
	}
}

// chooseBatch chooses distinct keys.
func (c *caller) chooseBatch(keys uint64) {
	for i := range c.ids {
		id := c.rng.Uint64N(keys)
		for slices.Contains(c.ids[:i], id) {
			id = c.rng.Uint64N(keys)
		}
		c.ids[i] = id
		PutKey(c.keys[i], id)
	}
}
