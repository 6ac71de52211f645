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
//	C3. It never passes a bound that is durable in the file CLOCK.
//
// Time between two readings is that of the monotonic clock, times one half to
// two, whatever brings it nearest to the wall clock. C1 over a crash follows from
// C3: the next opening begins at the bound, or at the wall clock if that is
// ahead. The bound is some seconds ahead and the keeper moves it on; if the disk
// holds that up the clock stands still, and keys live a little longer. What it
// missed it makes up for under C2, so that a key written meanwhile is not robbed
// of its time.
//
// The bound is moved on whether or not somebody asks for the time: after an idle
// hour the clock would otherwise stand an hour behind, or the first reader would
// have to wait for the disk. It costs a small file each half of clockAhead.
//
// A store without expiry has no bound and no file. Its clock runs free, and begins
// anew with each opening, which nobody can tell: use makes the first bound durable
// before the log takes the first key that expires.
type clock struct {
	fs      vfs.FS
	dir     string
	storeID uint64
	source  timeSource

	last  atomic.Pointer[reading]
	bound atomic.Pointer[time.Time] // durable; nil: the store never used its clock

	mu struct {
		sync.Mutex
		value  time.Time
		at     time.Duration // of the monotonic clock, when value was right
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
}

func systemTime() timeSource {
	start := time.Now()
	return timeSource{
		wall:      func() time.Time { return time.Now().Round(0) }, // without the monotonic reading
		monotonic: func() time.Duration { return time.Since(start) },
	}
}

// clockAhead is how far ahead the bound is, and so how many keys, at most, a crash
// makes expire early: those with as little time left. Guessed; the keeper looks
// every second, and the clock needs half of this to use up half of the bound, so
// a disk may be stuck for a few seconds before the clock stands still.
const clockAhead = 10 * time.Second

// openClock reads CLOCK, if there is one, and goes on from there.
//
// A damaged file is refused, as other files without a copy are: to start by the
// wall clock alone could bring expired keys back. If the machine's clock is right
// nothing is lost by removing the file; the error says so.
func openClock(fsys vfs.FS, dir string, storeID uint64, source timeSource) (*clock, error) {
	c := &clock{fs: fsys, dir: dir, storeID: storeID, source: source}
	c.mu.value, c.mu.at = source.wall(), source.monotonic()
	saved, err := descriptor.ReadClock(fsys, dir, storeID)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.read()
		return c, removeIfThere(fsys, descriptor.ClockPath(dir)+".tmp") // use was cut short
	case errors.Is(err, kv.ErrCorrupt):
		return nil, fmt.Errorf("%w; if the clock of this machine is right, remove the file: no expired key can come back then", err)
	case err != nil:
		return nil, err
	}
	bound := time.UnixMilli(int64(saved.Bound))
	if bound.After(c.mu.value) {
		c.mu.value = bound
	}
	c.read()
	if err := c.renew(); !vfs.CannotWrite(err) {
		return c, err
	}
	// The old bound goes on to hold: the clock stands still where it is, or runs up to
	// it, until keep can make a new one.
	held := time.UnixMilli(max(int64(saved.Bound), c.read().UnixMilli()))
	c.bound.Store(&held)
	return c, nil
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
	next := follow(c.source.wall(), c.mu.value.Add(elapsed/2), c.mu.value.Add(2*elapsed))
	if bound := c.bound.Load(); bound != nil && next.After(*bound) {
		next = *bound
	}
	if next.After(c.mu.value) {
		c.mu.value = next
	}
	c.last.Store(&reading{unixMilli(c.mu.value), at})
	return c.mu.value
}

// follow returns the time from least to most that is nearest to wall.
func follow(wall, least, most time.Time) time.Time {
	switch {
	case wall.Before(least):
		return least
	case wall.After(most):
		return most
	}
	return wall
}

func unixMilli(t time.Time) uint64 { return uint64(max(t.UnixMilli(), 0)) }

// use makes sure of a durable bound. It must return nil before anything that
// expires is appended to the log. After the first time it costs one load.
//
// Errors: those of the disk; nothing may be written then.
func (c *clock) use() error {
	if c.bound.Load() != nil {
		return nil
	}
	return c.renew()
}

// keep moves the bound on when half of it is used up.
func (c *clock) keep() error {
	bound := c.bound.Load()
	if bound == nil || bound.Sub(c.read()) > clockAhead/2 {
		return nil
	}
	return c.renew()
}

// renew makes a new bound durable, and then lets the clock run up to it. If it
// fails the old one, or none, goes on to hold.
func (c *clock) renew() error {
	c.file.Lock()
	defer c.file.Unlock()
	for {
		c.mu.Lock()
		bound, closed := c.readLocked().Add(clockAhead), c.mu.closed
		c.mu.Unlock()
		if closed {
			return kv.ErrClosed // the file may be another process's by now
		}
		if err := c.write(bound); err != nil {
			return err
		}
		if c.runTo(bound) {
			return nil
		}
	}
}

// runTo sets the bound. It reports false if a clock without one has passed it
// while it was written.
func (c *clock) runTo(bound time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.readLocked().After(bound) {
		return false
	}
	c.bound.Store(&bound)
	return true
}

// write makes bound durable; file is held.
func (c *clock) write(bound time.Time) error {
	saved := descriptor.Clock{StoreID: c.storeID, Bound: max(unixMilli(bound), 1)}
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

// close stops the clock and saves where it stands. Nobody may count on its going
// on. Idempotent.
func (c *clock) close() error {
	c.file.Lock()
	defer c.file.Unlock()
	c.mu.Lock()
	exact, closed := c.readLocked(), c.mu.closed
	c.mu.closed = true
	c.mu.Unlock()
	if closed || c.bound.Load() == nil {
		return nil
	}
	return c.write(exact)
}
