package kvd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kvd-db/kvd/internal/frame"
)

// Pipeline lets one goroutine have many independent operations under way at once:
// Get, Put and Delete only note what is wanted, and Do performs it in few frames.
// It is no transaction: each operation succeeds or fails on its own. Operations
// that touch the same key happen in the order in which they were noted; others in
// any order. Not safe for concurrent use.
type Pipeline struct {
	client *Client
	noted  []*pipelined
}

// Pipeline returns an empty pipeline.
func (c *Client) Pipeline() *Pipeline { return &Pipeline{client: c} }

// Pending is the result of an operation in a Pipeline, once Do has returned.
type Pending[T any] struct {
	of    *pipelined
	value func(*pipelined) T
}

// Result returns what the operation brought: for Get the value, with ErrNotFound
// if there is none, for Put and Delete what PutItem and DeleteItem return. Its errors are those of the call of
// the same name; it is ErrInvalid before Do.
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

// pipelined is an operation of a pipeline.
type pipelined struct {
	name    string
	op      frame.Op
	timings *Timings

	tries  attempts
	seat   seat
	fault  *fault // of the last try
	answer answer
	err    error
	done   bool
}

// Get notes a read, and copies key.
func (p *Pipeline) Get(key []byte, opts ...ReadOption) *Pending[[]byte] {
	chosen := collectRead(opts)
	o := p.note("get", frame.Op{Kind: frame.Get, Key: key, AtVersion: chosen.at}, writeOptions{timings: chosen.timings}, nil)
	return &Pending[[]byte]{o, func(o *pipelined) []byte { return o.answer.item.Value }}
}

// Put notes a write with the options of Client.PutItem, and copies key and value.
func (p *Pipeline) Put(key, value []byte, opts ...WriteOption) *Pending[Written] {
	o, err := p.client.writeOptions(opts, ofPut|chosePrevious)
	op := frame.Op{Kind: frame.Put, Key: key, Value: bytes.Clone(value), TTLMillis: ttlMillis(o.ttl)}
	return &Pending[Written]{p.note("put", op, o, err), (*pipelined).written}
}

// Delete notes a write with the options of Client.DeleteItem, and copies key.
func (p *Pipeline) Delete(key []byte, opts ...WriteOption) *Pending[Written] {
	o, err := p.client.writeOptions(opts, ofDelete|chosePrevious)
	return &Pending[Written]{p.note("delete", frame.Op{Kind: frame.Delete, Key: key}, o, err), (*pipelined).written}
}

func (o *pipelined) written() Written { return written(&o.op, &o.answer) }

func (p *Pipeline) note(name string, op frame.Op, o writeOptions, err error) *pipelined {
	if len(op.Key) == 0 && err == nil {
		err = errEmptyKey
	}
	op.Key = bytes.Clone(op.Key)
	o.condition.Value = bytes.Clone(o.condition.Value)
	o.apply(&op)
	n := &pipelined{name: name, op: op, timings: o.timings}
	if err != nil {
		n.err = &Error{Op: name, Err: err}
	}
	p.noted = append(p.noted, n)
	return n
}

// Len returns the number of operations that were noted since the last Do.
func (p *Pipeline) Len() int { return len(p.noted) }

// Do performs what was noted, waits until all of it has a result, and returns
// errors.Join of those that failed, in their order; a Get of an absent key is
// among them. The pipeline is empty then and can be used again.
//
// Time: that of one call applies to each operation from when it is sent, and ctx
// to all.
func (p *Pipeline) Do(ctx context.Context) error {
	noted := p.noted
	p.noted = nil
	for rest := noted; len(rest) > 0; {
		n := independent(rest)
		p.client.doAll(ctx, rest[:n])
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

// independent returns how many of the first operations may be under way at the
// same time: those of which no two touch the same key, unless both read it.
func independent(noted []*pipelined) int {
	written := make(map[string]bool, len(noted))
	for i, o := range noted {
		before, touched := written[string(o.op.Key)]
		writes := o.op.Kind != frame.Get
		if touched && (before || writes) {
			return i
		}
		written[string(o.op.Key)] = writes
	}
	return len(noted)
}

// doAll performs operations that do not depend on each other.
func (c *Client) doAll(ctx context.Context, all []*pipelined) {
	var framed []*pipelined
	for _, o := range all {
		switch {
		case o.err != nil:
		case c.travelsAlone(&o.op):
			o.answer, o.err = c.operate(ctx, o.name, o.op, o.timings)
		default:
			framed = append(framed, o)
		}
	}
	if len(framed) == 0 {
		return
	}
	if !c.calls.enter() {
		for _, o := range framed {
			o.err = &Error{Op: o.name, Err: ErrClosed}
		}
		return
	}
	defer c.calls.leave()
	for _, o := range framed {
		o.tries = c.attemptsAt(ctx, o.name, &o.op)
		o.tries.watch = startWatch(o.timings)
	}
	for {
		c.tryAll(ctx, framed)
		again, wait := retries(framed)
		if len(again) == 0 {
			return
		}
		if err := pause(ctx, wait); err != nil {
			for _, o := range again {
				o.err = o.tries.interrupted(err, o.fault)
			}
			return
		}
		framed = again
	}
}

// retries returns the operations that should be tried again, and when; the others
// have their results.
func retries(tried []*pipelined) (again []*pipelined, wait time.Duration) {
	for _, o := range tried {
		if o.fault == nil {
			o.tries.succeeded()
			continue
		}
		after, err := o.tries.next(o.fault)
		if o.err = err; err == nil {
			again = append(again, o)
			wait = max(wait, after)
		}
	}
	return again, wait
}

// maxAhead is how many operations of one pipeline are under way at once: some full
// frames, so that there is always one to be served.
const maxAhead = 4 * frame.MaxOps

// tryAll has operations performed once, in the frames of one connection.
func (c *Client) tryAll(ctx context.Context, all []*pipelined) {
	conn := c.pick(func(c *conn) int64 { return c.readers.Load() + c.writers.Load() })
	ctx, cancel := all[0].tries.within(ctx)
	defer cancel()
	boarded := 0
	for i, o := range all {
		for ; boarded < len(all) && boarded-i < maxAhead; boarded++ {
			c.board(ctx, conn, all[boarded])
		}
		if o.fault != nil {
			continue
		}
		begun := o.seat.flight.born
		o.answer, o.fault = conn.await(ctx, &o.seat, &o.op, o.tries.deadline.IsZero())
		if o.fault != nil {
			o.tries.bound(begun)
		}
	}
}

// board has an operation board without waiting for it. It is the sender who sends.
func (c *Client) board(ctx context.Context, conn *conn, o *pipelined) {
	o.tries.sign(&o.op.Options)
	patience := c.setTimeout(&o.op, &o.tries)
	if err := ctx.Err(); err != nil {
		o.fault = newFault(err, true)
		return
	}
	conn.mu.Lock()
	defer conn.mu.Unlock()
	if o.fault = conn.reachLocked(); o.fault == nil {
		class := classOf(&o.op)
		o.seat = conn.boardLocked(class, &o.op, patience)
		o.seat.time(o.tries.watch.depart())
		if k := conn.mu.link; k != nil {
			k.wakeForLocked(&conn.mu.lanes[class])
		}
	}
}
