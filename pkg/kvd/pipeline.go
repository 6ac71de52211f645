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
	queue  []*pipelined

	// Operations and copies of keys and values are cut from slabs, each twice as large as the one
	// before: several allocations for each operation would cost more than a write to the
	// memtable.
	slab      []pipelined
	bytes     []byte
	doublings int

	// Of Do alone: memory that the next one uses again.
	operations []*backend.Operation
	touched    touchedKeys
}

// Pipeline returns an empty pipeline.
func (c *Client) Pipeline() *Pipeline { return &Pipeline{client: c} }

// Pending is one operation of a Pipeline, whose result is available after Do.
type Pending[T any] struct {
	operation backend.Operation // its error: that of the call, or before Do why the call makes no sense
	done      bool
}

// pipelined is an operation in the queue. Its pointer converts to one of each type of results, so
// that an operation and its result are one piece of memory.
type pipelined = Pending[any]

// Result returns the result of the operation: for Get the value, for Put and Delete what PutItem
// and DeleteItem return. The caller owns it. Errors are those of the calls of the same names,
// and ErrInvalid before Do.
func (p *Pending[T]) Result() (result T, err error) {
	switch {
	case !p.done:
		return result, &Error{Op: p.name(), Err: errNotDone}
	case p.operation.Err != nil:
		return result, p.operation.Err
	}
	switch r := any(&result).(type) {
	case *[]byte:
		*r = p.operation.Answer.Value.Bytes
	case *Written:
		*r = written(&p.operation.Op, &p.operation.Answer)
	}
	return result, nil
}

var errNotDone = fmt.Errorf("%w: the pipeline has not been done", ErrInvalid)

func (p *Pending[T]) name() string { return nameOf(p.operation.Op.Kind) }

// Get queues a read. It copies key.
func (p *Pipeline) Get(key []byte, opts ...ReadOption) *Pending[[]byte] {
	o := p.add(backend.Get, key)
	chosen, err := collectRead(o.name(), opts)
	if err != nil {
		o.operation.Err = err
	}
	o.operation.Op.At = chosen.at
	o.operation.Timings = (*backend.Timings)(chosen.timings)
	return (*Pending[[]byte])(o)
}

// Put queues a write with the options of Client.PutItem. It copies key and value.
func (p *Pipeline) Put(key, value []byte, opts ...WriteOption) *Pending[Written] {
	o := p.add(backend.Put, key)
	o.operation.Op.Value = p.copy(value)
	return p.write(o, opts, ofPut|chosePrevious)
}

// Delete queues a write with the options of Client.DeleteItem. It copies key.
func (p *Pipeline) Delete(key []byte, opts ...WriteOption) *Pending[Written] {
	return p.write(p.add(backend.Delete, key), opts, ofDelete|chosePrevious)
}

// write has a write that is in the queue be one with options.
func (p *Pipeline) write(w *pipelined, opts []WriteOption, takes choices) *Pending[Written] {
	o, err := p.client.writeOptions(opts, takes)
	o.condition.Value = bytes.Clone(o.condition.Value)
	o.apply(&w.operation.Op)
	w.operation.Timings = (*backend.Timings)(o.timings)
	if err != nil {
		w.operation.Err = &Error{Op: w.name(), Err: err}
	}
	return (*Pending[Written])(w)
}

// add queues an operation, of which it copies the key.
func (p *Pipeline) add(kind backend.Kind, key []byte) *pipelined {
	if len(p.slab) == 0 {
		p.slab = make([]pipelined, 1<<p.doublings)
		p.doublings = min(p.doublings+1, maxDoublings)
	}
	o := &p.slab[0]
	p.slab = p.slab[1:]
	op := &o.operation.Op
	op.Kind, op.Key = kind, p.copy(key)
	if len(key) == 0 {
		o.operation.Err = &Error{Op: o.name(), Err: errEmptyKey}
	}
	p.queue = append(p.queue, o)
	return o
}

// maxDoublings of the first slab, which has one operation, or firstSlabBytes. A copy that is
// larger than a quarter of the last slab has memory of its own.
const (
	maxDoublings   = 6
	firstSlabBytes = 256
)

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
func (p *Pipeline) Len() int { return len(p.queue) }

// Do sends the queue, waits until each operation has a result, and returns errors.Join of the
// errors, in the order of the queue; a Get of an absent key is one. The queue is empty then, and
// the pipeline can be used again.
//
// The client's timeout applies to each operation from when it is sent; ctx applies to all.
//
// If the node that leads a cluster is none of those that the client knows, each write is a call of its
// own, at most 64 at a time, which another node has the leader perform.
func (p *Pipeline) Do(ctx context.Context) error {
	queue := p.queue
	for rest := queue; len(rest) > 0; {
		n := p.independent(rest)
		p.operate(ctx, rest[:n])
		rest = rest[n:]
	}
	var errs []error
	for _, o := range queue {
		if o.done = true; o.operation.Err != nil {
			errs = append(errs, o.operation.Err)
		}
	}
	clear(queue) // the results belong to the caller alone
	p.queue = queue[:0]
	return errors.Join(errs...)
}

// independent returns how many of the first operations may be in flight together: no two of
// them touch the same key, unless both read it. Two keys with the same hash count as the same.
func (p *Pipeline) independent(queue []*pipelined) int {
	p.touched.reset()
	for i, o := range queue {
		if p.touched.add(maphash.Bytes(keySeed, o.operation.Op.Key), o.operation.Op.Kind != backend.Get) {
			return i
		}
	}
	return len(queue)
}

var keySeed = maphash.MakeSeed()

// operate performs operations that do not depend on each other.
func (p *Pipeline) operate(ctx context.Context, all []*pipelined) {
	refusal := ErrClosed
	if in := p.client.calls.enter(); in != nil {
		defer in.leave()
		refusal = ctx.Err()
	}
	operations := p.operations[:0]
	for _, o := range all {
		(*Timings)(o.operation.Timings).reset()
		switch {
		case o.operation.Err != nil:
		case refusal != nil:
			o.operation.Err = &Error{Op: o.name(), Err: refusal}
		default:
			operations = append(operations, &o.operation)
		}
	}
	if len(operations) == 0 {
		return
	}
	p.client.backend.OperateAll(ctx, operations)
	for _, o := range operations {
		o.Err = failed(nameOf(o.Op.Kind), o.Err)
	}
	clear(operations)
	p.operations = operations[:0]
}
