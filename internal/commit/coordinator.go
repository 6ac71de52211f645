package commit

import (
	"sync"
	"sync/atomic"

	"github.com/kvd-db/kvd/internal/batcher"
	"github.com/kvd-db/kvd/internal/histogram"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/partition"
	"github.com/kvd-db/kvd/internal/record"
	"github.com/kvd-db/kvd/internal/trace"
	"github.com/kvd-db/kvd/internal/wal"
)

// Log is the log that the coordinator's records go to. A node's own log implements it,
// and a replicated one can: see the package comment.
type Log interface {
	// Append takes the record in, in memory, and gives it the next sequence
	// numbers, one for each unit. The payload is copied. The caller holds the
	// appendMu of every coordinator that the record concerns. Numbers and positions grow
	// from call to call. Append does no I/O and waits for nothing: if it returns
	// wal.ErrNoRoomYet, the caller calls it again after OnRoom has woken it. Unless t is
	// nil, the log sets its times in t, as far as the level waits for them.
	Append(payload []byte, units uint32, level kv.Durability, w wal.Waker, t *trace.Batch) (kv.SeqNum, wal.Pos, error)
	// Flush makes the log write what was appended, and sync what asks for it. It may write on
	// this goroutine, and does not wait for a sync of what it writes.
	Flush()
	// FlushOrSync is Flush for a caller that waits for one of the records: it may sync on
	// this goroutine.
	FlushOrSync()
	// Reached returns the position up to which every record has a durability. The waker
	// of a record is woken after Reached has passed it at its level.
	Reached(level kv.Durability) wal.Pos
	// OnRoom wakes w, once, when Append may find room.
	OnRoom(w wal.Waker)
	// Err returns what stopped the log for good, nil while it works.
	Err() error
}

// Tree is the tree that the coordinator's records are applied to. One goroutine at a
// time, the leader, calls its methods, except for Changed.
type Tree interface {
	// Insert puts the tree's operations of a record into the active memtable, where no
	// reader sees them yet. Records come in the order of the log.
	Insert(r partition.Record)
	// Expect is called with a record that lies in several trees after it was inserted
	// here: readers see it once Joint.Show has been called, before Publish.
	Expect(j *partition.Joint)
	// Publish makes every number up to this one visible. It never goes back.
	Publish(upTo kv.SeqNum)
	// ShowEarly sets which numbers beyond the published ones readers of single keys see.
	ShowEarly(set partition.Early)
	// SealIfDue seals the active memtable if it is full or Seal was called.
	SealIfDue()
	// Changed returns a *kv.ConflictError if the memtables have something newer than what
	// was read, partition.ErrStale if they do not reach back that far, or why the tree is closed.
	// It does no I/O.
	Changed(r *partition.Reads) error
}

// Applied is told of numbers that have become visible.
type Applied interface {
	// Applied says that units numbers from base on are visible to readers. Each
	// number is reported once, over all partitions.
	Applied(base kv.SeqNum, units uint32)
}

// Options of a Coordinator. All are required.
type Options struct {
	ID      int // of the partition, as records name it
	Tree    Tree
	Applied Applied

	// Orchestrator leads it. New is called for all of its members before Start of one of them,
	// and Start of all before Close of one.
	Orchestrator *Orchestrator

	Writes batcher.Policy // how micro-batches form

	// InflightBytes bounds the records that are in the log and not yet in the
	// memtable. Beyond it the leader stops taking, the inbox fills, and callers wait
	// there.
	InflightBytes int64

	// RequestIDs are the request ids that are remembered, which all coordinators of a store have in
	// common.
	RequestIDs *RequestWindow

	// Now returns the time at the end of the log by the store's clock, in Unix milliseconds: a
	// condition holds if it does at that time. It also returns the number of the record by which it
	// is that time, 0 if there is none: once that number is visible, so is the time. Neither goes
	// back. Now is called under the appendMu of the coordinator: see BetweenRecords.
	Now func() (now uint64, from kv.SeqNum)
}

// Clocked returns a Now of a store to which no record of its log says what time it is.
func Clocked(now func() uint64) func() (uint64, kv.SeqNum) {
	return func() (uint64, kv.SeqNum) { return now(), 0 }
}

// Coordinator forms the micro-batches of one partition, appends them to the log and
// applies them to the partition's tree. Safe for concurrent use, unless a method says
// otherwise.
type Coordinator struct {
	opts Options
	tree Tree
	log  Log

	inbox        *batcher.Inbox[*WriteGroup]
	orchestrator *Orchestrator
	place        int // among its members

	// appendMu is held while a record is checked and appended, so that records enter
	// the line in the order of the log. A proposal over several partitions holds the
	// appendMu of all of them, locked in ascending order.
	appendMu sync.Mutex
	line     line            // guarded by appendMu
	reads    partition.Reads // likewise: memory of readsOfLocked
	written  writtenKeys     // likewise: of the record that is being laid out

	inflightBytes atomic.Int64
	noRoom        atomic.Bool // the log has no room for what was taken; roomWaker ends it

	// Of the leader.
	inRound   bool          // of the orchestrator
	appended  bool          // in this round, and the log was not flushed since
	progress  bool          // there was something to do in this round
	ended     bool          // it was closed, and everything is decided
	taken     []*WriteGroup // from the inbox, not yet in the log
	spare     []*pending
	early     partition.Early // as the tree has it
	published kv.SeqNum       // likewise

	closing atomic.Bool
	started atomic.Bool
	stopped chan struct{} // closed when it has ended
	stats   writeCounters
}

// line is the records that are in the log and not yet applied, and what decides on the
// next ones.
type line struct {
	inflight []*pending  // in the order of the log
	levels   levelCounts // of inflight
	marks    []*readMark // in the order of the log
	last     kv.SeqNum   // newest number in this partition
	ids      *requestIDs
}

// New returns a Coordinator that has nothing to do. Remember tells it of the
// writes in the log, then Start begins to serve.
func New(o Options) *Coordinator {
	c := &Coordinator{opts: o, tree: o.Tree, orchestrator: o.Orchestrator, stopped: make(chan struct{})}
	c.orchestrator.add(c)
	c.line.ids = newRequestIDs(o.RequestIDs)
	c.inbox = batcher.NewInbox[*WriteGroup](o.Writes, c.Wake)
	return c
}

// ID returns the id of the partition.
func (c *Coordinator) ID() int { return c.opts.ID }

// Remember notes the request id of an operation that the log has, if it has one. The operation is in
// the first section of its record. (The partition of that remembers the ids of the record.) Records come
// in the order of the log. Before Start only.
func (c *Coordinator) Remember(base kv.SeqNum, op *record.Op) {
	if !op.RequestID.Named() {
		return
	}
	c.appendMu.Lock()
	defer c.appendMu.Unlock()
	id := requestIDOf(op.RequestID)
	if _, _, known := c.line.ids.find(id); !known {
		c.line.ids.add(id, base+kv.SeqNum(op.Unit), op.RequestID.Content)
	}
}

// Inherit takes over the request ids of the tree's previous coordinator, which has been
// closed after the term of its log ended: those of all writes that were applied, and of no
// other. Before Start only.
func (c *Coordinator) Inherit(from *Coordinator) {
	from.appendMu.Lock()
	defer from.appendMu.Unlock()
	c.line.ids, from.line.ids = from.line.ids, newRequestIDs(from.opts.RequestIDs)
}

// Start begins to serve. The log was replayed from number first on, and up to
// last; everything in it is visible.
func (c *Coordinator) Start(log Log, first, last kv.SeqNum) {
	c.log = log
	c.published = last
	c.line.last = last
	c.line.ids.startAfter(first - 1)
	c.orchestrator.start(c)
}

// Close refuses what comes from now on and waits until everything taken is decided. The
// log must still be working, or have failed. The tree is used no more. Idempotent.
func (c *Coordinator) Close() {
	c.inbox.Close() // before closing is set, after which the orchestrator may have ended
	if c.closing.Swap(true) {
		return
	}
	c.Wake()
	if c.started.Load() {
		<-c.stopped
	}
}

// Stopped is closed once Close has been called and the leader will do nothing more.
func (c *Coordinator) Stopped() <-chan struct{} { return c.stopped }

// closedError says why nothing is taken any more.
func (c *Coordinator) closedError() error {
	if c.started.Load() {
		if err := c.log.Err(); err != nil {
			return err
		}
	}
	return kv.ErrClosed
}

// writeCounters are what a coordinator counts as it goes.
type writeCounters struct {
	writes     histogram.Powers // operations of each micro-batch
	conflicts  atomic.Uint64
	duplicates atomic.Uint64
	early      atomic.Uint64
}

// WriteStats is what a coordinator has done since it was started, and what waits now. The
// fields are read one after the other, not at one instant.
type WriteStats struct {
	Writes histogram.PowerCounts // operations of each micro-batch

	// How long the first group of a micro-batch waited until it was taken, in microseconds: see
	// batcher.SampleEvery.
	WriteWaits histogram.PowerCounts

	Conflicts  uint64 // proposals and writes refused because something they read had changed
	Duplicates uint64 // writes with a request id that were applied before and not again
	Early      uint64 // records acknowledged before a stronger one that precedes them in the log

	QueueOps, QueueBytes int // waiting in the inbox
}

// Stats returns the coordinator's counters.
func (c *Coordinator) Stats() WriteStats {
	s := WriteStats{
		Writes: c.stats.writes.Counts(), WriteWaits: c.inbox.Waits(),
		Conflicts: c.stats.conflicts.Load(), Duplicates: c.stats.duplicates.Load(), Early: c.stats.early.Load(),
	}
	s.QueueOps, s.QueueBytes = c.inbox.Len()
	return s
}
