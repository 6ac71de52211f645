package kvd

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
)

// maxReads bounds the reads of a transaction. It is the default limit of the server.
const maxReads = 4096

var errManyReads = fmt.Errorf("%w: a transaction reads at most %d keys and ranges; "+
	"scan a range in place of many keys, read what need not be checked by a snapshot, or make several transactions of it",
	ErrTooLarge, maxReads)

// readSet has what a transaction read from its snapshot, which must be unchanged at the commit.
// The zero value is empty.
type readSet struct {
	keys   map[string]struct{}
	ranges []*scanned

	expiring expiring
}

// add records keys before they are read. It fails beyond maxReads.
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

// addScan records a scan before it begins. It refers to r.
func (s *readSet) addScan(r Range, reverse bool) (*scanned, error) {
	if s.len()+2 > maxReads {
		return nil, errManyReads
	}
	n := &scanned{all: r, reverse: reverse}
	s.ranges = append(s.ranges, n)
	return n, nil
}

// len counts a scan twice: its range, and the key at which it stopped.
func (s *readSet) len() int { return len(s.keys) + 2*len(s.ranges) }

// reads returns the keys and ranges for a commit.
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

// scanned is the part of a range that a scan has yielded to its loop.
type scanned struct {
	all     Range
	reverse bool

	done   bool
	begun  bool
	last   []byte // the last key that was yielded
	stored bool   // last came from the snapshot
}

// upto records that the scan is about to yield key.
func (n *scanned) upto(key []byte, stored bool) {
	n.begun, n.last, n.stored = true, append(n.last[:0], key...), stored
}

// seen returns the range of which the loop knows everything, and the last key if it is not in
// that range. Both may be nil.
//
// The last key of a forward scan is separate, because a range does not include its end, and the
// next larger key may exceed the maximum length of keys.
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
