package engine

import (
	"sync"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/partition"
	"github.com/kvd-db/kvd/internal/scanbatch"
)

// source reads what a scan sees of one partition, in a long scan one batch ahead of the
// caller. A batch is filled under mu, by the caller or by a helper goroutine, whichever
// comes first.
type source struct {
	s *Scanner
	p *partition.Partition

	mu     sync.Mutex
	walk   partition.Walk
	open   bool // walk holds files and memtables
	opened time.Time
	last   []byte // the key of the last item read
	begun  bool   // last is valid
	end    bool   // there is nothing more to read
	err    error  // why, if that is an error

	// One batch is lent to the merge, the other is the batch ahead.
	batches [2]scanbatch.Batch
	ahead   int
	filled  bool   // the batch ahead has been read
	helped  bool   // a helper goroutine was started to read it
	size    int    // items of the batch ahead, unless the scan ends before
	bytes   int    // likewise
	left    uint64 // items up to the limit of the scan, when take was last called

	memory kv.Memory // nil: the scan is not charged
	held   [2]int64  // taken from memory for each batch
	taken  int       // how many batches take has returned
}

// A batch grows from a share of firstItems to maxItems and batchBytes. After a batch of
// longItems or more, but not after the first, the next one may be read in the background:
// see worthHelp.
//
// Guessed: with 64 items for all partitions together, most scans of 50 items need a second
// batch of few partitions or none; reading 256 items of some 120 bytes takes ten
// microseconds and more, to which starting a goroutine adds little. A value of more than
// kv.LargeValue is left out of its batch and read when the scan reaches it, at the cost of a
// point read.
const (
	firstItems = 64
	longItems  = 64
	maxItems   = 256
	batchBytes = 64 << 10
	leastBytes = 4 << 10 // of a batch while memory is short
	growItems  = 2       // factor
)

// take returns the next batch, which it reads unless a helper has done so. The batch is
// borrowed until the next call. Only a source that has ended returns an empty batch, with
// the error if that was the reason. The scan returns up to left more items.
func (c *source) take(left uint64) (*scanbatch.Batch, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = left
	c.fillLocked()
	taken := &c.batches[c.ahead]
	c.ahead = 1 - c.ahead
	c.filled = false
	if free := &c.batches[c.ahead]; cap(free.Data) > 2*batchBytes {
		*free = scanbatch.Batch{Large: kv.LargeValue}
	}
	if len(taken.Items) == 0 {
		return taken, c.err
	}
	if c.taken++; c.taken > 1 && worthHelp(taken) && !c.end && !c.helped {
		c.helped = true
		c.s.helpers.Go(c.help)
	}
	return taken, nil
}

// worthHelp reports whether the batch after b should be read in the background. It should
// not if most of b came from cached blocks: the caller reads those faster than it reads
// what another processor has just written. Nor if the values are large, since the second
// batch would take as much memory again.
func worthHelp(b *scanbatch.Batch) bool {
	return (len(b.Items) >= longItems || b.Size() >= batchBytes) && b.Size() <= 2*batchBytes && 2*b.Near < len(b.Items)
}

// help fills the batch ahead, unless the caller has done so.
func (c *source) help() {
	defer c.s.e.events.Guard()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.helped = false
	c.fillLocked()
}

// fillLocked reads the batch ahead, unless that has been done.
func (c *source) fillLocked() {
	if c.filled {
		return
	}
	c.filled = true
	// Only here, between batches: a walk that has found no item yet, as over many
	// deleted keys, would make no progress if it were opened again.
	if c.open && time.Since(c.opened) > refreshAfter {
		c.restLocked()
	}
	b := &c.batches[c.ahead]
	if c.bytes = batchBytes; c.memory != nil {
		c.endLocked(c.reserveLocked())
		defer c.settleLocked(c.ahead)
	}
	size := int(min(uint64(c.size), c.left))
	for b.Reset(size, c.bytes, c.s.opts.KeysOnly); !c.end && len(b.Items) == 0; {
		c.readLocked(b, size)
	}
	c.size = min(growItems*c.size, maxItems)
}

// reserveLocked takes memory for the batch ahead before it is read. If there is not enough,
// it makes the batch smaller; only for the smallest size does it wait.
func (c *source) reserveLocked() error {
	held := &c.held[c.ahead]
	for c.bytes = batchBytes; ; c.bytes /= 2 {
		need := int64(2*c.bytes+kv.LargeValue) - *held // Data grows by doubling
		if need <= 0 {
			return nil
		}
		if c.memory.Take(need, *held) {
			*held += need
			return nil
		}
		if c.bytes > leastBytes {
			continue
		}
		if err := c.memory.Wait(c.s.ctx, need, *held); err != nil {
			return err
		}
		*held += need
		return nil
	}
}

// settleLocked gives back memory that a batch did not need.
func (c *source) settleLocked(batch int) {
	if spare := c.held[batch] - int64(c.batches[batch].Footprint()); spare > 0 {
		c.held[batch] -= spare
		c.memory.Give(spare)
	}
}

// readLocked does one Fill of b, with up to size items. It may find only deleted keys.
func (c *source) readLocked(b *scanbatch.Batch, size int) {
	if !c.open && !c.end {
		c.openLocked(time.Now())
		c.endLocked(c.s.kept()) // checked after the walk is open: see snapshots
	}
	if c.end {
		return
	}
	b.Reset(size, c.bytes, c.s.opts.KeysOnly)
	more := c.walk.Fill(b)
	if n := len(b.Items); n > 0 {
		c.last, c.begun = append(c.last[:0], b.Items[n-1].Key...), true
	}
	switch {
	case !more:
		c.endLocked(c.walk.Err())
		c.end = true
		c.restLocked()
	case len(b.Items) == 0:
		c.endLocked(c.s.goesOn())
	}
}

// openLocked opens a walk that begins after the last item read.
func (c *source) openLocked(now time.Time) {
	left := c.s.bounds
	if c.begun && c.s.opts.Reverse {
		left.End = append([]byte(nil), c.last...)
	} else if c.begun {
		left.Start = append(append([]byte(nil), c.last...), 0) // the least key after it
	}
	c.walk.Open(c.p, c.s.at, c.s.now, left, c.s.opts.Reverse)
	c.open, c.opened = true, now
}

// endLocked ends the source with an error, unless it is nil.
func (c *source) endLocked(err error) {
	if err != nil && c.err == nil {
		c.end, c.err = true, err
	}
}

// restLocked releases files and memtables.
func (c *source) restLocked() {
	if c.open {
		c.open = false
		c.endLocked(c.walk.Close())
	}
}

// restIfDue releases files and memtables that were held for longer than refreshAfter, or
// whose version is gone. It skips a source that is being read: fillLocked does the same.
func (c *source) restIfDue(now time.Time, gone bool) {
	if !c.mu.TryLock() {
		return
	}
	defer c.mu.Unlock()
	if gone || now.Sub(c.opened) > refreshAfter {
		c.restLocked()
	}
}

// close ends the source for good. A later take returns kv.ErrClosed, or the scan would
// continue without this partition.
func (c *source) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.end {
		c.end, c.err = true, kv.ErrClosed
	}
	if !c.open {
		return nil
	}
	c.open = false
	return c.walk.Close()
}
