package engine

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/event"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// disk is the state of the disk below the store.
//
// The store becomes read-only when less than Options.LowDiskBytes is free, and at once when
// the log, a flush, a compaction or the clock gets an error that the disk has no space.
// Puts are then refused, with the figures; reads continue, and so do deletes as long as the
// log has space. When the space below the mark runs out too, the ballast is given back, so
// that the deletes, flushes and compactions that free space can proceed.
//
// The store becomes writable by itself, on a tick of the maintenance loop, when a quarter
// more than the mark is free in addition to the ballast, the log has reserved space, and
// the ballast exists again.
//
// A file system that is itself read-only (EROFS) is handled in the same way, except that
// deletes are refused too and nothing is attempted: see ReadOnlyCause. If the log or a
// manifest meets it first, the store fails, as after any of their errors, since a record
// may be half written. Open then finds the file system read-only.
type disk struct {
	free atomic.Uint64

	wake chan struct{} // capacity 1: space was refused

	mu struct {
		sync.Mutex
		cause  error     // why space was refused since watchDisk last ran; nil: it was not
		begun  bool      // the listener was told that the store is read-only
		since  time.Time // when it was told
		reason string
		left   time.Time     // when the store last became writable
		hold   time.Duration // how long the store stays read-only at least
	}
	ballast *ballast // used by attempts of the maintenance loop, one at a time

	attempting atomic.Bool // see attempt
	deletes    atomic.Bool // clients deleted since the last attempt to free space
	freeing    atomic.Bool // such an attempt is in progress
	clearing   atomic.Bool // clients deleted since the store became read-only: see clientsFreeSpace
	// unwritable: the file system is read-only, so deletes are refused too and
	// maintenance changes no file.
	unwritable    atomic.Bool
	foundReadOnly bool // every tick since some tick found it so; of the maintenance loop
	starved       int  // ticks in a row on which the last space did not suffice; of the maintenance loop
}

// openDisk finds the ballast, and gives it back if the disk is so full that recovery may
// need the space. If asked does not set the size of log segments, it chooses one that fits
// the disk.
func (e *Engine) openDisk(asked *Options) (err error) {
	if e.opts.ReadOnly {
		usage, err := e.opts.FS.Usage(e.dir)
		e.disk.free.Store(usage.Free)
		return err
	}
	if e.disk.ballast, err = openBallast(e.opts.FS, descriptor.BallastPath(e.dir), e.opts.LowDiskBytes); err != nil {
		return err
	}
	usage, err := e.opts.FS.Usage(e.dir)
	if err != nil {
		return fmt.Errorf("look how full the disk is: %w", err)
	}
	e.disk.free.Store(usage.Free)
	e.disk.ballast.bound(usage)
	if asked.SegmentBytes == 0 {
		e.opts.SegmentBytes = fitSegments(e.opts.SegmentBytes, usage)
		if asked.logBytes == 0 {
			e.opts.logBytes = e.opts.defaultLogBytes()
		}
	}
	if usage.Free < e.opts.LowDiskBytes {
		e.readOnly.Store(true)
		e.giveBallastBack()
	}
	return nil
}

// spaceRefused makes the store read-only because a write of a file was refused, and wakes
// the maintenance loop.
func (e *Engine) spaceRefused(err error) {
	e.disk.mu.Lock()
	e.disk.mu.cause = err
	if vfs.IsReadOnly(err) {
		e.disk.unwritable.Store(true)
	}
	e.readOnly.Store(true)
	e.disk.mu.Unlock()
	select {
	case e.disk.wake <- struct{}{}:
	default:
	}
}

// watchDisk decides whether the store takes writes. Only a tick may make it writable, so
// that the state changes at most once a tick.
func (e *Engine) watchDisk(tick bool) {
	usage, err := e.opts.FS.Usage(e.dir)
	if err != nil {
		e.backgroundError(fmt.Errorf("look how full the disk is: %w", err))
		return
	}
	e.disk.free.Store(usage.Free)
	d := &e.disk
	d.mu.Lock()
	cause := d.mu.cause
	d.mu.cause = nil
	d.mu.Unlock()
	unwritable := ReadOnlyCause(e.opts.FS, e.dir)
	d.unwritable.Store(unwritable != nil)
	switch {
	case unwritable != nil:
		cause = unwritable
		if e.log != nil {
			e.log.Refuse(unwritable)
		}
	case cause == nil && e.log != nil:
		// The log refuses records until Reserve succeeds, also after a refusal that it
		// did not report through NoSpace: during recovery, or for a mark.
		cause = e.log.Refused()
	}
	if !e.readOnly.Load() {
		switch {
		case cause != nil, usage.Free < e.opts.LowDiskBytes:
			e.readOnly.Store(true)
		case usage.Free >= e.resumeAt() && d.ballast.missing() > 0:
			e.attempt(e.keepBallast)
			return
		default:
			return
		}
	}
	if unwritable != nil {
		// A write in progress may meet it too, and the store then fails. So the listener
		// is told on the second tick.
		if tick && d.foundReadOnly {
			e.tellReadOnly(cause)
		}
		d.foundReadOnly = d.foundReadOnly || tick
		return
	}
	d.foundReadOnly = false
	e.tellReadOnly(cause)
	switch {
	case tick && usage.Free >= e.resumeAt() && e.held() &&
		e.attempt(func() bool { return e.resumeLog() && e.keepBallast() }):
		if e.allowWrites() {
			e.tellWritable()
			e.scheduler.retry()
		}
	default:
		needed := cause != nil || usage.Free < uint64(d.ballast.size)/2
		if tick {
			d.countStarved(usage)
		}
		release, all := tick && d.starved > 0, tick && d.starved > 0 && d.starved%starvedTicks == 0
		e.attempt(func() bool {
			if needed {
				e.giveBallastBack()
			}
			if release {
				e.releaseLog(all)
			}
			return tick && !all && e.resumeLog()
		})
		if tick {
			e.freeSpace()
		}
	}
}

// starvedTicks is after how many ticks the log gives up even the space that it keeps for
// deletes, until the next tick. Guessed: clients have deleted most of what they will.
const starvedTicks = 3

// countStarved counts a tick of the maintenance loop on which clients have deleted and a
// flush still has no space. The log's reserve is then the last space there is.
func (d *disk) countStarved(usage vfs.Usage) {
	if usage.Free < minBallast && d.ballast.have.Load() == 0 && d.deletes.Load() {
		d.starved++
	} else {
		d.starved = 0
	}
}

// attemptTime is how long the maintenance loop waits for an attempt. Guessed: longer than
// a reservation takes on a working disk.
const attemptTime = 100 * time.Millisecond

// attempt calls f, which may block as long as the disk does, on a goroutine of its own and
// returns its result. It returns false if f has not returned after attemptTime, and, without
// a call of f, while an earlier f has not returned. f continues, so a later tick finds its
// work done. Only the maintenance loop calls attempt.
func (e *Engine) attempt(f func() bool) bool {
	if e.disk.attempting.Swap(true) {
		return false
	}
	answer := make(chan bool, 1)
	e.maintenance.done.Go(func() {
		defer e.events.Guard()
		ok := f()
		e.disk.attempting.Store(false)
		answer <- ok
	})
	limit := time.NewTimer(attemptTime)
	defer limit.Stop()
	select {
	case ok := <-answer:
		return ok
	case <-limit.C:
		return false
	}
}

// allowWrites makes the store writable, unless space was refused meanwhile, and reports
// whether it did.
func (e *Engine) allowWrites() bool {
	e.disk.mu.Lock()
	defer e.disk.mu.Unlock()
	if e.disk.mu.cause != nil {
		return false // spaceRefused has woken the maintenance loop
	}
	e.readOnly.Store(false)
	return true
}

// fitSegments bounds the size of log segments by the size of the disk, since the log keeps
// a few of them even if everything is flushed.
func fitSegments(bytes int64, usage vfs.Usage) int64 {
	const share, least = 4 * ballastShare, 1 << 20
	return min(bytes, max(int64(min(usage.Total/share, 1<<40)), least))
}

// held reports whether the store has been read-only for as long as hold asks.
func (e *Engine) held() bool {
	e.disk.mu.Lock()
	defer e.disk.mu.Unlock()
	return time.Since(e.disk.mu.since) >= e.disk.mu.hold
}

// resumeAt returns how many bytes must be free for the store to become writable.
func (e *Engine) resumeAt() uint64 {
	return e.opts.LowDiskBytes + e.opts.LowDiskBytes/4 + uint64(e.disk.ballast.missing())
}

// resumeLog resumes a suspended log and reserves space for it, and reports whether it could.
func (e *Engine) resumeLog() bool {
	if e.log == nil {
		return true
	}
	err := e.log.Resume()
	if err == nil {
		err = e.log.Reserve()
	}
	if err != nil {
		e.reportDisk(fmt.Errorf("reserve space for the log: %w", err))
	}
	return err == nil
}

// reportDisk reports an error of maintenance, except that the disk cannot be written: the
// store is then read-only, which is reported separately.
func (e *Engine) reportDisk(err error) {
	if err != nil && !vfs.CannotWrite(err) {
		e.backgroundError(err)
	}
}

// keepBallast makes the ballast unless it exists, and reports whether it exists now.
func (e *Engine) keepBallast() bool {
	err := e.disk.ballast.make()
	e.reportDisk(err)
	return err == nil
}

// releaseLog makes the log give back reserved space that it does not need, or all, so that
// flushes and compactions have a little space on a full disk.
func (e *Engine) releaseLog(all bool) {
	if e.log == nil {
		return
	}
	gave, err := e.log.Release(all)
	if e.log.Err() == nil {
		e.reportDisk(err)
	}
	if gave {
		e.scheduler.retry()
	}
}

func (e *Engine) giveBallastBack() {
	gave, err := e.disk.ballast.giveBack()
	e.reportDisk(err)
	if gave && e.scheduler != nil {
		e.scheduler.retry()
	}
}

// freeSpace seals memtables; if clients deleted since the last attempt, it also starts one
// attempt to flush and compact everything, and to trim the log. Compactions need space
// themselves, so an attempt that fails is repeated.
func (e *Engine) freeSpace() {
	for _, p := range e.partitions {
		if _, unflushed := p.UnflushedFrom(); unflushed {
			p.Seal()
		}
	}
	if !e.disk.deletes.Load() || e.disk.freeing.Swap(true) {
		return
	}
	e.disk.deletes.Store(false)
	e.scheduler.group.Go(func() {
		defer e.events.Guard()
		defer e.disk.freeing.Store(false)
		for _, p := range e.partitions {
			err := p.FlushAll(e.scheduler.ctx)
			if err == nil {
				e.wakeMaintenance()
				err = p.CompactAll(e.scheduler.ctx)
			}
			if err == nil {
				continue
			}
			e.disk.deletes.Store(true)
			if !errors.Is(err, kv.ErrReadOnly) && e.scheduler.ctx.Err() == nil {
				e.reportDisk(fmt.Errorf("free space: %w", err))
			}
		}
	})
}

// diskFull reports whether the store takes no puts for want of space.
func (e *Engine) diskFull() bool { return e.readOnly.Load() && !e.disk.unwritable.Load() }

// lastSpace reports whether the disk was too full for a flush when it was last looked at. Clients can
// do nothing but delete then.
func (e *Engine) lastSpace() bool { return e.diskFull() && e.disk.free.Load() < minBallast }

// clientsFreeSpace reports whether clients deleted since the store became read-only. If so
// the log is not kept for the request ids of writes: see trimLog. Only the maintenance loop
// calls it.
func (e *Engine) clientsFreeSpace() bool {
	if !e.readOnly.Load() {
		e.disk.clearing.Store(false)
	}
	return e.disk.clearing.Load()
}

// readOnlyError returns why the store is read-only, with figures.
func (e *Engine) readOnlyError() *kv.ReadOnlyError {
	if e.unwritable != nil {
		return &kv.ReadOnlyError{Free: e.disk.free.Load(), Reason: openedReadOnly}
	}
	err := &kv.ReadOnlyError{Free: e.disk.free.Load(), Resume: e.resumeAt()}
	e.disk.mu.Lock()
	err.Reason = e.disk.mu.reason
	e.disk.mu.Unlock()
	switch {
	case err.Reason == "" && e.disk.unwritable.Load(): // the listener was not told yet
		err.Reason = readOnlyDisk
	case err.Reason == "":
		err.Reason = lowDisk
	}
	if err.Reason == readOnlyDisk {
		err.Resume = 0
	}
	return err
}

// refusal returns the error of a write for which the log has no space.
func (e *Engine) refusal(cause error) error {
	why := e.readOnlyError()
	switch {
	case vfs.IsReadOnly(cause):
		why.Reason, why.Resume = readOnlyDisk, 0
	case vfs.IsNoSpace(cause):
		why.Reason = fullDisk
	}
	return fmt.Errorf("%w: %w", why, cause)
}

const (
	lowDisk      = "the disk is nearly full"
	fullDisk     = "the disk is full"
	readOnlyDisk = "the file system of the data directory has become read-only: repair it, or mount it read-write; writes then resume by themselves"
	// openedReadOnly is the reason if the file system was read-only when the store was opened.
	openedReadOnly = "the file system of the data directory is read-only: repair it, or mount it read-write, then restart the server"
)

// tellReadOnly tells the listener that the store is read-only, once until tellWritable.
func (e *Engine) tellReadOnly(cause error) {
	d := &e.disk
	d.mu.Lock()
	// The listener is also told if the file system becomes read-only while the disk is full.
	told := d.mu.begun && (d.mu.reason == readOnlyDisk || !vfs.IsReadOnly(cause))
	if !d.mu.begun {
		d.mu.begun, d.mu.since, d.mu.reason = true, time.Now(), lowDisk
		// Free space may not be usable by this user or for this kind of write. The store
		// must not change its state every second because of it.
		if time.Since(d.mu.left) < longPause/2 {
			d.mu.hold = min(max(2*d.mu.hold, housekeepingEvery), longPause)
		} else {
			d.mu.hold = 0
		}
	}
	switch {
	case vfs.IsReadOnly(cause):
		d.mu.reason = readOnlyDisk
	case vfs.IsNoSpace(cause):
		d.mu.reason = fullDisk
	case d.mu.reason == readOnlyDisk, // no longer
		cause == nil && d.mu.reason == fullDisk && d.free.Load() >= e.opts.LowDiskBytes/2:
		d.mu.reason = lowDisk
	}
	d.mu.Unlock()
	if !told && e.events != nil && e.events.ReadOnly != nil {
		why := e.readOnlyError()
		e.events.ReadOnly(event.ReadOnly{Begin: true, Reason: why.Reason, Free: why.Free, Resume: why.Resume, Cause: cause})
	}
}

func (e *Engine) tellWritable() {
	d := &e.disk
	d.mu.Lock()
	took := time.Since(d.mu.since)
	told := d.mu.begun
	d.mu.begun, d.mu.reason, d.mu.left = false, "", time.Now()
	d.mu.Unlock()
	if told && e.events != nil && e.events.ReadOnly != nil {
		e.events.ReadOnly(event.ReadOnly{Free: e.disk.free.Load(), Resume: e.resumeAt(), Took: took})
	}
}

// ReadOnlyCause returns the error that shows that the file system of a store is read-only,
// nil if it is writable or there is no store. It tries to open STORE for writing, since
// statfs(2) does not show that a file system became read-only after an error. Errors of
// other kinds do not count.
func ReadOnlyCause(fsys vfs.FS, dir string) error {
	f, err := fsys.OpenReadWrite(descriptor.Path(dir))
	if err == nil {
		err = f.Close()
	}
	if !vfs.IsReadOnly(err) {
		return nil
	}
	return err
}

// ReadOnly returns why the store takes no puts at present, as a *kv.ReadOnlyError, or nil
// if it does.
func (e *Engine) ReadOnly() error {
	defer e.events.Guard()
	if !e.readOnly.Load() {
		return nil
	}
	return e.readOnlyError()
}
