package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// clock is the time by which keys expire, in Unix milliseconds. Wall clocks are set, they
// drift, and after a repair they may be years slow. This clock guarantees:
//
//	C1. It never goes back: not when the wall clock does, and not across a restart
//	    or a crash. A key that was seen to be expired stays expired.
//	C2. While the store is open, it advances by at most twice the time that really
//	    passes. If the wall clock jumps ahead by years, the clock follows at double
//	    speed, and does not expire every key at once.
//	C3. It never passes the line that is durable in the file CLOCK, nor the line's bound.
//	C4. If the process ends in any way and the store is opened again in the same boot of
//	    the machine, the clock says what it would have said without the interruption.
//	    Only a failed disk, or a jump of the wall clock within the last second, makes
//	    that uncertain.
//
// A line defines in advance, for the next seconds, what the clock will say as time
// passes. The clock follows the line, not the wall clock. Every second the maintenance
// loop checks whether the wall clock has left the line, or the bound is near, and if so
// makes the next line durable, which begins at the present value of the clock. While a
// line is being written, and after a failed write, it is unknown which of the two lines a
// crash would leave, so the clock says the lesser of both.
//
// The time since the boot of the machine (bootClock) is saved with the line, and tells the
// next opening how far along the line the clock is: C4. Without a boot clock, and in
// another boot, the next opening begins at the bound, or at the wall clock if that is
// ahead: the clock may then be up to clockAhead fast. If the disk delays the next line, it
// stops at the bound, and keys live a little longer. Afterwards it catches up within the
// limit of C2, so that a key written meanwhile does not lose lifetime at once.
//
// The line is renewed whether or not a caller asks for the time. Otherwise, after an idle
// hour, the clock would be an hour slow, or the first reader would have to wait for the
// disk. The cost is one write of a small file every clockAhead/2.
//
// A store without expiry has no line and no file. Its clock follows the wall clock, and
// starts afresh at each opening. That has no effect, since no key has an expiry: use
// makes the first line durable before the first key with an expiry is appended to the log.
type clock struct {
	fs      vfs.FS
	dir     string
	storeID uint64
	source  timeSource

	last  atomic.Pointer[reading]
	bound atomic.Pointer[time.Time] // of a durable line; nil: the store never used its clock

	mu struct {
		sync.Mutex
		lines  []line // none, one, or two that may be durable, the newest last
		value  time.Time
		at     time.Duration // monotonic time at which the clock was value
		boot   time.Duration // boot time at which the newest line begins
		closed bool
	}
	file sync.Mutex // held while CLOCK is written; taken before mu
}

// reading is a value of the clock and the monotonic time at which it was read.
type reading struct {
	ms uint64
	at time.Duration
}

// timeSource holds the clocks of the machine.
type timeSource struct {
	wall      func() time.Time     // may jump
	monotonic func() time.Duration // since anything; never goes back
	boot      bootClock
}

func systemTime(boot bootClock) timeSource {
	start := time.Now()
	return timeSource{
		wall:      func() time.Time { return time.Now().Round(0) }, // without the monotonic reading
		monotonic: func() time.Duration { return time.Since(start) },
		boot:      boot,
	}
}

// clockAhead is how far ahead of the clock the bound is, and so by how much a crash of the
// machine may make keys expire early at most. Guessed: the maintenance loop checks every
// second, and renews the line when half of it is used, so the disk may hang for a few
// seconds before the clock stops.
const clockAhead = 10 * time.Second

// clockOff is how far the wall clock may be off the line before the line is renewed. A
// wall clock that is slewed, by at most 500 ppm, is that far off after 40 seconds.
const clockOff = 20 * time.Millisecond

// openClock reads CLOCK, if it exists, and continues from there.
//
// A damaged file is refused, as is any file that has no copy: starting from the wall
// clock alone could bring expired keys back. If the machine's clock is right, nothing is
// lost by removing the file; the error says so.
func openClock(fsys vfs.FS, dir string, storeID uint64, source timeSource) (*clock, error) {
	c, saved, err := readClock(fsys, dir, storeID, source)
	switch {
	case err != nil:
		return nil, err
	case saved == nil:
		return c, vfs.RemoveIfThere(fsys, descriptor.ClockPath(dir)+".tmp") // left by a crash during use
	}
	if err := c.renew(); !vfs.CannotWrite(err) {
		return c, err
	}
	c.hold(saved)
	return c, nil
}

// hold keeps the clock on the saved line when a new one cannot be written: the clock
// follows the saved line and stops where that ends, until keep can write a new line. In
// another boot, or without a boot clock, it stops where it is.
func (c *clock) hold(saved *descriptor.Clock) {
	c.mu.Lock()
	defer c.mu.Unlock()
	value := c.readLocked()
	held := line{since: c.mu.at, start: value, wall: value, bound: value}
	if boot := c.source.boot; boot.now != nil && saved.Boot == boot.id && boot.now() >= time.Duration(saved.Since) {
		held = savedLine(saved)
		held.since = c.mu.at - (boot.now() - time.Duration(saved.Since))
		if held.bound.Before(value) {
			held.bound = value
		}
	}
	c.mu.lines = []line{held}
	c.bound.Store(&held.bound)
}

// readClock is openClock without a new line: the clock runs free from the saved value. It
// also returns the contents of the file, nil if there is none.
func readClock(fsys vfs.FS, dir string, storeID uint64, source timeSource) (*clock, *descriptor.Clock, error) {
	c := &clock{fs: fsys, dir: dir, storeID: storeID, source: source}
	c.mu.value, c.mu.at = source.wall(), source.monotonic()
	saved, err := descriptor.ReadClock(fsys, dir, storeID)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.read()
		return c, nil, nil
	case errors.Is(err, kv.ErrCorrupt):
		return nil, nil, fmt.Errorf("%w; if the clock of this machine is right, remove the file: then no expired key can come back", err)
	case err != nil:
		return nil, nil, err
	}
	if now, ok := resume(&saved, source.boot); ok {
		c.mu.value = now
	} else if bound := time.UnixMilli(int64(saved.Bound)); bound.After(c.mu.value) {
		c.mu.value = bound
	}
	c.read()
	return c, &saved, nil
}

// Now returns the time in Unix milliseconds. It never waits for the disk, and mostly takes
// no lock, since a reading is used for a millisecond. Safe for concurrent use.
func (c *clock) Now() uint64 {
	if r := c.last.Load(); c.source.monotonic()-r.at < time.Millisecond {
		return r.ms
	}
	return unixMilli(c.read())
}

// read takes a new reading.
func (c *clock) read() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.readLocked()
}

func (c *clock) readLocked() time.Time {
	if c.mu.closed {
		return c.mu.value
	}
	at := c.source.monotonic()
	elapsed := at - c.mu.at
	c.mu.at = at
	next := c.mu.value.Add(2 * elapsed)
	if len(c.mu.lines) == 0 {
		next = follow(c.source.wall(), c.mu.value.Add(elapsed/2), next)
	}
	for i := range c.mu.lines {
		if says := c.mu.lines[i].at(at); says.Before(next) {
			next = says
		}
	}
	if next.After(c.mu.value) {
		c.mu.value = next
	}
	c.last.Store(&reading{unixMilli(c.mu.value), at})
	return c.mu.value
}

// raise makes a clock that runs free say at least a time. It then goes at half the speed of
// time until the wall clock has caught up.
func (c *clock) raise(ms uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if least := time.UnixMilli(int64(ms)); c.readLocked().Before(least) {
		c.mu.value = least
		c.last.Store(&reading{ms, c.mu.at})
	}
}

func unixMilli(t time.Time) uint64 { return uint64(max(t.UnixMilli(), 0)) }

// use makes sure that there is a durable line. It must return nil before a key with an
// expiry is appended to the log. After the first call it costs one load.
//
// Errors: those of the disk; the write must then be refused.
func (c *clock) use() error {
	if c.bound.Load() != nil {
		return nil
	}
	return c.renew()
}

// keep writes a new line if half of the time to the bound is used up, if the wall clock
// has left the line, or if the last attempt failed.
func (c *clock) keep() error {
	bound := c.bound.Load()
	if bound == nil || bound.Sub(c.read()) > clockAhead/2 && c.onLine() {
		return nil
	}
	return c.renew()
}

// onLine reports whether there is exactly one line and the wall clock is on it.
func (c *clock) onLine() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.mu.lines) != 1 {
		return false
	}
	off := c.source.wall().Sub(c.mu.lines[0].wallAt(c.source.monotonic()))
	return off.Abs() <= clockOff
}

// renew makes a new line durable. If that fails, the clock passes neither line, and the
// next call tries the same line again.
func (c *clock) renew() error {
	c.file.Lock()
	defer c.file.Unlock()
	slack := time.Duration(0)
	for {
		next, boot, retried, err := c.nextLine(slack)
		if err != nil {
			return err
		}
		if err := c.write(next.save(c.storeID, c.source.boot, boot)); err != nil {
			return err
		}
		if c.goOn(next) && !retried {
			return nil
		}
		slack = max(2*slack, time.Millisecond)
	}
}

// nextLine returns the line to write, and the boot time at which it begins. If the write
// of a line failed, it returns that line again, since it may be durable.
//
// A clock that runs free follows the wall clock while the line is written, and may pass
// the line; slack moves the line ahead so that it does not.
func (c *clock) nextLine(slack time.Duration) (next line, boot time.Duration, retried bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		return next, 0, false, kv.ErrClosed // another process may own the file by now
	}
	if n := len(c.mu.lines); n == 2 {
		return c.mu.lines[1], c.mu.boot, true, nil
	}
	if c.source.boot.now != nil {
		c.mu.boot = c.source.boot.now() // before the monotonic clock is read: see save
	}
	value := c.readLocked()
	next = newLine(c.mu.at, value.Add(slack), c.source.wall().Add(slack))
	if len(c.mu.lines) == 1 {
		c.mu.lines = append(c.mu.lines, next)
	}
	return next, c.mu.boot, false, nil
}

// goOn lets the clock follow a line that is durable. It reports false if a clock that
// runs free has passed the line while it was written.
func (c *clock) goOn(next line) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if value := c.readLocked(); len(c.mu.lines) == 0 && value.After(next.at(c.mu.at)) {
		return false
	}
	c.mu.lines = append(c.mu.lines[:0], next)
	c.bound.Store(&next.bound)
	return true
}

// write replaces the file CLOCK durably. REQUIRES: c.file is held.
func (c *clock) write(saved descriptor.Clock) error {
	if err := vfs.WriteAtomic(c.fs, descriptor.ClockPath(c.dir), saved.Encode()); err != nil {
		return fmt.Errorf("save the clock: %w", err)
	}
	return nil
}

// stop stops the clock without a change of its file.
func (c *clock) stop() {
	c.file.Lock()
	defer c.file.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readLocked()
	c.mu.closed = true
}

// close stops the clock and, if the disk has space, saves its value. Idempotent.
func (c *clock) close() error {
	c.file.Lock()
	defer c.file.Unlock()
	c.mu.Lock()
	boot := time.Duration(0)
	if c.source.boot.now != nil {
		boot = c.source.boot.now()
	}
	exact, closed := c.readLocked(), c.mu.closed
	last := newLine(c.mu.at, exact, c.source.wall())
	last.bound = exact
	c.mu.closed = true
	c.mu.Unlock()
	if closed || c.bound.Load() == nil {
		return nil
	}
	if err := c.write(last.save(c.storeID, c.source.boot, boot)); !vfs.CannotWrite(err) {
		return err
	}
	return nil // the line that was saved before holds, as after a kill
}
