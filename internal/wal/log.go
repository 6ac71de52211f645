package wal

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/trace"
)

// Pos is a position in the log since Open, in bytes of records. It grows with every
// record.
type Pos uint64

// Waker is told when Written or Synced, as the durability of its record asks, moves past
// the record, or when the log fails. It may be told more often than that. Neither method
// may block, do I/O, or call a method that writes or syncs the log.
type Waker interface {
	Wake()
	// RunReady is Wake on a goroutine that has nothing more urgent to do. The Waker may do
	// the work that is due on this goroutine, so that no other goroutine has to be woken for
	// it.
	RunReady()
}

// Log is an open commit log. Its methods are safe for concurrent use.
//
// L1. Only the goroutine with the writing role (mu.writing) writes frames, one at a time,
// in the order of their records.
// L2. Only the goroutine with the syncing role (mu.syncing) syncs segments, one at a
// time: first the one that a rotation left, then the active one.
// L3. Written and Synced never pass a record that is not in that state, and do not move
// after the log has failed.
// L4. Once Flush has returned, a goroutine is responsible for each record that is still
// queued: the one with the writing role continues until the queue is empty, and the one
// with the syncing role looks at the queue before it gives up the role, or has the
// syncing goroutine look.
type Log struct {
	opts      Options
	written   atomic.Uint64 // a Pos
	synced    atomic.Uint64 // a Pos
	failure   atomic.Pointer[error]
	failed    chan struct{}     // closed once failure is set
	suspended atomic.Bool       // mu.suspended is set
	found     []*scannedSegment // segments that Open read, for Replay

	poke       chan struct{} // one value: the syncing goroutine should look for work
	stop       chan struct{} // closed by Close
	hurry      atomic.Bool   // the preparation of a segment should stop early
	background sync.WaitGroup
	closing    sync.Once
	closeErr   error

	spare []Waker // memory for mu.waiting; used by the syncing role alone

	reclaiming sync.Mutex // held by Reclaim; taken before mu
	reclaimErr error      // guarded by reclaiming

	mu struct {
		sync.Mutex
		// changed is signalled when writing, syncing, sealed, preparing, closed, the space or
		// the failure changes.
		changed sync.Cond
		closed  bool // set by Close: Append refuses records
		stopped bool // set by Close: no further sync comes

		queue      queue
		space      space
		suspended  *recoveryScan // recovery could not write: what it found; see Resume
		next       kv.SeqNum     // number of the next record
		floor      kv.SeqNum     // the first number given out since Open
		end        Pos           // of the last record appended
		syncedNext kv.SeqNum     // number after the last synced record

		writing   bool      // a goroutine has the writing role
		last      kv.SeqNum // of the records written; changed by the writing role alone
		active    *segment  // changed by the writing role alone
		lastWrite time.Time

		lastSync time.Time // when the last one ended
		syncing  bool      // a goroutine has the syncing role
		syncTo   Pos       // a sync up to here was asked for
		mustSync bool      // something other than a record must be synced
		gather   gathering
		syncedAt address
		sealed   *segment // ended, not yet synced; nil: none
		marked   address  // end of the last mark; no mark is needed while the log ends here
		timing   bool     // the timer of the idle mark runs, or is about to start

		waiting  []Waker        // to wake at the end of the next sync that begins
		awaiting []Waker        // to wake at the end of any sync
		timed    []*trace.Batch // of written records; the next sync that begins sets their Synced

		zeroedWanted bool     // a record asked for a sync since the last rotation
		preparing    bool     // a goroutine is creating prepared
		prepared     *segment // the next segment, zeroed
		preparedFor  uint64   // number of the segment that was active when its preparation began

		nextNum  uint64 // of the next segment
		low      uint64 // lowest segment that must exist
		live     []liveSegment
		holds    int    // while there are some, Reclaim deletes nothing
		archived uint64 // see Archived

		stats Stats // the counts
	}
}

// liveSegment is a segment that has a successor.
type liveSegment struct {
	num   uint64
	bytes int64
	last  kv.SeqNum // its records have at most this number
}

// Append adds a record that takes units consecutive numbers to the open frame. It returns
// the first number and the position after the record. It does no I/O and waits for none;
// the caller calls Flush or FlushOrSync afterwards, after it has released its own locks.
//
// Numbers and positions grow in the order of the calls. A record of kv.DurabilityMemory
// is in the log like any other, but no caller waits for it. At DurabilityMemory and
// DurabilityBuffered w is woken after the record is written, else after it is synced.
// Unless c is nil, the log sets c.Written and c.Synced, as far as the durability asks for
// them, before it counts the record as written or synced.
//
// Ownership: payload is copied. Errors: kv.ErrClosed, kv.ErrTooLarge, kv.ErrOverloaded
// while too many numbers are not synced, kv.ErrReadOnly while the disk has no space for
// the record, ErrNoRoomYet while such space is being reserved (try again after
// AwaitRoom), and Err after a failure; the record is then not in the log. If the log
// fails after Append has returned, the record may or may not be in it.
func (l *Log) Append(payload []byte, units uint32, level kv.Durability, w Waker, c *trace.Batch) (base kv.SeqNum, pos Pos, err error) {
	if units == 0 {
		return 0, 0, fmt.Errorf("%w: record without units", kv.ErrInvalidArgument)
	}
	if len(payload) > maxRecordBytes {
		return 0, 0, fmt.Errorf("%w: record of %d bytes, the commit log takes %d", kv.ErrTooLarge, len(payload), maxRecordBytes)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.makeRoomLocked(recordCost(len(payload))); err != nil {
		return 0, 0, err
	}
	if err := l.admitLocked(units); err != nil {
		return 0, 0, err
	}
	cost := recordCost(len(payload))
	l.mu.space.charged += cost
	base = l.mu.next
	l.mu.next += kv.SeqNum(units)
	l.mu.end += Pos(recordHeaderBytes + len(payload))
	f := l.mu.queue.add(base, units, payload, l.mu.end)
	f.charged += cost
	wakers := &f.early
	switch level {
	case kv.DurabilityMemory:
	case kv.DurabilityBuffered:
		f.urgent = true
	default:
		wakers = &f.late
		l.mu.syncTo = l.mu.end
		l.mu.zeroedWanted = true
		f.asked += units
		l.mu.gather.ask(units)
	}
	*wakers = append(*wakers, w)
	if c != nil && level != kv.DurabilityMemory {
		f.timed = append(f.timed, timed{trace: c, sync: wakers == &f.late})
	}
	if l.mu.next-l.mu.syncedNext > recoveryGap/2 {
		l.mu.syncTo = l.mu.end // see admitLocked
	}
	return base, l.mu.end, nil
}

// admitLocked returns why a record of that many units may not be appended now, nil if it
// may.
func (l *Log) admitLocked(units uint32) error {
	switch {
	case l.Err() != nil:
		return l.Err()
	case l.mu.closed:
		return kv.ErrClosed
	case l.mu.next+kv.SeqNum(units) > kv.MaxSeqNum:
		return fmt.Errorf("%w: all %d sequence numbers are used up", kv.ErrReadOnly, kv.MaxSeqNum)
	case l.mu.next-l.mu.syncedNext+kv.SeqNum(units) > recoveryGap:
		// Recovery skips only recoveryGap numbers: more might be given out twice.
		return &kv.OverloadError{Reason: "unsynced_numbers", RetryAfter: time.Second}
	}
	return nil
}

// End returns the position after everything appended so far.
func (l *Log) End() Pos {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.end
}

// Written returns the position up to which the log is written to the kernel.
func (l *Log) Written() Pos { return Pos(l.written.Load()) }

// Synced returns the position up to which the log is synced to the disk.
func (l *Log) Synced() Pos { return Pos(l.synced.Load()) }

// Reached returns the position up to which all records have the given durability: every
// position at DurabilityMemory, Written at DurabilityBuffered, and Synced at
// DurabilitySync.
func (l *Log) Reached(level kv.Durability) Pos {
	switch level {
	case kv.DurabilityMemory:
		return math.MaxUint64
	case kv.DurabilityBuffered:
		return l.Written()
	default:
		return l.Synced()
	}
}

// Err returns what stopped the log for good, nil while it works. It wraps
// kv.ErrFailed.
func (l *Log) Err() error {
	if err := l.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// Failed returns a channel that is closed when the log fails.
func (l *Log) Failed() <-chan struct{} { return l.failed }

// Fail stops the log for good, as a write that failed would: nothing is acknowledged
// any more.
func (l *Log) Fail(err error) { l.fail(err) }

// fail stops the log for good and wakes all waiting callers, including wakers, which its
// caller has taken off the lists. Only the first failure counts.
func (l *Log) fail(err error, wakers ...[]Waker) {
	err = fmt.Errorf("%w: %w; reopen the store", kv.ErrFailed, err)
	l.mu.Lock()
	first := l.failure.CompareAndSwap(nil, &err)
	if first {
		close(l.failed)
	}
	wakers = append(wakers, l.mu.waiting, l.mu.awaiting)
	l.mu.waiting, l.mu.awaiting = nil, nil
	wakers = append(wakers, l.mu.queue.drain()...)
	l.roomChangedLocked()
	l.mu.Unlock()
	for _, ws := range wakers {
		wakeAll(ws)
	}
	if first && l.opts.Events.Failed != nil {
		l.opts.Events.Failed(err)
	}
}

func wakeAll(ws []Waker) {
	for _, w := range ws {
		w.Wake()
	}
}

func runAllReady(ws []Waker) {
	for _, w := range ws {
		w.RunReady()
	}
}
