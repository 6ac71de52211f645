package history

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kvd-db/kvd/internal/kv"
)

// op returns the write in the form of the store.
func (w *Write) op() kv.Op {
	switch {
	case w.End != 0:
		return kv.Op{Kind: kv.KindRangeDelete, Key: w.Key.Bytes(), Value: w.End.Bytes()}
	case w.Value == Absent:
		return kv.Op{Kind: kv.KindDelete, Key: w.Key.Bytes()}
	}
	return kv.Op{Kind: kv.KindPut, Key: w.Key.Bytes(), Value: w.Value.Bytes(w.Key)}
}

func batchOf(writes []Write, guards []kv.Guard) *kv.WriteBatch {
	b := new(kv.WriteBatch)
	for _, w := range writes {
		b.Add(w.op())
	}
	for _, g := range guards {
		b.Require(g)
	}
	return b
}

// guardOf returns a condition that holds for what was read.
func guardOf(r Read) kv.Guard {
	if r.Value == Absent {
		return kv.Guard{Key: r.Key.Bytes(), Condition: kv.Condition{Kind: kv.IfAbsent}}
	}
	return kv.Guard{Key: r.Key.Bytes(), Condition: kv.Condition{Kind: kv.IfVersion, Version: r.Version}}
}

// write puts or deletes one key.
func (c *Client) write(ctx context.Context) error {
	w := c.putOrDelete(c.key())
	refusal, err := c.settle(ctx, &Op{Writes: []Write{w}}, func(ctx context.Context, options kv.WriteOptions) (answer, error) {
		return c.writeOne(ctx, &kv.Write{Op: w.op()}, options)
	})
	return c.plain(refusal, err)
}

// plain counts a write that must not be refused.
func (c *Client) plain(refusal, err error) error {
	if err == nil && refusal == nil {
		c.Tally.Plain++
	}
	if refused(refusal) {
		return fmt.Errorf("client %d: a write without a condition: %w", c.number, refusal)
	}
	return err
}

func (c *Client) writeOne(ctx context.Context, w *kv.Write, options kv.WriteOptions) (answer, error) {
	w.RequestID, w.Durability = options.RequestID, options.Durability
	if err := c.store.Write(ctx, []*kv.Write{w}); err != nil {
		return answer{}, err
	}
	return answer{w.Version, w.Deduplicated, true}, w.Err
}

// batch puts and deletes some keys atomically, sometimes with a range delete, and
// sometimes under conditions that must all hold.
func (c *Client) batch(ctx context.Context) error {
	var o Op
	keys := c.pick(2 + c.rng.IntN(4))
	for _, k := range keys {
		o.Writes = append(o.Writes, c.putOrDelete(k))
	}
	if c.rng.IntN(3) == 0 {
		from, to := c.span(4)
		o.Writes = append(o.Writes, Write{Key: from, End: to}, c.put(from))
	}
	var guards []kv.Guard
	if c.plan.Cold > 0 || c.rng.IntN(4) == 0 {
		on := slices.Clone(keys[:1+c.rng.IntN(2)])
		if c.plan.Cold > 0 {
			if k := c.coldKey(); !slices.Contains(on, k) {
				on = append(on, k)
			}
		}
		if _, err := c.snapshot(ctx, on); err != nil {
			return err
		}
		for _, k := range on {
			if r, ok := c.known[k]; ok {
				o.Reads = append(o.Reads, Read{Key: r.Key, Value: r.Value, Version: r.Version})
				guards = append(guards, guardOf(r))
			}
		}
	}
	refusal, err := c.settle(ctx, &o, func(ctx context.Context, options kv.WriteOptions) (answer, error) {
		version, err := c.store.Apply(ctx, batchOf(o.Writes, guards), options)
		return answer{version: version}, err
	})
	if guards == nil {
		return c.plain(refusal, err)
	}
	return c.guarded(refusal, err)
}

// guarded counts a write with a condition.
func (c *Client) guarded(refusal, err error) error {
	switch {
	case refusal == nil && err == nil:
		c.Tally.Conditional++
	case errors.Is(refusal, kv.ErrConditionFailed):
		c.Tally.ConditionalFailures++
	case refused(refusal):
		return fmt.Errorf("client %d: a write with a condition: %w", c.number, refusal)
	}
	return err
}

// conditional writes a key under a condition on its last known state, which may be old.
// If the condition fails, the answer counts as a read.
func (c *Client) conditional(ctx context.Context) error {
	k := c.key()
	was, ok := c.known[k]
	if !ok || c.rng.IntN(2) == 0 {
		// Read the key again, so that the condition has a fair chance.
		if view, err := c.snapshot(ctx, []Key{k}); view == nil {
			return err
		}
		was = c.known[k]
	}
	w := c.putOrDelete(k)
	condition, requires := c.condition(was)
	o := Op{Reads: []Read{requires}, Writes: []Write{w}}
	asksPrevious := c.rng.IntN(3) == 0
	call := int64(0) // of the last attempt
	refusal, err := c.settle(ctx, &o, func(ctx context.Context, options kv.WriteOptions) (answer, error) {
		call = c.now()
		write := kv.Write{Op: w.op(), If: &condition}
		if asksPrevious {
			write.Previous = new(kv.Lookup)
		}
		got, err := c.writeOne(ctx, &write, options)
		if err != nil || !asksPrevious || got.deduplicated {
			return got, err
		}
		if !condition.Holds(write.Previous) {
			return got, fmt.Errorf("a condition (%s) held of version %d", &condition, write.Previous.Version)
		}
		o.Reads[0], err = readOf(k, write.Previous)
		return got, err
	})
	if failed, ok := errors.AsType[*kv.ConditionError](refusal); ok {
		if condition.Holds(&kv.Lookup{Found: failed.Found, Version: failed.Version}) && condition.Kind != kv.IfValue {
			return fmt.Errorf("client %d: the condition held: %w", c.number, refusal)
		}
		if failed.Version != 0 {
			c.Log.Add(Op{
				Kind: Get, Outcome: Done, Client: c.number, Call: call, Return: c.now(),
				Reads: []Read{{Key: k, Value: Unseen, Version: failed.Version}},
			})
		}
	}
	return c.guarded(refusal, err)
}

// condition returns a condition that held when was was read, and the read that it
// implies.
func (c *Client) condition(was Read) (kv.Condition, Read) {
	if was.Value == Absent {
		return kv.Condition{Kind: kv.IfAbsent}, Read{Key: was.Key}
	}
	switch c.rng.IntN(4) {
	case 0:
		return kv.Condition{Kind: kv.IfPresent}, Read{Key: was.Key, Value: Unseen}
	case 1:
		return kv.Condition{Kind: kv.IfValue, Value: was.Value.Bytes(was.Key)}, Read{Key: was.Key, Value: was.Value}
	}
	return kv.Condition{Kind: kv.IfVersion, Version: was.Version}, Read{Key: was.Key, Value: was.Value, Version: was.Version}
}

// execute puts one of two keys, depending on whether a third is present.
func (c *Client) execute(ctx context.Context) error {
	keys := c.pick(3)
	then, otherwise := c.put(keys[1]), c.put(keys[2])
	guard := kv.Guard{Key: keys[0].Bytes(), Condition: kv.Condition{Kind: kv.IfPresent}}
	o := Op{Writes: []Write{then, otherwise}}
	refusal, err := c.settle(ctx, &o, func(ctx context.Context, options kv.WriteOptions) (answer, error) {
		succeeded, version, err := c.store.Execute(ctx, []kv.Guard{guard}, batchOf([]Write{then}, nil), batchOf([]Write{otherwise}, nil), options)
		switch {
		case err != nil:
		case succeeded:
			o.Reads, o.Writes = []Read{{Key: keys[0], Value: Unseen}}, []Write{then}
		default:
			o.Reads, o.Writes = []Read{{Key: keys[0]}}, []Write{otherwise}
		}
		return answer{version: version}, err
	})
	switch {
	case err != nil:
		return err
	case refusal == nil:
		c.Tally.Executions++
	case errors.Is(refusal, kv.ErrConflict):
		c.Tally.Conflicts++
	default:
		return fmt.Errorf("client %d: %w, of %s", c.number, refusal, &o)
	}
	return nil
}
