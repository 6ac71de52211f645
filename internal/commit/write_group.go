package commit

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/partition"
	"github.com/kvd-db/kvd/internal/trace"
)

// Call is what one caller waits for: all groups of its writes, one for each
// partition that they touch.
type Call struct {
	left atomic.Int64
	done chan struct{} // one value when the last group is decided

	// Of the last group, set before done. It is nil unless a group is timed, or if the
	// group was not taken.
	trace    *trace.Batch
	finished bool
}

// NewCall returns a Call that waits for this many groups.
func NewCall(groups int) *Call {
	c := &Call{done: make(chan struct{}, 1)}
	c.left.Store(int64(groups))
	return c
}

// Reset makes a Call wait for this many groups once more. Its value must have been
// taken from Done.
func (c *Call) Reset(groups int) {
	c.trace, c.finished = nil, false
	c.left.Store(int64(groups))
}

// Done delivers one value once every group is decided.
func (c *Call) Done() <-chan struct{} { return c.done }

// decided reports whether every group is decided.
func (c *Call) decided() bool { return c.left.Load() <= 0 }

// Trace returns, once Done has delivered, the way of the group that was decided last
// and whether it came to its end: see WriteGroup.Time.
func (c *Call) Trace() (times *trace.Batch, finished bool) { return c.trace, c.finished }

// Decided counts one group off, which has this trace and ended with err.
func (c *Call) Decided(times *trace.Batch, err error) {
	if c.left.Add(-1) == 0 {
		if times != nil {
			c.trace, c.finished = times, err == nil
		}
		c.done <- struct{}{}
	}
}

// WriteGroup is the share of one call that goes to one partition: either independent
// writes, or one atomic batch that lies in this partition alone.
type WriteGroup struct {
	to     *Coordinator
	call   *Call
	writes []*kv.Write

	batch *kv.WriteBatch
	reads *partition.Reads // what the batch depends on; nil: nothing
	whole kv.Write         // the batch as one write: RequestID, Version, Deduplicated and Err

	level kv.Durability // the strongest that any of its writes asked for
	bytes int

	// mu keeps a caller that gives up and the leader apart: the goroutine that holds
	// it may touch the caller's memory, unless abandoned.
	mu        sync.Mutex
	abandoned bool
	decided   bool
	entered   bool         // it is in a record: whether the log has that may be unknown
	unit      uint32       // of its first write that is in the record
	trace     *trace.Batch // of the record

	timed bool
}

// NewWriteGroup returns a group of independent writes. Their durability must not be
// kv.DurabilityDefault.
func (c *Coordinator) NewWriteGroup(call *Call, writes []*kv.Write) *WriteGroup {
	g := &WriteGroup{}
	g.Reset(c, call, writes)
	return g
}

// Reset makes a group of independent writes into another one. Its call must be
// done, and it must not have been abandoned: the leader could still hold it.
func (g *WriteGroup) Reset(to *Coordinator, call *Call, writes []*kv.Write) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.to, g.call, g.writes, g.level, g.bytes, g.decided = to, call, writes, 0, 0, false
	g.trace, g.timed, g.entered = nil, false, false
	for _, w := range writes {
		g.level = max(g.level, w.Durability)
		g.bytes += w.Op.Size()
	}
}

// NewBatchGroup returns a group of one atomic batch, normalized and not empty. If it depends on
// reads, which may be nil, it writes one key, and that is the only one that was read: what
// concerns more keys is a [Proposal]. Its result is then as that of Propose if a read was overtaken.
func (c *Coordinator) NewBatchGroup(call *Call, b *kv.WriteBatch, reads *partition.Reads, level kv.Durability, id kv.RequestID) *WriteGroup {
	g := &WriteGroup{to: c, call: call, batch: b, reads: reads, whole: kv.Write{RequestID: id}, level: level, bytes: b.Bytes()}
	g.writes = []*kv.Write{&g.whole}
	return g
}

// Time has the moments of the group's way kept, for Call.Trace and Abandon. It is
// called before the group is handed in.
func (g *WriteGroup) Time() { g.timed = true }

func anyTimed(groups []*WriteGroup) bool {
	for _, g := range groups {
		if g.timed {
			return true
		}
	}
	return false
}

// Result returns what became of an atomic batch, once its call is done.
func (g *WriteGroup) Result() (kv.SeqNum, error) { return g.whole.Version, g.whole.Err }

// Deduplicated reports whether an atomic batch had been applied before and was not
// again, once its call is done.
func (g *WriteGroup) Deduplicated() bool { return g.whole.Err == nil && g.whole.Deduplicated }

// ops returns the number of operations.
func (g *WriteGroup) ops() int {
	if g.batch != nil {
		return g.batch.Len()
	}
	return len(g.writes)
}

// admitLocked finds out which of a group's writes are to be done and notes in the record what they
// write. The others have their version or their error. It reports whether any write has not been
// refused. The caller holds g.mu and appendMu.
func (c *Coordinator) admitLocked(g *WriteGroup, rec *pending) (admitted bool) {
	g.unit = rec.units
	for _, w := range g.writes {
		named := w.RequestID.Named()
		if named && !rec.isNew(w, c.line.ids) {
			admitted = admitted || w.Err == nil
			continue
		}
		reads := g.reads
		if w.Read != nil {
			reads = c.readsOfLocked(w.Read)
		}
		if reads != nil {
			if w.Err = c.overtakenLocked(reads, g, rec); w.Err != nil {
				continue
			}
		}
		if named {
			rec.addNamed(identifiedUnit{requestIDOf(w.RequestID), w.RequestID.Content, rec.units})
		}
		if g.batch != nil {
			ops := g.batch.Ops()
			for i := range ops {
				rec.note(&ops[i], keyhash.Sum(ops[i].Key))
			}
			rec.ops += len(ops)
			rec.together = rec.together || len(ops) > 1
		} else {
			rec.note(&w.Op, w.Hash)
			rec.ops++
		}
		rec.units++
		rec.level = max(rec.level, g.level)
		admitted = true
	}
	return admitted
}

// encode lays out the writes that were admitted.
func (g *WriteGroup) encode(rec *pending) {
	unit := g.unit
	for _, w := range g.writes {
		if w.Deduplicated || w.Err != nil {
			continue
		}
		if g.batch != nil {
			ops := g.batch.Ops()
			id := w.RequestID
			for i := range ops {
				rec.encoder.Op(unit, id, &ops[i])
				id.Content = 0 // once in a section is enough
			}
		} else {
			rec.encoder.Op(unit, w.RequestID, &w.Op)
		}
		unit++
	}
}

// decide gives every write of the group its answer and counts the group off.
// base is the first number of the record; err is nil if the writes happened.
func (g *WriteGroup) decide(base kv.SeqNum, err error) {
	if call := g.settle(base, err); call != nil {
		call.Decided(g.trace, err) // the caller may use g again from here on
	}
}

// settle gives every write its answer and returns the call to tell, if this is
// the first time and the caller is still there.
func (g *WriteGroup) settle(base kv.SeqNum, err error) *Call {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.abandoned || g.decided {
		return nil
	}
	g.decided = true
	next := base + kv.SeqNum(g.unit)
	for _, w := range g.writes {
		switch {
		case w.Err != nil: // was not admitted
		case err != nil:
			w.Version, w.Deduplicated, w.Err = 0, false, err
		case !w.Deduplicated:
			w.Version = next
			next++
		case w.Version&inThisRecord != 0:
			w.Version = base + w.Version&^inThisRecord
		}
	}
	return g.call
}

// retract takes a group back out of a record that the log has not taken, so that it can
// be laid out again.
func (g *WriteGroup) retract() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.abandoned {
		return
	}
	g.trace, g.entered = nil, false
	for _, w := range g.writes {
		w.Version, w.Deduplicated, w.Err = 0, false, nil
	}
}

// abandon gives the group up: its caller will not look again. The writes that
// are not decided yet get cause as their error, with kv.ErrUncertain if they are in a
// record; those that were refused keep their error. It returns how far they are.
func (g *WriteGroup) abandon(cause error) *trace.Batch {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.abandoned = true
	if g.decided {
		return nil
	}
	err := cause
	if g.entered {
		err = fmt.Errorf("%w: %w", kv.ErrUncertain, cause)
	}
	for _, w := range g.writes {
		if w.Err == nil {
			w.Version, w.Deduplicated, w.Err = 0, false, err
		}
	}
	return g.trace
}
