package kvd

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
)

// maxReads bounds what a transaction may read: what a server takes by default.
const maxReads = 4096

var errManyReads = fmt.Errorf("%w: a transaction reads at most %d keys and ranges; "+
	"scan a range in place of many keys, read what need not be checked by a snapshot, or make several transactions of it",
	ErrTooLarge, maxReads)

// readSet is what a transaction has read from its snapshot and must find unchanged
// when it commits. The zero value is empty.
type readSet struct {
	keys   map[string]struct{}
	ranges []*scanned

	expiring expiring
}

// add notes keys that are about to be read. It fails if that is too much.
func (s *readSet) add(keys ...[]byte) error {
	if s.keys == nil {
		s.keys = make(map[string]struct{})
	}
	for _, key := range keys {
		if _, has := s.keys[string(key)]; has {
			continue
		}
		if s.len() == maxReads {
			return errManyReads
		}
		s.keys[string(key)] = struct{}{}
	}
	return nil
}

// addScan notes a scan that is about to begin, and keeps r.
func (s *readSet) addScan(r Range, reverse bool) (*scanned, error) {
	if s.len()+2 > maxReads {
		return nil, errManyReads
	}
	n := &scanned{all: r, reverse: reverse}
	s.ranges = append(s.ranges, n)
	return n, nil
}

// len counts a scan twice: as a range, and as the key that it stopped at.
func (s *readSet) len() int { return len(s.keys) + 2*len(s.ranges) }

// reads returns what was read, for a commit.
func (s *readSet) reads() (keys [][]byte, ranges []backend.Range) {
	for _, key := range slices.Sorted(maps.Keys(s.keys)) {
		keys = append(keys, []byte(key))
	}
	for _, n := range s.ranges {
		r, last := n.seen()
		if last != nil {
			if _, has := s.keys[string(last)]; !has {
				keys = append(keys, last)
			}
		}
		if r != nil {
			ranges = append(ranges, backend.Range(*r))
		}
	}
	return keys, ranges
}

// scanned is how far a scan has come: what its loop has been told of the range.
type scanned struct {
	all     Range
	reverse bool

	done   bool
	begun  bool
	last   []byte // key yielded last
	stored bool   // it came from the snapshot
}

// upto notes that the scan is about to yield key.
func (n *scanned) upto(key []byte, stored bool) {
	n.begun, n.last, n.stored = true, append(n.last[:0], key...), stored
}

// seen returns the range that the loop knows all of, and the key at its edge if
// that was read too. Both may be nil.
//
// The key that a forward scan stopped at is apart because a range cannot include
// its end, and the next key may be longer than keys can be.
func (n *scanned) seen() (r *Range, last []byte) {
	switch {
	case n.done:
		return &n.all, nil
	case !n.begun:
		return nil, nil
	case n.reverse:
		return &Range{Start: n.last, End: n.all.End}, nil
	}
	if n.stored {
		last = n.last
	}
	if bytes.Equal(n.all.Start, n.last) {
		return nil, last
	}
	return &Range{Start: n.all.Start, End: n.last}, last
}
