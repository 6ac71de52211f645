package embed

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/trace"
	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
)

// write performs a Put or Delete that is alone.
func (l *local) write(ctx context.Context, op *backend.Op, t *backend.Timings) (backend.Answer, error) {
	if op.TTL != 0 || op.Condition != nil || op.ReturnPrevious {
		o := backend.Operation{Op: *op, Timings: t}
		l.writeAll(ctx, []*backend.Operation{&o})
		return o.Answer, o.Err
	}
	o := kv.WriteOptions{Durability: kv.Durability(op.Durability)}
	if t != nil {
		o.Stages = new(trace.Stages)
	}
	var version kv.SeqNum
	var err error
	if op.Kind == backend.Put {
		version, err = l.engine.Put(ctx, op.Key, op.Value, o)
	} else {
		version, err = l.engine.Delete(ctx, op.Key, o)
	}
	if t != nil {
		tell(t, o.Stages)
	}
	if err != nil {
		return backend.Answer{}, failure(err)
	}
	return backend.Answer{Version: uint64(version)}, nil
}

// manyWrites is the scratch memory of one writeAll. Of what serves again, the writes are zero.
type manyWrites struct {
	writes []kv.Write
	list   []*kv.Write // those of them that make sense
}

// judged is what a write points to that has a condition or returns what it replaces.
type judged struct {
	condition kv.Condition
	previous  kv.Lookup
}

var manyWritesPool = sync.Pool{New: func() any { return new(manyWrites) }}

// maxKeptWrites is how many writes scratch memory has at most that serves again.
const maxKeptWrites = 1024

// takeWrites returns n writes that are zero, and an empty list.
func takeWrites(n int) *manyWrites {
	m := manyWritesPool.Get().(*manyWrites)
	if n > cap(m.writes) {
		m.writes, m.list = make([]kv.Write, n), make([]*kv.Write, 0, n)
	}
	m.writes, m.list = m.writes[:n], m.list[:0]
	return m
}

// release takes the writes back. The engine may still read those that failed.
func (m *manyWrites) release(failed bool) {
	if !failed && cap(m.writes) <= maxKeptWrites {
		clear(m.writes)
		clear(m.list)
		manyWritesPool.Put(m)
	}
}

// addWrite adds a write to the call of the engine, unless it makes no sense.
func (l *local) addWrite(m *manyWrites, w *kv.Write, op *backend.Op) error {
	expiry, err := l.expiryOf(op.TTL)
	if err != nil {
		return err
	}
	w.Op, w.Durability = opOf(&op.Mutation, expiry), kv.Durability(op.Durability)
	if op.Condition != nil || op.ReturnPrevious {
		j := new(judged)
		if op.Condition != nil {
			j.condition = conditionOf(op.Condition)
			w.If = &j.condition
		}
		if op.ReturnPrevious {
			j.previous.Key = op.Key
			w.Previous = &j.previous
		}
	}
	m.list = append(m.list, w)
	return nil
}

// writeAll performs writes that do not depend on each other. The engine takes them in one
// call; those that make no sense it leaves out.
func (l *local) writeAll(ctx context.Context, ops []*backend.Operation) {
	m := takeWrites(len(ops))
	var stages *trace.Stages
	for i, o := range ops {
		o.Err = l.addWrite(m, &m.writes[i], &o.Op)
		if o.Timings != nil && stages == nil {
			stages = new(trace.Stages)
		}
	}
	var whole error
	if len(m.list) > 0 {
		m.list[0].Stages = stages
		whole = l.engine.Write(ctx, m.list)
	}
	failed := whole != nil
	for i, o := range ops {
		w := &m.writes[i]
		switch {
		case o.Err != nil:
			continue
		case whole != nil:
			o.Err = failure(whole)
		case w.Err != nil:
			o.Err, failed = failure(w.Err), true
		default:
			o.Answer.Version = uint64(w.Version)
			if w.Previous != nil && w.Previous.Found {
				o.Answer.Found, o.Answer.Value = true, l.valueOf(w.Previous)
			}
		}
		tell(o.Timings, stages)
	}
	m.release(failed)
}

// opOf is a write as the engine has it.
func opOf(m *backend.Mutation, expiry uint64) kv.Op {
	op := kv.Op{Kind: kv.KindPut, Key: m.Key, Value: m.Value, Expiry: expiry}
	switch m.Kind {
	case backend.Delete:
		op.Kind = kv.KindDelete
	case backend.DeleteRange:
		op.Kind = kv.KindRangeDelete
	}
	return op
}

// conditionOf is a condition as the engine has it.
func conditionOf(c *backend.Condition) kv.Condition {
	switch c.Kind {
	case backend.MustExist:
		return kv.Condition{Kind: kv.IfPresent}
	case backend.MustNotExist:
		return kv.Condition{Kind: kv.IfAbsent}
	case backend.VersionEquals:
		return kv.Condition{Kind: kv.IfVersion, Version: kv.SeqNum(c.Version)}
	case backend.ValueEquals:
		return kv.Condition{Kind: kv.IfValue, Value: c.Value}
	}
	return kv.Condition{}
}

// expiryOf is when a time to live ends, by the store's clock; 0 is never.
func (l *local) expiryOf(ttl time.Duration) (uint64, error) {
	if ttl == 0 {
		return 0, nil
	}
	millis := uint64((ttl-1)/time.Millisecond) + 1 // a part of one is rounded up
	expiry, err := kv.ExpiryAt(l.engine.Now(), millis)
	return expiry, failure(err)
}

// batches are kv.WriteBatch whose memory serves again.
var batches = sync.Pool{New: func() any { return new(kv.WriteBatch) }}

// maxKeptBatch is how many writes a batch has at most whose memory serves again.
const maxKeptBatch = 256

// release gives a batch back after a call of the engine that ended with err. What is in
// doubt may still be read.
func release(b *kv.WriteBatch, err error) {
	if b.Len() <= maxKeptBatch && !errors.Is(err, kv.ErrUncertain) {
		b.Reset()
		batches.Put(b)
	}
}

// batchOf makes one batch of writes, their conditions being its guards.
func (l *local) batchOf(writes []backend.Mutation) (*kv.WriteBatch, error) {
	b := batches.Get().(*kv.WriteBatch)
	for i := range writes {
		m := &writes[i]
		expiry, err := l.expiryOf(m.TTL)
		if err != nil {
			release(b, err)
			return nil, err
		}
		op := opOf(m, expiry)
		if op.Kind == kv.KindRangeDelete {
			if err := op.Check(l.limits); err != nil {
				release(b, err)
				return nil, failure(fmt.Errorf("mutation %d: %w", i, err))
			}
		}
		b.Add(op)
		if m.Condition != nil {
			b.Require(kv.Guard{Key: m.Key, Condition: conditionOf(m.Condition)})
		}
	}
	return b, nil
}

// writeOptions are those of a batch or commit.
func writeOptions(o *backend.WriteOptions) kv.WriteOptions {
	options := kv.WriteOptions{Durability: kv.Durability(o.Durability)}
	if o.Timings != nil {
		options.Stages = new(trace.Stages)
	}
	return options
}

// Apply implements backend.Backend.
func (l *local) Apply(ctx context.Context, writes []backend.Mutation, o backend.WriteOptions) (uint64, error) {
	b, err := l.batchOf(writes)
	if err != nil {
		return 0, err
	}
	options := writeOptions(&o)
	version, err := l.engine.Apply(ctx, b, options)
	release(b, err)
	tell(o.Timings, options.Stages)
	return uint64(version), failure(err)
}

// Commit implements backend.Backend. What a transaction read and writes has no more bytes
// together than a batch may have, as at a server.
func (l *local) Commit(ctx context.Context, t *backend.Transaction, o backend.WriteOptions) (uint64, error) {
	b, err := l.batchOf(t.Writes)
	if err != nil {
		return 0, err
	}
	txn := &kv.Transaction{ReadVersion: kv.SeqNum(t.At.Version), Epoch: t.At.Epoch, Keys: t.Keys, Expiring: t.Expiring, Batch: b}
	bytes := b.Bytes()
	for _, keys := range [][][]byte{t.Keys, t.Expiring} {
		for _, key := range keys {
			bytes += len(key)
		}
	}
	for _, r := range t.Ranges {
		txn.Ranges = append(txn.Ranges, kv.Range(r))
		bytes += len(r.Start) + len(r.End)
	}
	if bytes > l.limits.BatchBytes {
		return 0, tooLargef("the transaction has %d bytes of what it read and writes, limit is %d", bytes, l.limits.BatchBytes)
	}
	options := writeOptions(&o)
	version, err := l.engine.Commit(ctx, txn, options)
	release(b, err)
	tell(o.Timings, options.Stages)
	return uint64(version), failure(err)
}

// Execute implements backend.Backend.
func (l *local) Execute(ctx context.Context, e *backend.Execution, o backend.WriteOptions) (backend.Executed, error) {
	guards := make([]kv.Guard, len(e.Guards))
	ops, bytes := len(guards)+len(e.Then)+len(e.Else), 0
	for i := range e.Guards {
		g := kv.Guard{Key: e.Guards[i].Key, Condition: conditionOf(&e.Guards[i].Condition)}
		for _, err := range []error{l.limits.CheckKey(g.Key), g.Check(l.limits)} {
			if err != nil {
				return backend.Executed{}, failure(fmt.Errorf("guard %d: %w", i, err))
			}
		}
		guards[i] = g
		bytes += len(g.Key) + len(g.Value)
	}
	var lists [2]*kv.WriteBatch
	for i, writes := range [2][]backend.Mutation{e.Then, e.Else} {
		b, err := l.batchOf(writes)
		if err != nil {
			return backend.Executed{}, err
		}
		if b.Len() > 0 {
			if err := b.Check(l.limits); err != nil {
				return backend.Executed{}, failure(err)
			}
		}
		lists[i] = b
		bytes += b.Bytes()
	}
	if err := l.limits.CheckBatch(ops, bytes); err != nil {
		return backend.Executed{}, failure(err)
	}
	options := writeOptions(&o)
	succeeded, version, err := l.engine.Execute(ctx, guards, lists[0], lists[1], options)
	tell(o.Timings, options.Stages)
	if err != nil {
		return backend.Executed{}, failure(err)
	}
	return backend.Executed{Succeeded: succeeded, Version: uint64(version)}, nil
}
