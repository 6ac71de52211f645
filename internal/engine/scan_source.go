package engine

import (
	"sync"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/partition"
	"github.com/kvd-db/kvd/internal/scanbatch"
)

// source reads what a scan sees of one partition, a batch ahead of the caller if
// the scan is a long one. Whoever fills a batch holds mu: the caller, if it comes
// first, or a goroutine.
type source struct {
	s *Scanner
	p *partition.Partition

	mu     sync.Mutex
	walk   partition.Walk
	open   bool // walk holds files and memtables
	opened time.Time
	last   []byte // the key of the last item read
	begun  bool   // there is one
	end    bool   // there is nothing more to read
	err    error  // because of this

	// One batch is with the merge, the other is ahead, or about to be.
	batches [2]scanbatch.Batch
	ahead   int
	filled  bool // the batch ahead is there
	helped  bool // a goroutine is on its way to fill it
	size    int  // items of the next one
	bytes   int  // likewise

	memory kv.Memory // nil: the scan is not charged
	held   [2]int64  // taken from memory for each batch
	taken  int       // batches
}

// A batch grows from a share of firstItems to maxItems and batchBytes. A batch of
// longItems or more, which is not the first, is followed by one that is read in
// the background.
//
// Guessed: with 64 items for all partitions together most scans of 50 need no
// second batch of a partition, or one of few; 256 items of some 120 bytes take ten
// microseconds and more to read, to which a goroutine adds little. A value of more than
// largeValue is in no batch but read for itself when its turn comes, which costs a point
// read.
const (
	firstItems = 64
	longItems  = 64
	maxItems   = 256
	batchBytes = 64 << 10
	leastBytes = 4 << 10 // of a batch while memory is short
	largeValue = 32 << 10
	growItems  = 2 // times
)

// take returns the next batch, which it reads unless that was done ahead. It lends
// the batch until the next call. Only a source that has ended gives an empty one,
// with the reason if that is an error.
func (c *source) take() (*scanbatch.Batch, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fillLocked()
	taken := &c.batches[c.ahead]
	c.ahead = 1 - c.ahead
	c.filled = false
	if free := &c.batches[c.ahead]; cap(free.Data) > 2*batchBytes {
		*free = scanbatch.Batch{Large: largeValue}
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

// worthHelp reports whether the batch behind b is to be read in the background. Not
// if most of b was in memory: that is soon looked through, and the items come faster
// from there than from what another processor has just written. Nor if the values are
// large: it would take as much memory again.
func worthHelp(b *scanbatch.Batch) bool {
	return (len(b.Items) >= longItems || b.Size() >= batchBytes) && b.Size() <= 2*batchBytes && 2*b.Near < len(b.Items)
}

// help fills the batch ahead, unless the caller was faster.
func (c *source) help() {
	defer c.s.e.events.Guard()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.helped = false
	c.fillLocked()
}

// fillLocked reads the batch ahead, unless it is there.
func (c *source) fillLocked() {
	if c.filled {
		return
	}
	c.filled = true
	// Here alone, where there is an item to go on behind: a walk over much that was
	// deleted would never get anywhere if it began anew.
	if c.open && time.Since(c.opened) > refreshAfter {
		c.restLocked()
	}
	b := &c.batches[c.ahead]
	if c.bytes = batchBytes; c.memory != nil {
		c.endLocked(c.reserveLocked())
		defer c.settleLocked(c.ahead)
	}
	for b.Reset(c.size, c.bytes, c.s.opts.KeysOnly); !c.end && len(b.Items) == 0; {
		c.readLocked(b)
	}
	c.size = min(growItems*c.size, maxItems)
}

// reserveLocked takes memory for the batch ahead before it is read: for a smaller batch
// if there is not enough. It waits only for the smallest.
func (c *source) reserveLocked() error {
	held := &c.held[c.ahead]
	for c.bytes = batchBytes; ; c.bytes /= 2 {
		need := int64(2*c.bytes+largeValue) - *held // Data grows by doubling
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

// settleLocked gives back what a batch did not need.
func (c *source) settleLocked(batch int) {
	if spare := c.held[batch] - int64(c.batches[batch].Footprint()); spare > 0 {
		c.held[batch] -= spare
		c.memory.Give(spare)
	}
}

// readLocked reads as much as a batch looks at in one go, which may be nothing but
// what was deleted.
func (c *source) readLocked(b *scanbatch.Batch) {
	if !c.open && !c.end {
		c.openLocked(time.Now())
		c.endLocked(c.s.kept()) // with the walk open, not before: see snapshots
	}
	if c.end {
		return
	}
	b.Reset(c.size, c.bytes, c.s.opts.KeysOnly)
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

// openLocked opens a walk from behind the last item read.
func (c *source) openLocked(now time.Time) {
	left := c.s.bounds
	if c.begun && c.s.opts.Reverse {
		left.End = append([]byte(nil), c.last...)
	} else if c.begun {
		left.Start = append(append([]byte(nil), c.last...), 0) // the least key behind it
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

// restLocked lets go of files and memtables.
func (c *source) restLocked() {
	if c.open {
		c.open = false
		c.endLocked(c.walk.Close())
	}
}

// restIfDue lets go of what was held for long enough, or need not be there. A
// source that is read just now looks for itself.
func (c *source) restIfDue(now time.Time, gone bool) {
	if !c.mu.TryLock() {
		return
	}
	defer c.mu.Unlock()
	if gone || now.Sub(c.opened) > refreshAfter {
		c.restLocked()
	}
}

// close ends the source for good. That it ends here is an error to whoever asks for
// more, or the scan would go on without this partition.
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
