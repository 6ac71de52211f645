package kvd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
)

// Pipeline lets one goroutine have many independent operations in flight: Get, Put and Delete
// queue an operation, and Do sends the queue in few frames. It is not a transaction: each
// operation succeeds or fails by itself. Operations on the same key take effect in the order in
// which they were queued, others in any order. Not safe for concurrent use.
type Pipeline struct {
	client *Client
	noted  []*pipelined

	// Operations and copies of keys and values are cut from slabs, each twice as large as the one
	// before: several allocations for each operation would cost more than a write to the
	// memtable.
	operations []pipelined
	bytes      []byte
	doublings  int
}

// Pipeline returns an empty pipeline.
func (c *Client) Pipeline() *Pipeline { return &Pipeline{client: c} }

// Pending is the result of one operation of a Pipeline, available after Do.
type Pending[T any] struct {
	of    *pipelined
	value func(*pipelined) T
}

// Result returns the result of the operation: for Get the value, for Put and Delete what PutItem
// and DeleteItem return. The caller owns it. Errors are those of the calls of the same names,
// and ErrInvalid before Do.
func (p *Pending[T]) Result() (T, error) {
	var none T
	switch {
	case !p.of.done:
		return none, &Error{Op: p.of.name, Err: errNotDone}
	case p.of.err != nil:
		return none, p.of.err
	}
	return p.value(p.of), nil
}

var errNotDone = fmt.Errorf("%w: the pipeline has not been done", ErrInvalid)

// pipelined is one operation of a pipeline.
type pipelined struct {
	name      string
	operation backend.Operation
	err       error
	done      bool

	read  Pending[[]byte]  // what Get returned
	wrote Pending[Written] // what Put or Delete returned
}

// Get queues a read. It copies key.
func (p *Pipeline) Get(key []byte, opts ...ReadOption) *Pending[[]byte] {
	chosen := collectRead(opts)
	o := p.note("get", backend.Op{Mutation: backend.Mutation{Kind: backend.Get, Key: key}, At: chosen.at}, writeOptions{timings: chosen.timings}, nil)
	o.read = Pending[[]byte]{o, (*pipelined).value}
	return &o.read
}

func (o *pipelined) value() []byte { return o.operation.Answer.Item.Value }

// Put queues a write with the options of Client.PutItem. It copies key and value.
func (p *Pipeline) Put(key, value []byte, opts ...WriteOption) *Pending[Written] {
	o, err := p.client.writeOptions(opts, ofPut|chosePrevious)
	op := backend.Op{Mutation: backend.Mutation{Kind: backend.Put, Key: key, Value: p.copy(value)}}
	return p.noteWrite("put", op, o, err)
}

// Delete queues a write with the options of Client.DeleteItem. It copies key.
func (p *Pipeline) Delete(key []byte, opts ...WriteOption) *Pending[Written] {
	o, err := p.client.writeOptions(opts, ofDelete|chosePrevious)
	return p.noteWrite("delete", backend.Op{Mutation: backend.Mutation{Kind: backend.Delete, Key: key}}, o, err)
}

func (p *Pipeline) noteWrite(name string, op backend.Op, o writeOptions, err error) *Pending[Written] {
	n := p.note(name, op, o, err)
	n.wrote = Pending[Written]{n, (*pipelined).written}
	return &n.wrote
}

func (o *pipelined) written() Written { return written(&o.operation.Op, &o.operation.Answer) }

func (p *Pipeline) note(name string, op backend.Op, o writeOptions, err error) *pipelined {
	if len(op.Key) == 0 && err == nil {
		err = errEmptyKey
	}
	op.Key = p.copy(op.Key)
	o.condition.Value = bytes.Clone(o.condition.Value)
	o.apply(&op)
	n := p.operation()
	n.name, n.operation = name, backend.Operation{Op: op, Timings: (*backend.Timings)(o.timings)}
	if err != nil {
		n.err = &Error{Op: name, Err: err}
	}
	p.noted = append(p.noted, n)
	return n
}

// maxDoublings of the first slab, which has one operation, or firstSlabBytes. A copy that is
// larger than a quarter of the last slab has memory of its own.
const (
	maxDoublings   = 6
	firstSlabBytes = 256
)

// operation returns a new operation.
func (p *Pipeline) operation() *pipelined {
	if len(p.operations) == 0 {
		p.operations = make([]pipelined, 1<<p.doublings)
		p.doublings = min(p.doublings+1, maxDoublings)
	}
	o := &p.operations[0]
	p.operations = p.operations[1:]
	return o
}

// copy returns a copy of b, nil if b is.
func (p *Pipeline) copy(b []byte) []byte {
	n := len(b)
	if n == 0 || n > firstSlabBytes<<maxDoublings/4 {
		return bytes.Clone(b)
	}
	if n > len(p.bytes) {
		p.bytes = make([]byte, max(n, firstSlabBytes<<p.doublings))
	}
	copied := p.bytes[:n:n]
	p.bytes = p.bytes[n:]
	copy(copied, b)
	return copied
}

// Len returns the number of operations in the queue.
func (p *Pipeline) Len() int { return len(p.noted) }

// Do sends the queue, waits until each operation has a result, and returns errors.Join of the
// errors, in the order of the queue; a Get of an absent key is one. The queue is empty then, and
// the pipeline can be used again.
//
// The client's timeout applies to each operation from when it is sent; ctx applies to all.
func (p *Pipeline) Do(ctx context.Context) error {
	noted := p.noted
	p.noted = nil
	for rest := noted; len(rest) > 0; {
		n := independent(rest)
		p.client.operateAll(ctx, rest[:n])
		rest = rest[n:]
	}
	var errs []error
	for _, o := range noted {
		if o.done = true; o.err != nil {
			errs = append(errs, o.err)
		}
	}
	return errors.Join(errs...)
}

// independent returns how many of the first operations may be in flight together: no two of
// them touch the same key, unless both read it. Two keys with the same hash count as the same.
func independent(noted []*pipelined) int {
	written := make(map[uint64]bool, len(noted))
	for i, o := range noted {
		key := maphash.Bytes(keySeed, o.operation.Op.Key)
		before, touched := written[key]
		writes := o.operation.Op.Kind != backend.Get
		if touched && (before || writes) {
			return i
		}
		written[key] = writes
	}
	return len(noted)
}

var keySeed = maphash.MakeSeed()

// operateAll performs operations that do not depend on each other.
func (c *Client) operateAll(ctx context.Context, all []*pipelined) {
	refusal := ErrClosed
	if c.calls.enter() {
		defer c.calls.leave()
		refusal = ctx.Err()
	}
	operations := make([]*backend.Operation, 0, len(all))
	for _, o := range all {
		switch {
		case o.err != nil:
		case refusal != nil:
			o.err = &Error{Op: o.name, Err: refusal}
		default:
			operations = append(operations, &o.operation)
		}
	}
	if len(operations) == 0 {
		return
	}
	c.backend.OperateAll(ctx, operations)
	for _, o := range all {
		if o.err == nil {
			o.err = failed(o.name, o.operation.Err)
		}
	}
}
