package sstable

import (
	"math/bits"
	"unsafe"

	"github.com/kvd-db/kvd/internal/kv"
)

const (
	// valueOverhead is the cost of a cached value besides its allocation: its place and its
	// entry in the map. Estimated.
	valueOverhead = 112
	// maxCachedValue is the largest value that is cached. Guessed: a read of the disk takes
	// hardly longer for 16 KiB than for 1 KiB, so in the room of a larger value, smaller ones
	// save more.
	maxCachedValue = 16 << 10
	// seenShare: a shard remembers one miss for this many bytes. It takes seenBytes.
	seenShare = 4096
	seenBytes = 4
)

// Values is a cache's view of the value files of one partition. Values share the bytes, the
// queues and the uses of the cache with blocks.
//
// A value is found by its place, a file and an offset. Files never change and their numbers
// are not used again, so what is cached is never stale; Drop only frees memory. A value is
// admitted when it is missed a second time, soon after the first: so reads of values that do
// not come back, of whole stores or evenly over much more than the cache holds, drop nothing
// and copy nothing. Admitted values enter the long queue.
//
// A nil *Values caches nothing. Safe for concurrent use. A lookup takes the lock of a shard.
type Values struct {
	cache *Cache
	set   uint64
}

// valueKey locates a value: the set and the number of its file in one word, and its offset.
type valueKey struct{ file, offset uint64 }

// keyBits is how many bits of valueKey.file are the number of the file. Values of files with
// larger numbers are not cached.
const keyBits = 48

// valueShard is the values of a shard, guarded by it.
type valueShard struct {
	places map[valueKey]uint32
	// seen remembers recent misses: each stores the upper half of its hash at the index that
	// its lower half chooses, in the place of an older one. Nil until the first miss.
	seen         []uint32
	hits, misses uint64
}

// NewValues returns a view for the value files of a partition, nil if c is nil.
func (c *Cache) NewValues() *Values {
	if c == nil {
		return nil
	}
	return &Values{c, c.sets.Add(1)}
}

// locate returns the key, the hash and the shard of a value, no shard if it is not to be
// cached.
func (v *Values) locate(p kv.ValuePointer) (key valueKey, hash uint64, s *cacheShard) {
	if v == nil || p.Length > maxCachedValue || uint64(p.File)>>keyBits != 0 || v.set>>(64-keyBits) != 0 {
		return key, 0, nil
	}
	key = valueKey{v.set<<keyBits | uint64(p.File), p.Offset}
	hash = key.hash()
	s = &v.cache.shards[hash%uint64(len(v.cache.shards))]
	if int64(p.Length)+valueOverhead > s.capacity {
		return key, 0, nil
	}
	return key, hash, s
}

// hash spreads the bits of a key by two rounds of a multiplication of twice the width.
func (k valueKey) hash() uint64 {
	hi, lo := bits.Mul64(k.file^0x9e3779b97f4a7c15, k.offset^0xbf58476d1ce4e5b9)
	hi, lo = bits.Mul64(hi^lo^k.offset, 0x94d049bb133111eb)
	return hi ^ lo
}

// get returns a value, borrowed for good as it never changes; nil if it is not cached or not
// wanted.
func (v *Values) get(p kv.ValuePointer, wanted bool) []byte {
	if !wanted {
		return nil
	}
	key, _, s := v.locate(p)
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok := s.values.places[key]
	if !ok || s.places[at].i != p.Length {
		s.values.misses++
		return nil
	}
	s.values.hits++
	c := &s.places[at]
	c.uses = min(c.uses+1, maxUses)
	return unsafe.Slice(c.value, c.i) // #nosec G103 -- as Add stored it
}

// answer gives a query whose value is apart the value, if it is cached.
func (v *Values) answer(q *Query) {
	if value := v.get(q.Pointer, true); value != nil {
		q.receive(value)
	}
}

// receive gives a query whose value is apart the value.
func (q *Query) receive(value []byte) { q.Value, q.Apart = append(q.Value[:0], value...), false }

// Add offers a verified value, which it copies if it keeps it.
func (v *Values) Add(p kv.ValuePointer, value []byte) {
	key, hash, s := v.locate(p)
	if s == nil || len(value) != int(p.Length) {
		return
	}
	to, ok := s.admit(hash, int64(len(value))+valueOverhead)
	if !ok {
		return
	}
	own := append([]byte(nil), value...)
	c := cached{value: unsafe.SliceData(own), key: key, i: p.Length, bytes: uint32(cap(own)) + valueOverhead, queue: to} // #nosec G103 -- get checks the length
	s.insertValue(c)
}

// admit reports whether a value was missed before, not long ago, and remembers this miss.
func (s *cacheShard) admit(hash uint64, bytes int64) (to queue, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used+bytes <= s.capacity {
		return short, true
	}
	if s.values.seen == nil {
		n := max(1<<bits.Len64(uint64(s.capacity/seenShare))>>1, 1)
		s.makeRoomLocked(int64(n) * seenBytes)
		s.values.seen = make([]uint32, n)
		s.used += int64(n) * seenBytes
	}
	// The lowest bits chose the shard.
	slot, mark := &s.values.seen[hash>>8&uint64(len(s.values.seen)-1)], uint32(hash>>32)|1
	again := *slot == mark
	*slot = mark
	return long, again
}

func (s *cacheShard) insertValue(c cached) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.values.places[c.key]; ok {
		return // another reader inserted it first
	}
	if !s.makeRoomLocked(int64(c.bytes)) {
		return
	}
	if s.values.places == nil {
		s.values.places = make(map[valueKey]uint32)
	}
	s.values.places[c.key] = s.addLocked(c)
}

// Drop drops the values of a file.
func (v *Values) Drop(num kv.FileNum) {
	if v == nil {
		return
	}
	file := v.set<<keyBits | uint64(num)
	for i := range v.cache.shards {
		v.cache.shards[i].dropValues(file)
	}
}

func (s *cacheShard) dropValues(file uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.values.places {
		if key.file == file {
			s.removeLocked(s.values.places[key])
		}
	}
}
