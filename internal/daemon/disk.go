package daemon

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/kvd-db/kvd/internal/vfs"
)

const (
	// diskTick is the interval at which operations in progress are checked.
	diskTick = 250 * time.Millisecond
	// slowDisk is the age from which on an operation makes the service not ready. A
	// healthy disk takes milliseconds.
	slowDisk = time.Second
)

// diskWatch watches every operation on the file system. An operation that takes longer than
// a second is logged and makes the service not ready. One that takes longer than the limit
// ends the process, since its callers wait and the disk may never answer.
//
// diskWatch waits for no operation. It counts at most two ticks between two checks, so a
// pause of the process (SIGSTOP, a migration of the machine) does not age operations.
type diskWatch struct {
	fs    *vfs.Watched
	limit atomic.Int64 // nanoseconds
	log   *zap.Logger
	stuck chan error // capacity 1: an operation has taken longer than limit
	// changed is called when slow becomes nil or ceases to be. It must not wait for the
	// disk.
	changed func()

	slow     atomic.Pointer[vfs.Operation] // the oldest above slowDisk; nil: none
	episodes atomic.Uint64                 // how often slow ceased to be nil

	longest time.Duration // of the episode; used only by the goroutine that checks
	stop    chan struct{}
	done    sync.WaitGroup
}

func newDiskWatch(fsys vfs.FS, limit time.Duration, log *zap.Logger) *diskWatch {
	d := &diskWatch{
		fs: vfs.Watch(fsys), log: log, changed: func() {},
		stuck: make(chan error, 1), stop: make(chan struct{}),
	}
	d.setLimit(limit)
	return d
}

// setLimit changes the limit, also for operations in progress.
func (d *diskWatch) setLimit(limit time.Duration) { d.limit.Store(int64(limit)) }

// start starts the goroutine that checks.
func (d *diskWatch) start() { d.done.Go(d.run) }

func (d *diskWatch) close() {
	close(d.stop)
	d.done.Wait()
}

func (d *diskWatch) run() {
	tick := time.NewTicker(diskTick)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-d.stop:
			return
		case <-tick.C:
		}
		now := time.Now()
		d.look(now.Sub(last))
		last = now
	}
}

// look adds the time since the last check to the age of operations.
func (d *diskWatch) look(elapsed time.Duration) {
	stuck := d.fs.Pass(min(elapsed, 2*diskTick), slowDisk)
	before := d.slow.Load()
	if len(stuck) == 0 {
		if before != nil {
			d.log.Info("the disk answers again", zap.Duration("longest_wait", d.longest))
			d.slow.Store(nil)
			d.changed()
		}
		return
	}
	oldest := stuck[0]
	if before == nil { // logged before readiness changes
		d.episodes.Add(1)
		d.longest = 0
		d.log.Warn("the disk does not answer", zap.String("operation", oldest.Kind), zap.String("file", oldest.Name),
			zap.Duration("for", oldest.Age), zap.Int("others_waiting", len(stuck)-1))
	}
	d.longest = max(d.longest, oldest.Age)
	d.slow.Store(&oldest)
	if limit := time.Duration(d.limit.Load()); oldest.Age >= limit {
		select {
		case d.stuck <- fmt.Errorf("%w: %s has not returned for %v; check the disk, then start kvd again",
			ErrDiskStuck, describe(oldest), limit):
		default:
		}
	}
	if before == nil {
		d.changed()
	}
}

// check returns nil if the disk answers, otherwise the error that makes the service not
// ready.
func (d *diskWatch) check() error {
	if op := d.slow.Load(); op != nil {
		return fmt.Errorf("%w: %s has not returned for %v", ErrDiskStuck, describe(*op), op.Age.Truncate(time.Second))
	}
	return nil
}

func describe(op vfs.Operation) string { return op.Kind + " of " + op.Name }
