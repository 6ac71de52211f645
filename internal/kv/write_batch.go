package kv

import (
	"bytes"
	"errors"
	"fmt"
)

// Op is one operation of a write.
type Op struct {
	Kind   Kind
	Key    []byte
	Value  []byte // for KindRangeDelete the exclusive end key; empty, in a WriteBatch: no end
	Expiry uint64 // as in Entry
}

// Size returns the bytes of user data in the operation: key plus value.
func (o *Op) Size() int { return len(o.Key) + len(o.Value) }

// Check reports whether the operation may be stored under the limits.
func (o *Op) Check(l Limits) error {
	if o.Kind == KindRangeDelete {
		if n := max(len(o.Key), len(o.Value)); n > l.KeyBytes {
			return fmt.Errorf("%w: a bound of the range has %d bytes, limit is %d", ErrTooLarge, n, l.KeyBytes)
		}
		return nil
	}
	if err := l.CheckKey(o.Key); err != nil {
		return err
	}
	switch o.Kind {
	case KindPut:
		return l.CheckValue(o.Value)
	case KindDelete:
		return nil
	}
	return fmt.Errorf("%w: operation of %s", ErrInvalidArgument, o.Kind)
}

// RequestID identifies a write, so that a write that is sent twice is applied once. The
// zero RequestID identifies nothing.
//
// The log stores ClientID, Sequence and Content. Retried and KnownVersion are part of
// the request only: they let the store tell a write that it has never seen from one
// that it no longer remembers.
type RequestID struct {
	ClientID uint64
	// Sequence grows from one write of a client to the next, but for its top bit, which has no part
	// in the order. Writes may come in another order, if none is late by the numbers of a window.
	Sequence uint64
	// Content is a hash of what the write does (keyhash.Content), which reveals another
	// write with the same pair; 0: not known. The engine sets it. It covers the operations
	// alone, not the guards, conditions and reads on which they depend: a retry with others
	// is answered with what the first attempt did.
	Content uint64

	// Retried: the caller has sent the write before and does not know its outcome.
	Retried bool
	// KnownVersion is the newest version that the caller had seen when it first sent the write. If
	// the write was applied, its version is later. A write that was not sent before may leave it
	// out: 0.
	KnownVersion SeqNum
}

// Named reports whether the write has a request id and is to be deduplicated.
func (o RequestID) Named() bool { return o.ClientID != 0 || o.Sequence != 0 }

// WriteBatch is one caller's atomic set of operations: all of them are applied, at one
// sequence number, or none. Building it does no I/O. Not safe for concurrent use. The
// zero value is ready.
type WriteBatch struct {
	ops    []Op
	guards []Guard
	bytes  int
	ranges rangeDeletes
}

// rangeDeletes are those of a batch: their number, the bytes of their bounds, and whether one of them
// has no end.
type rangeDeletes struct {
	count, bytes int
	unbounded    bool
}

func (r *rangeDeletes) add(op *Op) {
	if op.Kind == KindRangeDelete {
		r.count++
		r.bytes += op.Size()
		r.unbounded = r.unbounded || len(op.Value) == 0
	}
}

// Put adds a put. The batch keeps the slices until Reset.
func (b *WriteBatch) Put(key, value []byte) { b.Add(Op{Kind: KindPut, Key: key, Value: value}) }

// Delete adds a delete. The batch keeps key until Reset.
func (b *WriteBatch) Delete(key []byte) { b.Add(Op{Kind: KindDelete, Key: key}) }

// Add adds any operation. The batch keeps the slices of op until Reset.
func (b *WriteBatch) Add(op Op) {
	b.ops = append(b.ops, op)
	b.bytes += op.Size()
	b.ranges.add(&op)
}

// DeleteRange adds a range delete: every key k with start <= k < end is absent from the
// batch on, except keys that a later operation of the batch puts. An empty end means no
// upper bound. A range that holds no key deletes nothing.
func (b *WriteBatch) DeleteRange(start, end []byte) {
	b.Add(Op{Kind: KindRangeDelete, Key: start, Value: end})
}

// Require makes the batch depend on a condition. All guards are evaluated against the
// state before the batch. The batch keeps the slices of g until Reset.
func (b *WriteBatch) Require(g Guard) {
	b.guards = append(b.guards, g)
	b.bytes += len(g.Key) + len(g.Value)
}

// Guards returns the conditions, borrowed until the next call that changes b.
func (b *WriteBatch) Guards() []Guard { return b.guards }

// Len returns the number of operations.
func (b *WriteBatch) Len() int { return len(b.ops) }

// Bytes returns the total length of keys and values, including those of guards.
func (b *WriteBatch) Bytes() int { return b.bytes }

// Takes returns the bytes that the batch takes in a record of the log, and at most in the memtables:
// those of keys and values, as Bytes counts them, but a range delete counts with RangeDeleteBytes and
// once for each copy that the store keeps of it. It is the measure of what a batch waits for and
// reserves; it may be called before Normalize or after.
func (b *WriteBatch) Takes(l Limits) int {
	r := &b.ranges
	one := r.bytes + r.count*RangeDeleteBytes
	if r.unbounded {
		one += len(l.aboveAllKeys()) // one of those without an end is kept
	}
	return b.bytes - r.bytes + l.rangeCopies()*one
}

// Ops returns the operations, borrowed until the next call that changes b.
func (b *WriteBatch) Ops() []Op { return b.ops }

// Reset empties the batch and keeps its memory.
func (b *WriteBatch) Reset() {
	clear(b.ops)
	clear(b.guards)
	b.ops, b.guards, b.bytes, b.ranges = b.ops[:0], b.guards[:0], 0, rangeDeletes{}
}

// Check reports whether the batch may be committed under the limits.
func (b *WriteBatch) Check(l Limits) error {
	if len(b.ops) == 0 {
		return fmt.Errorf("%w: batch is empty", ErrInvalidArgument)
	}
	if err := l.CheckBatch(len(b.ops)+len(b.guards), b.bytes); err != nil {
		return err
	}
	for i := range b.ops {
		if err := b.ops[i].Check(l); err != nil {
			return fmt.Errorf("operation %d of the batch: %w", i, err)
		}
	}
	if err := b.checkTaken(l); err != nil {
		return err
	}
	for i := range b.guards {
		g := &b.guards[i]
		if err := errors.Join(l.CheckKey(g.Key), g.Check(l)); err != nil {
			return fmt.Errorf("condition %d of the batch: %w", i, err)
		}
	}
	return nil
}

// checkTaken reports whether range deletes make the batch too large, although it has no more operations
// and bytes than a batch may have.
func (b *WriteBatch) checkTaken(l Limits) error {
	taken := b.Takes(l)
	if l.rangeCopies() == 1 || taken <= l.MostTaken() {
		return nil
	}
	return fmt.Errorf("%w: batch takes %d bytes, limit is %d: each of its %d range deletes is stored in all %d partitions; split it into several batches",
		ErrTooLarge, taken, l.MostTaken(), b.ranges.count, l.rangeCopies())
}

// Normalize makes the operations independent of their order, so that all may carry one
// sequence number: it keeps only the last operation on each key, and drops what a later
// range delete covers. (A range delete hides only lower numbers, so a put that follows
// it in the batch survives it, as it should.)
//
// It also gives range deletes the form that the log and the tables hold: each starts at
// a valid key and ends after it. See settleRanges.
func (b *WriteBatch) Normalize(l Limits) {
	b.dropOverwritten()
	if b.ranges.count > 0 {
		b.settleRanges(l)
	}
}

func (b *WriteBatch) dropOverwritten() {
	if len(b.ops) < 2 || b.ranges.count == 0 && ascending(b.ops) {
		return
	}
	last := make(map[string]int, len(b.ops))
	var ranges []int
	for i := range b.ops {
		if b.ops[i].Kind == KindRangeDelete {
			ranges = append(ranges, i)
			continue
		}
		last[string(b.ops[i].Key)] = i
	}
	kept := b.ops[:0]
	for i, op := range b.ops {
		if op.Kind != KindRangeDelete && (last[string(op.Key)] != i || coveredByLater(b.ops, ranges, i)) {
			b.bytes -= op.Size()
			continue
		}
		kept = append(kept, op)
	}
	clear(b.ops[len(kept):])
	b.ops = kept
}

// ascending reports whether each key is above the one before it. Batches often come sorted, and then no
// map of the keys is needed to see that none is written twice.
func ascending(ops []Op) bool {
	for i := 1; i < len(ops); i++ {
		if bytes.Compare(ops[i-1].Key, ops[i].Key) >= 0 {
			return false
		}
	}
	return true
}

// settleRanges drops empty range deletes. It merges those without an end into one,
// which begins at the smallest start among them, so that the explicit end, which is
// longer than any key, is stored once. Range deletes hide only lower numbers, so their
// order among the other operations of a normalized batch does not matter.
//
// If no operation is left, it adds a delete of a key that no caller can use: the batch
// keeps its guards and its request id, and gets a version like any other.
func (b *WriteBatch) settleRanges(l Limits) {
	var unbounded *Op
	kept := b.ops[:0]
	for _, op := range b.ops {
		if op.Kind == KindRangeDelete && len(op.Key) == 0 {
			op.Key = []byte{0} // the first of all keys
		}
		switch {
		case op.Kind != KindRangeDelete || bytes.Compare(op.Key, op.Value) < 0:
		case len(op.Value) > 0:
			continue
		case unbounded != nil:
			if bytes.Compare(op.Key, unbounded.Key) < 0 {
				unbounded.Key = op.Key
			}
			continue
		default:
			op.Value = l.aboveAllKeys()
			unbounded = &b.ops[len(kept)]
		}
		kept = append(kept, op)
	}
	clear(b.ops[len(kept):])
	b.ops = kept
	if len(kept) == 0 {
		b.ops = append(b.ops, Op{Kind: KindDelete, Key: l.aboveAllKeys()})
	}
	b.bytes, b.ranges = 0, rangeDeletes{}
	for i := range b.ops {
		b.bytes += b.ops[i].Size()
		b.ranges.add(&b.ops[i])
	}
	for i := range b.guards {
		b.bytes += len(b.guards[i].Key) + len(b.guards[i].Value)
	}
}

// coveredByLater reports whether a range delete after operation i covers its key. It
// reads only operations at or after i, which dropOverwritten has not moved.
func coveredByLater(ops []Op, ranges []int, i int) bool {
	for _, j := range ranges {
		if j > i && (Range{Start: ops[j].Key, End: ops[j].Value}).Contains(ops[i].Key) {
			return true
		}
	}
	return false
}
