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

// clock is what keys expire by: Unix milliseconds. Wall clocks are set, drift,
// and come back from a repair years behind; this one keeps
//
//	C1. It never goes back: not when the wall clock does, and not over a restart
//	    or a crash. A key that was seen to be gone stays gone.
//	C2. While the store is open, it passes at most twice the time that really
//	    passes. A wall clock that jumps ahead by years does not take every key
//	    with it: the clock follows it at double speed.
//	C3. It never passes a line that is durable in the file CLOCK, nor its bound.
//	C4. After an end of whatever kind, and a restart before the machine is started
//	    anew, it says what it would have said without, but for what a disk that
//	    failed, or a wall clock that jumped within the last second, make uncertain.
//
// A line says in advance, for the next seconds, what the clock will say as time
// passes. The clock follows the line, not the wall clock; the keeper looks each second
// whether the wall clock went another way, or the bound is near, and then makes the
// next line durable, from where the clock is. While a line is being written, and after
// a failure to write it, it is unknown which one a crash would leave, so the clock
// says the least of both.
//
// The time since the machine was started (bootClock) is saved with the line, and tells
// the next opening how far along the line the clock would be: C4. Where there is no
// such time, and in another boot, the next opening begins at the bound, or at the wall
// clock if that is ahead: up to clockAhead too far. If the disk holds the next line up
// the clock stands still at the bound, and keys live a little longer. What it missed it
// makes up for under C2, so that a key written meanwhile is not robbed of its time.
//
// The line is moved on whether or not a caller asks for the time: after an idle
// hour the clock would otherwise stand an hour behind, or the first reader would
// have to wait for the disk. It costs a small file each half of clockAhead.
//
// A store without expiry has no line and no file. Its clock follows the wall clock, and
// begins anew with each opening. That has no effect, since no key has an expiry yet: use
// makes the first line durable before the log takes the first key that expires.
type clock struct {
	fs      vfs.FS
	dir     string
	storeID uint64
	source  timeSource

	last  atomic.Pointer[reading]
	bound atomic.Pointer[time.Time] // of a durable line; nil: the store never used its clock

	mu struct {
		sync.Mutex
		lines  []line // those that may be durable, the newest last: none, one or two
		value  time.Time
		at     time.Duration // of the monotonic clock, when value was right
		boot   time.Duration // of the boot clock, when the newest line begins
		closed bool
	}
	file sync.Mutex // held while CLOCK is written; taken before mu
}

// reading is what the clock said, and when.
type reading struct {
	ms uint64
	at time.Duration
}

// timeSource is where a clock takes time from.
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

// clockAhead is how far ahead the bound is, and so how many keys, at most, a crash of
// the machine makes expire early: those with as little time left. Guessed; the keeper
// looks every second, and the clock needs half of this to use up half of the bound, so
// a disk may be stuck for a few seconds before the clock stands still.
const clockAhead = 10 * time.Second

// clockOff is how far the wall clock may be from where the line takes it to be before
// there is a new line. One that is slewed, by at most 500 ppm, is as far off after 40
// seconds.
const clockOff = 20 * time.Millisecond

// openClock reads CLOCK, if there is one, and goes on from there.
//
// A damaged file is refused, as other files without a copy are: to start by the
// wall clock alone could bring expired keys back. If the machine's clock is right
// nothing is lost by removing the file; the error says so.
func openClock(fsys vfs.FS, dir string, storeID uint64, source timeSource) (*clock, error) {
	c, saved, err := readClock(fsys, dir, storeID, source)
	switch {
	case err != nil:
		return nil, err
	case saved == nil:
		return c, removeIfThere(fsys, descriptor.ClockPath(dir)+".tmp") // use was cut short
	}
	if err := c.renew(); !vfs.CannotWrite(err) {
		return c, err
	}
	c.hold(saved)
	return c, nil
}

// hold keeps the clock to what was saved, if there is no space for a new line: it goes
// on along the old line, and stands still where that ends, until keep can make a new
// one. Without the boot clock of that line it stands still where it is.
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

// readClock is openClock of a store that is only read: the clock runs free from
// there. It also returns what the file says, nil if there is none.
func readClock(fsys vfs.FS, dir string, storeID uint64, source timeSource) (*clock, *descriptor.Clock, error) {
	c := &clock{fs: fsys, dir: dir, storeID: storeID, source: source}
	c.mu.value, c.mu.at = source.wall(), source.monotonic()
	saved, err := descriptor.ReadClock(fsys, dir, storeID)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.read()
		return c, nil, nil
	case errors.Is(err, kv.ErrCorrupt):
		return nil, nil, fmt.Errorf("%w; if the clock of this machine is right, remove the file: no expired key can come back then", err)
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

func removeIfThere(fsys vfs.FS, name string) error {
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Now returns the time in Unix milliseconds. It is answered in memory, most often
// without a lock: a reading holds for a millisecond. Safe for concurrent use.
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

func unixMilli(t time.Time) uint64 { return uint64(max(t.UnixMilli(), 0)) }

// use makes sure of a durable line. It must return nil before anything that
// expires is appended to the log. After the first time it costs one load.
//
// Errors: those of the disk; nothing may be written then.
func (c *clock) use() error {
	if c.bound.Load() != nil {
		return nil
	}
	return c.renew()
}

// keep makes a new line when half of the bound is used up, when the wall clock is not
// where the line takes it to be, or after a failure.
func (c *clock) keep() error {
	bound := c.bound.Load()
	if bound == nil || bound.Sub(c.read()) > clockAhead/2 && c.onLine() {
		return nil
	}
	return c.renew()
}

// onLine reports whether there is one line, and the wall clock keeps to it.
func (c *clock) onLine() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.mu.lines) != 1 {
		return false
	}
	off := c.source.wall().Sub(c.mu.lines[0].wallAt(c.source.monotonic()))
	return off.Abs() <= clockOff
}

// renew makes a new line durable. If it fails the clock does not pass the old one
// either, and the next call tries the same again.
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

// nextLine returns the line to write, and the time of the boot clock when it begins. It
// is the one of before if that may be durable.
//
// A clock that runs free follows the wall clock while the line is written, and may pass
// it: with some slack it does not.
func (c *clock) nextLine(slack time.Duration) (next line, boot time.Duration, retried bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		return next, 0, false, kv.ErrClosed // the file may be another process's by now
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
// ran free has passed it while it was written.
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

// write makes the file durable; c.file is held.
func (c *clock) write(saved descriptor.Clock) error {
	if err := vfs.WriteAtomic(c.fs, descriptor.ClockPath(c.dir), saved.Encode()); err != nil {
		return fmt.Errorf("save the clock: %w", err)
	}
	return nil
}

// stop stops the clock, and leaves its file alone.
func (c *clock) stop() {
	c.file.Lock()
	defer c.file.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readLocked()
	c.mu.closed = true
}

// close stops the clock and saves where it stands, if the disk has space. The clock stands
// still from then on. Idempotent.
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
	return nil // what was saved before holds, as after a kill
}
