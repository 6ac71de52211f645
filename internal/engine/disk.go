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

// disk is what the engine knows of the disk below it.
//
// The store turns read-only when less than Options.LowDiskBytes is free, and at once
// when the log, a flush, a merge or the clock meets a disk without space, however that
// came about. Puts are then refused with the figures; reads go on, and so do deletes, as
// far as the log has space. To let deletes, flushes and merges work that free space,
// the ballast is given back once even the last part below the mark is used up.
//
// It turns writable by itself, on a tick of the keeper, when a quarter more than the mark
// is free besides the ballast, the log has space again, and the ballast is back.
//
// A file system that is read-only itself (EROFS) is served likewise, but that deletes are
// refused too and nothing is tried: see ReadOnlyCause. If the log or a manifest meets it
// first the store fails, as after any error of theirs: a record may be half written.
// Open then finds the file system read-only.
type disk struct {
	free atomic.Uint64

	wake chan struct{} // capacity 1: space was refused

	mu struct {
		sync.Mutex
		cause  error     // why space was refused since the last tick; nil: it was not
		begun  bool      // the listener was told that the store is read-only
		since  time.Time // when
		reason string
		left   time.Time     // when it last ended
		hold   time.Duration // how long it lasts at least
	}
	ballast *ballast // of the keeper's attempts, one at a time

	attempting atomic.Bool // see attempt
	deletes    atomic.Bool // something was deleted since the last attempt to free space
	freeing    atomic.Bool // such an attempt is under way
	clearing   atomic.Bool // something was deleted since the store became read-only: see clientsFreeSpace
	// unwritable: the file system is read-only, so that deletes are refused too and
	// maintenance leaves the files alone.
	unwritable    atomic.Bool
	foundReadOnly bool // by a tick of the keeper, and since then; of the keeper
}

// openDisk finds the ballast, and gives it back if the disk is so full that recovery may
// need it. It chooses, unless that was asked for, segments of the log that fit the disk.
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
		if asked.LogBytes == 0 {
			e.opts.LogBytes = e.opts.logBytes()
		}
	}
	if usage.Free < e.opts.LowDiskBytes {
		e.readOnly.Store(true)
		e.giveBallastBack()
	}
	return nil
}

// spaceRefused makes the store read-only because something could not be written. The
// keeper does the rest.
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

// watchDisk decides whether the store takes writes. Only a tick may end its being
// read-only, so that it does not change more often than that.
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
		e.log.Refuse(unwritable)
	case cause == nil:
		// The log refuses records until Reserve succeeds, also after a refusal that
		// it met on the way and told of in no other way: in recovery, or for a mark.
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
		// A write that is under way may meet it too, and the store then fails. So the
		// listener is told on the second tick.
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
		e.attempt(func() bool {
			if needed {
				e.giveBallastBack()
			}
			// The last of the space, so only for a client that deletes.
			if tick && usage.Free < minBallast && d.ballast.have.Load() == 0 && d.deletes.Load() {
				e.releaseLog()
			}
			return tick && e.resumeLog()
		})
		if tick {
			e.freeSpace()
		}
	}
}

// attemptTime is how long the keeper waits for an attempt. Guessed: more than a
// reservation takes on a disk that works.
const attemptTime = 100 * time.Millisecond

// attempt calls f, which may take as long as the disk does, on a goroutine of its own,
// and returns its answer. It reports false if f has not returned after attemptTime, and
// while an earlier one has not returned; f goes on, so a later tick finds its work done.
// The keeper calls it.
func (e *Engine) attempt(f func() bool) bool {
	if e.disk.attempting.Swap(true) {
		return false
	}
	answer := make(chan bool, 1)
	e.keeper.done.Go(func() {
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

// allowWrites ends the store's being read-only, unless space was refused meanwhile. It
// reports whether it did.
func (e *Engine) allowWrites() bool {
	e.disk.mu.Lock()
	defer e.disk.mu.Unlock()
	if e.disk.mu.cause != nil {
		return false // spaceRefused has woken the keeper
	}
	e.readOnly.Store(false)
	return true
}

// fitSegments bounds the length of log segments by the size of the disk: some of them are
// kept whatever was flushed.
func fitSegments(bytes int64, usage vfs.Usage) int64 {
	const share, least = 4 * ballastShare, 1 << 20
	return min(bytes, max(int64(min(usage.Total/share, 1<<40)), least))
}

// held reports whether the store has been read-only for as long as it must.
func (e *Engine) held() bool {
	e.disk.mu.Lock()
	defer e.disk.mu.Unlock()
	return time.Since(e.disk.mu.since) >= e.disk.mu.hold
}

// resumeAt is how much must be free for the store to take writes again.
func (e *Engine) resumeAt() uint64 {
	return e.opts.LowDiskBytes + e.opts.LowDiskBytes/4 + uint64(e.disk.ballast.missing())
}

// resumeLog reports whether the log has space to go on.
func (e *Engine) resumeLog() bool {
	err := e.log.Resume()
	if err == nil {
		err = e.log.Reserve()
	}
	if err != nil {
		e.reportDisk(fmt.Errorf("reserve space for the log: %w", err))
	}
	return err == nil
}

// reportDisk reports an error of maintenance, but not that the disk takes no bytes: the
// store is read-only then, and that is told by itself.
func (e *Engine) reportDisk(err error) {
	if err != nil && !vfs.CannotWrite(err) {
		e.backgroundError(err)
	}
}

// keepBallast reports whether the ballast is there. If it is not, it makes it.
func (e *Engine) keepBallast() bool {
	err := e.disk.ballast.make()
	e.reportDisk(err)
	return err == nil
}

// releaseLog has the log give back what it does not need, so that flushes and merges have
// a little space on a disk without any.
func (e *Engine) releaseLog() {
	gave, err := e.log.Release()
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

// freeSpace has everything flushed and merged, if something was deleted since it was
// last done, and has the log let go of what is flushed. Merges need space themselves:
// what fails for that is tried again as long as deletes come.
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
				e.wakeKeeper()
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

// clientsFreeSpace reports whether something was deleted since the disk became full. From
// then on the log is not kept for the names of writes: see trimLog. The keeper calls it.
func (e *Engine) clientsFreeSpace() bool {
	if !e.readOnly.Load() {
		e.disk.clearing.Store(false)
	}
	return e.disk.clearing.Load()
}

// readOnlyError says why the store is read-only, with figures.
func (e *Engine) readOnlyError() *kv.ReadOnlyError {
	if e.unwritable != nil {
		return &kv.ReadOnlyError{Free: e.disk.free.Load(), Reason: openedReadOnly}
	}
	err := &kv.ReadOnlyError{Free: e.disk.free.Load(), Resume: e.resumeAt()}
	e.disk.mu.Lock()
	err.Reason = e.disk.mu.reason
	e.disk.mu.Unlock()
	switch {
	case err.Reason == "" && e.disk.unwritable.Load(): // the keeper has not told yet
		err.Reason = readOnlyDisk
	case err.Reason == "":
		err.Reason = lowDisk
	}
	if err.Reason == readOnlyDisk {
		err.Resume = 0
	}
	return err
}

// refusal is the error of a write for which the log has no space.
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
	// openedReadOnly is the reason from the opening of the store on.
	openedReadOnly = "the file system of the data directory is read-only: repair it, or mount it read-write, then restart the server"
)

// tellReadOnly tells the listener, once until tellWritable, that the store is
// read-only.
func (e *Engine) tellReadOnly(cause error) {
	d := &e.disk
	d.mu.Lock()
	// That the file system became read-only is told of a store with a full disk, too.
	told := d.mu.begun && (d.mu.reason == readOnlyDisk || !vfs.IsReadOnly(cause))
	if !d.mu.begun {
		d.mu.begun, d.mu.since, d.mu.reason = true, time.Now(), lowDisk
		// Free space that does not help, for the writes of this user or kind, must not
		// make the store change its mind each second.
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

// ReadOnlyCause returns an error if the file system of a store is read-only, nil if it is
// not or there is no store. It tries to open STORE for writing: statfs(2) does not show
// that a file system became read-only by itself after an error. An error of another kind
// does not say that it is read-only.
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

// ReadOnly returns why the store takes no puts at present, nil if it does. The error is
// a *kv.ReadOnlyError.
func (e *Engine) ReadOnly() error {
	defer e.events.Guard()
	if !e.readOnly.Load() {
		return nil
	}
	return e.readOnlyError()
}
