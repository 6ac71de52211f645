package memtable

import (
	"slices"
	"sync/atomic"

	"github.com/kvd-db/kvd/internal/kv"
)

// rangeTombstones is an immutable set of the range tombstones of a table, for point
// reads. Each Add of a range tombstone replaces it.
//
// It consists of runs of falling size by the rule of growth, as the order does: an Add
// merges small runs, and Cover searches few.
type rangeTombstones struct {
	runs   []*kv.RangeTombstones
	count  int
	folded atomic.Pointer[kv.RangeTombstones] // all of them in one run, set by the first call of fold
}

// rangeTombstoneBytes is the cost of one besides its record: an entry and the end
// that kv.RangeTombstones keeps for it, in a run and in the folded set.
const rangeTombstoneBytes = 2 * (72 + 24)

// A batch reserves enough for its range tombstones.
const _ = uint(kv.RangeDeleteBytes - (headerBytes + refBytes + rangeTombstoneBytes))

// with returns the tombstones of s, which may be nil, and e, whose slices it
// keeps.
func (s *rangeTombstones) with(e kv.Entry) *rangeTombstones {
	var runs []*kv.RangeTombstones
	if s != nil {
		runs = slices.Clone(s.runs)
		if f := s.folded.Load(); f != nil {
			runs = []*kv.RangeTombstones{f}
		}
	}
	fresh := kv.NewRangeTombstones([]kv.Entry{e})
	for n := len(runs); n > 0 && runs[n-1].Len() < growth*fresh.Len(); n-- {
		fresh = kv.MergeRangeTombstones(runs[n-1], fresh)
		runs = runs[:n-1]
	}
	return &rangeTombstones{runs: append(runs, fresh), count: s.len() + 1}
}

// cover is kv.RangeTombstones.Cover over all of them.
func (s *rangeTombstones) cover(key []byte, at kv.SeqNum) kv.SeqNum {
	if f := s.folded.Load(); f != nil {
		return f.Cover(key, at)
	}
	var newest kv.SeqNum
	for _, r := range s.runs {
		newest = max(newest, r.Cover(key, at))
	}
	return newest
}

// fold returns all of them in one run. Concurrent calls may do the work twice; none
// waits.
func (s *rangeTombstones) fold() *kv.RangeTombstones {
	if s == nil {
		return nil
	}
	if f := s.folded.Load(); f != nil {
		return f
	}
	f := s.runs[len(s.runs)-1]
	for n := len(s.runs) - 2; n >= 0; n-- {
		f = kv.MergeRangeTombstones(s.runs[n], f)
	}
	s.folded.Store(f)
	return f
}

func (s *rangeTombstones) len() int {
	if s == nil {
		return 0
	}
	return s.count
}
