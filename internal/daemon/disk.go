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
	// diskTick is how often the operations under way are looked at.
	diskTick = 250 * time.Millisecond
	// slowDisk is from which age on an operation makes the service not ready. A
	// healthy disk takes milliseconds.
	slowDisk = time.Second
)

// diskWatch watches every operation on the file system. One that takes over a
// second is named in the log and makes the service not ready; one that takes over
// the limit ends the process, since its callers wait for it and whether the disk
// will ever answer cannot be known.
//
// It waits for no operation, and counts at most two ticks for the time between
// two looks, so a pause of the process (SIGSTOP, a migration of the machine) makes
// no operation older.
type diskWatch struct {
	fs    *vfs.Watched
	limit time.Duration
	log   *zap.Logger
	stuck chan error // capacity 1: an operation has taken longer than limit
	// changed is called when slow becomes nil, or no longer is. It does not wait for
	// the disk.
	changed func()

	slow     atomic.Pointer[vfs.Operation] // the oldest over slowDisk; nil: there is none
	episodes atomic.Uint64                 // how often slow became not nil

	longest time.Duration // of the episode, of the goroutine that looks
	stop    chan struct{}
	done    sync.WaitGroup
}

func newDiskWatch(fsys vfs.FS, limit time.Duration, log *zap.Logger) *diskWatch {
	return &diskWatch{
		fs: vfs.Watch(fsys), limit: limit, log: log, changed: func() {},
		stuck: make(chan error, 1), stop: make(chan struct{}),
	}
}

// start begins to look.
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

// look counts the time since the last look.
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
	if before == nil { // before readiness says so
		d.episodes.Add(1)
		d.longest = 0
		d.log.Warn("the disk does not answer", zap.String("operation", oldest.Kind), zap.String("file", oldest.Name),
			zap.Duration("for", oldest.Age), zap.Int("others_waiting", len(stuck)-1))
	}
	d.longest = max(d.longest, oldest.Age)
	d.slow.Store(&oldest)
	if oldest.Age >= d.limit {
		select {
		case d.stuck <- fmt.Errorf("%w: %s has not returned for %v; look at the disk, then start kvd again",
			ErrDiskStuck, describe(oldest), d.limit):
		default:
		}
	}
	if before == nil {
		d.changed()
	}
}

// check returns why the disk is no reason to be ready, nil if it answers.
func (d *diskWatch) check() error {
	if op := d.slow.Load(); op != nil {
		return fmt.Errorf("%w: %s has not returned for %v", ErrDiskStuck, describe(*op), op.Age.Truncate(time.Second))
	}
	return nil
}

func describe(op vfs.Operation) string { return op.Kind + " of " + op.Name }
