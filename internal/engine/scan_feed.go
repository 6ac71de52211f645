package engine

import (
	"errors"
	"math"
	"sync"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/scanbatch"
)

// feed holds what a scan reads with: a source for each partition, and the merge of their
// batches. A scan borrows one from its first Next to Close, so that short scans allocate
// little.
type feed struct {
	sources []source
	merge   *merge
}

// feeds holds the feeds that no scan uses.
var feeds sync.Pool

const (
	// keepBytes and keepItems bound what a feed in the pool keeps of each batch: enough
	// for short scans.
	keepBytes = 16 << 10
	keepItems = 2 * longItems
)

func newFeed(s *Scanner) *feed {
	k := len(s.e.partitions)
	f, _ := feeds.Get().(*feed)
	if f == nil || len(f.sources) != k {
		f = &feed{sources: make([]source, k), merge: newMerge(k)}
	}
	f.merge.reverse = s.opts.Reverse
	size := firstShare(s.left, k)
	for i := range f.sources {
		c := &f.sources[i]
		c.s, c.p, c.size = s, s.e.partitions[i], size
		c.memory = s.opts.Budget.Memory()
		c.batches[0].Large, c.batches[1].Large = kv.LargeValue, kv.LargeValue
	}
	return f
}

// firstShare returns how many items the first batch of each of k partitions gets, in a scan
// of up to limit items. Keys are hashed, so of n items the number that lie in one partition
// has a mean of n/k and a variance of less than that. With two standard deviations above the
// mean, few partitions need a second batch: see bench/NOTES.md.
func firstShare(limit uint64, k int) int {
	n := min(firstItems, limit)
	if k == 1 {
		return int(n)
	}
	mean := float64(n) / float64(k)
	return int(min(float64(n), math.Ceil(mean+2*math.Sqrt(mean))))
}

// open opens all sources.
func (f *feed) open(now time.Time) {
	for i := range f.sources {
		c := &f.sources[i]
		c.mu.Lock()
		if !c.end {
			c.openLocked(now)
		}
		c.mu.Unlock()
	}
}

// close ends all sources for good.
func (f *feed) close() error {
	var errs []error
	for i := range f.sources {
		if err := f.sources[i].close(); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// free returns f to the pool. REQUIRES: f is closed, and only the caller refers to it.
func (f *feed) free() {
	for i := range f.sources {
		f.sources[i].reset()
	}
	for i := range f.merge.sources {
		f.merge.take(i, nil)
	}
	f.merge.depth = 0
	feeds.Put(f)
}

// reset makes c ready for another scan.
func (c *source) reset() {
	if c.memory != nil {
		c.memory.Give(c.held[0] + c.held[1])
	}
	c.s, c.p, c.err, c.memory, c.held = nil, nil, nil, nil, [2]int64{}
	c.begun, c.end, c.filled, c.helped, c.ahead, c.taken = false, false, false, false, 0, 0
	for i := range c.batches {
		if b := &c.batches[i]; cap(b.Data) > keepBytes || cap(b.Items) > keepItems {
			*b = scanbatch.Batch{}
		} else {
			b.Release()
		}
	}
}
