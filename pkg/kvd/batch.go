package kvd

import (
	"bytes"
	"context"
	"fmt"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
)

// Batch is a set of writes that Apply applies atomically, all at one version. Building it
// does no I/O; it copies keys and values. The zero value is an empty batch. Not safe for
// concurrent use.
type Batch struct {
	writes     []backend.Mutation
	conditions int   // writes under a condition
	err        error // of the first write that makes no sense
}

// Put adds a put, which replaces an earlier write of the same key in the batch. It takes
// TTL and a condition. All conditions of a batch are evaluated on the state before the
// batch, including those of writes that are replaced, and all must hold.
func (b *Batch) Put(key, value []byte, opts ...WriteOption) *Batch {
	o := b.options(key, opts, within)
	return b.add(backend.Mutation{Kind: backend.Put, Key: bytes.Clone(key), Value: bytes.Clone(value), TTL: o.ttl, Condition: o.conditionCopy()})
}

// Delete adds a delete, which replaces an earlier write of the same key in the batch. It
// takes a condition.
func (b *Batch) Delete(key []byte, opts ...WriteOption) *Batch {
	o := b.options(key, opts, choseCondition)
	return b.add(backend.Mutation{Kind: backend.Delete, Key: bytes.Clone(key), Condition: o.conditionCopy()})
}

// DeleteRange adds the removal of every key of a range. Keys that the batch puts later are kept. A range
// whose start is not below its end removes nothing.
//
// The store keeps a range delete once in each partition, so some hundred of them in one batch may
// exceed its limit (ErrTooLarge): see the README.
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

// Apply applies the writes of the batch atomically and returns their version. It does not
// change the batch. It takes Durable and Timed.
//
// Errors: those of Put, where ErrConflict means that a condition did not hold. ErrInvalid if
// the batch is nil or empty, or one of its writes is invalid.
func (c *Client) Apply(ctx context.Context, b *Batch, opts ...WriteOption) (version uint64, err error) {
	o, err := c.writeOptions(opts, ofCommit)
	switch {
	case err != nil:
	case b == nil:
		err = fmt.Errorf("%w: the batch is nil, so there is nothing to apply; pass one that has a write", ErrInvalid)
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
	in, err := c.enter(ctx, name)
	if err != nil {
		return 0, err
	}
	defer in.leave()
	if version, err = c.backend.Apply(ctx, writes, o.backend()); err != nil {
		return 0, failed(name, err)
	}
	return version, nil
}
