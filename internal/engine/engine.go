package engine

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvd-db/kvd/internal/backup"
	"github.com/kvd-db/kvd/internal/commit"
	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/event"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/partition"
	"github.com/kvd-db/kvd/internal/sstable"
	"github.com/kvd-db/kvd/internal/wal"
)

// Engine is an open store. Safe for concurrent use.
type Engine struct {
	dir        string
	opts       Options
	descriptor descriptor.Descriptor
	lock       io.Closer
	events     *event.Listener

	partitions  []*partition.Partition
	own         writers          // of a node that is alone
	log         *wal.Log         // its own; nil if the store is opened read-only, or a member of a cluster
	member      *member          // nil: the node is alone
	converts    *conversion      // the store becomes that of a member; nil: it does not
	now         func() uint64    // the time of readers
	archiver    *backup.Archiver // nil: the log is not archived
	cache       *sstable.Cache
	clock       *clock
	sequencer   *sequencer
	requestIDs  *commit.RequestWindow
	snapshots   *snapshots
	checkpoints checkpoints
	scrubs      scrubs
	damages     damages
	scans       scans
	budget      *budget
	across      *inflight // batches over several partitions
	large       *inflight // calls with large writes
	scheduler   *scheduler
	singles     sync.Pool // of *single
	waiters     waiters
	company     commit.Company

	places    places
	misplaced atomic.Bool // see checkPlaces
	closed    atomic.Bool
	atRest    atomic.Bool  // little was written lately: see keepSpace
	hurries   atomic.Int32 // callers that wait for flushes: see rests
	readOnly  atomic.Bool  // the disk is nearly full, or the file system is read-only
	disk      disk

	unwritable error // why the store cannot be written until it is opened again; nil: it can

	failure struct {
		once sync.Once
		ch   chan struct{} // closed when the store failed
		err  error         // set before ch is closed
	}
	maintenance struct {
		wake  chan struct{} // capacity 1: trim the log now
		stop  chan struct{}
		done  sync.WaitGroup
		span  spanMarks
		space spaceState
	}
	recovery   Recovery
	surplus    []string  // directories of partitions that the creation does not take over: see writeDescriptor
	firstSeq   kv.SeqNum // the first number that was replayed, or the next one if none was
	replayFrom kv.SeqNum // the first number that did not fit into the budget; 0: all fitted
	epoch      uint64    // random id of this opening, never 0
}

// Recovery reports what Open found and how long it took.
type Recovery struct {
	wal.Recovery
	Created bool // Open created the store
	Took    time.Duration
}

// Close refuses new calls, finishes accepted writes, stops background work, and syncs and
// closes the log. What is in memtables stays in the log, and the next Open replays it.
// Idempotent; the first call returns the errors of closing, and why the store failed if it
// did (see Failed).
func (e *Engine) Close() error {
	defer e.events.Guard()
	if e.closed.Swap(true) {
		return nil
	}
	close(e.maintenance.stop)
	e.maintenance.done.Wait()
	e.scrubs.close()
	var ended error
	if e.member != nil {
		ended = e.member.close() // while memtables are still flushed, for which it may wait
	}
	e.scheduler.close()
	e.checkpoints.close()
	ended = errors.Join(ended, e.scans.end(kv.ErrClosed))
	e.closeCoordinators()
	if e.log != nil && e.log.Err() != nil {
		e.fail(e.log.Err()) // as the maintenance loop did: what the log has lost never becomes visible
	}
	err := errors.Join(ended, e.tearDown())
	if failed := e.Err(); !errors.Is(err, failed) {
		err = errors.Join(failed, err)
	}
	return err
}

// tearDown closes everything that is open, also after a failed Open.
func (e *Engine) tearDown() error {
	errs := []error{e.closePartitions()}
	if e.archiver != nil {
		e.archiver.Close()
	}
	if e.log != nil {
		errs = append(errs, e.log.Close())
	}
	if e.member != nil {
		errs = append(errs, e.member.log.Close())
	}
	switch {
	case e.clock == nil:
	case e.misplaced.Load(), e.opts.ReadOnly, e.member != nil:
		e.clock.stop()
	default: // no reader uses the clock any more
		errs = append(errs, e.clock.close())
	}
	return errors.Join(append(errs, e.lock.Close())...)
}

// closePartitions closes all coordinators before the first partition: a proposal of one partition
// may depend on what was read in another.
func (e *Engine) closePartitions() error {
	e.closeCoordinators()
	var errs []error
	for _, p := range e.partitions {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

// closeCoordinators returns once all that the node's own coordinators have taken is decided. Idempotent.
func (e *Engine) closeCoordinators() {
	for _, c := range e.own.coordinators {
		c.Close()
	}
}

// Limits returns what one caller may send.
func (e *Engine) Limits() kv.Limits { return e.opts.limits }

// Now returns the time of the store's clock, in Unix milliseconds: a key put with expiry
// Now() + t is present for t. Once the store has accepted a key with an expiry the clock
// never goes back, not even across a restart. If the machine's clock jumps, it follows
// gradually.
func (e *Engine) Now() uint64 {
	defer e.events.Guard()
	if e.member != nil {
		return max(e.clock.Now(), e.now()) // what the leader may set the clock to
	}
	return e.clock.Now()
}

// Descriptor returns the fixed properties of the store.
func (e *Engine) Descriptor() descriptor.Descriptor { return e.descriptor }

// Recovery returns what Open found.
func (e *Engine) Recovery() Recovery { return e.recovery }

// Flush writes every memtable to a delta and returns when all are on disk.
func (e *Engine) Flush(ctx context.Context) error {
	defer e.events.Guard()
	if e.opts.ReadOnly {
		return errOpenedToRead
	}
	defer e.hurry()()
	for _, p := range e.partitions {
		if err := p.FlushAll(ctx); err != nil {
			return err
		}
	}
	e.wakeMaintenance()
	return nil
}

// CompactAll flushes, then compacts everything into the base, which afterwards holds one
// version of each key and no tombstone, as far as snapshots and damaged tables allow.
func (e *Engine) CompactAll(ctx context.Context) error {
	defer e.events.Guard()
	if e.opts.ReadOnly {
		return errOpenedToRead
	}
	defer e.hurry()()
	for _, p := range e.partitions {
		if err := p.FlushAll(ctx); err != nil {
			return err
		}
		if err := p.CompactAll(ctx); err != nil {
			return err
		}
	}
	return nil
}

// RewriteLog flushes, and then deletes all of the log but the segment that it goes on in, so
// that no file of the log has an older format. Request ids of writes that are deleted with it
// are forgotten: one that is sent again gets kv.ErrUncertain.
func (e *Engine) RewriteLog(ctx context.Context) error {
	defer e.events.Guard()
	if err := e.Flush(ctx); err != nil || e.member != nil {
		return err
	}
	for {
		err := e.log.Reclaim(e.sequencer.Visible())
		if !errors.Is(err, wal.ErrNoRoomYet) {
			return err
		}
		if err := e.log.AwaitRoom(ctx); err != nil {
			return err
		}
	}
}
