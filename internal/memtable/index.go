package memtable

import (
	"bytes"
	"sync/atomic"
)

const (
	// segmentBits of the hash choose one of the segments, the tagBits above them
	// the slot in it. Both come from the low half of the hash, because all hashes of
	// one partition have the same high bits.
	segmentBits  = 8
	segmentCount = 1 << segmentBits
	tagBits      = 64 - addressBits
	tagMask      = 1<<tagBits - 1

	firstSlots = 16
)

// index maps a key to its newest record. It is a hash table with open
// addressing, cut into segments that grow one at a time: growing copies one
// segment, never the whole table, so no Add takes long.
//
// A slot is 0, or a tag of hash bits above an address. The tag has all bits that a
// segment needs to place the slot again, so growing reads no records.
type index struct {
	segments [segmentCount]atomic.Pointer[segment]
	held     atomic.Int64 // bytes of slots
}

type segment struct {
	slots []uint64 // loaded and stored atomically; a power of two of them
	used  int      // used by the writer only
}

func segmentOf(hash uint64) uint64 { return hash % segmentCount }
func tagOf(hash uint64) uint64     { return hash >> segmentBits & tagMask }

// lookup returns the address of the newest record of key, or 0. It finds every
// record whose put happens before the call.
func (x *index) lookup(a *arena, hash uint64, key []byte) uint64 {
	s := x.segments[segmentOf(hash)].Load()
	if s == nil {
		return 0
	}
	_, at := s.find(a, tagOf(hash), key)
	return at
}

// guess returns the address in the first slot that may belong to a key with this hash,
// or 0. It reads no record.
func (x *index) guess(hash uint64) uint64 {
	s := x.segments[segmentOf(hash)].Load()
	if s == nil {
		return 0
	}
	tag := tagOf(hash)
	v := atomic.LoadUint64(&s.slots[tag&uint64(len(s.slots)-1)])
	if v>>addressBits != tag {
		return 0
	}
	return v & addressMask
}

// room returns the segment of the hash with at least one free slot. Only the
// writer may call it.
func (x *index) room(hash uint64) *segment {
	p := &x.segments[segmentOf(hash)]
	s := p.Load()
	if s == nil {
		s = &segment{slots: make([]uint64, firstSlots)}
		x.held.Add(8 * firstSlots)
		p.Store(s)
	} else if s.used == len(s.slots)/4*3 {
		x.held.Add(8 * int64(len(s.slots)))
		s = s.doubled()
		p.Store(s)
	}
	return s
}

// find returns the slot of key and the address in it, or the slot where key
// belongs and 0.
func (s *segment) find(a *arena, tag uint64, key []byte) (slot, at uint64) {
	mask := uint64(len(s.slots) - 1)
	for i := tag & mask; ; i = (i + 1) & mask {
		v := atomic.LoadUint64(&s.slots[i])
		if v == 0 {
			return i, 0
		}
		if v>>addressBits == tag && bytes.Equal(a.record(v&addressMask).key(), key) {
			return i, v & addressMask
		}
	}
}

// put publishes the address in the slot that find returned.
func (s *segment) put(slot, tag, at uint64) {
	if s.slots[slot] == 0 {
		s.used++
	}
	atomic.StoreUint64(&s.slots[slot], tag<<addressBits|at)
}

// doubled returns a copy of s with twice the slots, not yet visible to readers.
func (s *segment) doubled() *segment {
	d := &segment{slots: make([]uint64, 2*len(s.slots)), used: s.used}
	mask := uint64(len(d.slots) - 1)
	for _, v := range s.slots {
		if v == 0 {
			continue
		}
		i := v >> addressBits & mask
		for d.slots[i] != 0 {
			i = (i + 1) & mask
		}
		d.slots[i] = v
	}
	return d
}
