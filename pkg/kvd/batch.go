package kvd

import (
	"bytes"
	"context"
	"fmt"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
)

// Batch is a set of writes that Apply performs all at one version, or none. It
// is built without I/O and copies what it is given. The zero value is empty. Not
// safe for concurrent use.
type Batch struct {
	writes     []backend.Mutation
	conditions int   // writes under a condition
	err        error // of the first write that makes no sense
}

// Put adds a put; a later write of the same key in the batch replaces it. It
// takes TTL and a condition. The conditions of a batch are judged on the state
// before it, and all must hold, also that of a write that is replaced.
func (b *Batch) Put(key, value []byte, opts ...WriteOption) *Batch {
	o := b.options(key, opts, within)
	return b.add(backend.Mutation{Kind: backend.Put, Key: bytes.Clone(key), Value: bytes.Clone(value), TTL: o.ttl, Condition: o.condition})
}

// Delete adds a delete; a later write of the same key in the batch replaces it.
// It takes a condition.
func (b *Batch) Delete(key []byte, opts ...WriteOption) *Batch {
	o := b.options(key, opts, choseCondition)
	return b.add(backend.Mutation{Kind: backend.Delete, Key: bytes.Clone(key), Condition: o.condition})
}

// DeleteRange adds the removal of every key of a range, but for those that later
// writes of the batch put. A range whose start is not below its end removes nothing.
func (b *Batch) DeleteRange(r Range) *Batch {
	return b.add(backend.Mutation{Kind: backend.DeleteRange, Key: bytes.Clone(r.Start), Value: bytes.Clone(r.End)})
}

func (b *Batch) options(key []byte, opts []WriteOption, takes choices) writeOptions {
	if len(key) == 0 {
		b.fail(errEmptyKey)
	}
	if len(opts) == 0 {
		return writeOptions{}
	}
	o, err := collect(opts, takes)
	b.fail(err)
	if o.condition.Kind != 0 {
		b.conditions++
	}
	o.condition.Value = bytes.Clone(o.condition.Value)
	return o
}

func (b *Batch) fail(err error) {
	if b.err == nil && err != nil {
		b.err = fmt.Errorf("write %d of the batch: %w", len(b.writes), err)
	}
}

func (b *Batch) add(m backend.Mutation) *Batch {
	b.writes = append(b.writes, m)
	return b
}

// Len returns the number of writes.
func (b *Batch) Len() int { return len(b.writes) }

// mutations returns the writes, none of no batch. They share memory with the batch.
func (b *Batch) mutations() []backend.Mutation {
	if b == nil {
		return nil
	}
	return b.writes
}

// Reset empties the batch.
func (b *Batch) Reset() {
	clear(b.writes)
	*b = Batch{writes: b.writes[:0]}
}

// Apply performs the writes of the batch, all of them at the version that it
// returns, or none. The batch stays as it is. It takes Durable and Timed.
//
// Errors are those of Put, where ErrConflict means that a condition did not hold;
// an empty batch, and one with a write that makes no sense, is ErrInvalid.
func (c *Client) Apply(ctx context.Context, b *Batch, opts ...WriteOption) (version uint64, err error) {
	o, err := c.writeOptions(opts, ofCommit)
	switch {
	case err != nil:
	case b.err != nil:
		err = b.err
	case b.Len() == 0:
		err = fmt.Errorf("%w: the batch is empty", ErrInvalid)
	}
	if err != nil {
		return 0, &Error{Op: "apply", Err: err}
	}
	return c.apply(ctx, "apply", b.writes, &o)
}

// apply performs writes, all or none.
func (c *Client) apply(ctx context.Context, name string, writes []backend.Mutation, o *writeOptions) (version uint64, err error) {
	if err := c.enter(ctx, name, o.timings); err != nil {
		return 0, err
	}
	defer c.calls.leave()
	if version, err = c.backend.Apply(ctx, writes, o.backend()); err != nil {
		return 0, failed(name, err)
	}
	return version, nil
}
