package sstable

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

const (
	maxCacheShards = 16
	minShardBytes  = 1 << 20
	// cachedOverhead is what a cached block costs beside its bytes: the ring entry
	// and the allocator's rounding; an estimate.
	cachedOverhead = 64
)

// Cache keeps verified data blocks of many files in memory, within a bound of
// bytes that it never exceeds.
//
// The way to a block does not lead through the cache: each Reader has a slot per
// data block, and a hit is one atomic load of that slot, which leads to the bytes of
// the block without a detour. The cache only decides which slots are filled, by the
// CLOCK algorithm per shard. So a hit takes no lock, hashes nothing, and writes to
// no memory that other processors read, but for a bit now and then. Blocks are
// immutable and handed out by reference; one that is dropped while somebody reads it
// lives until that reader is done.
//
// Safe for concurrent use.
type Cache struct {
	shards []cacheShard
	files  atomic.Uint64
	counts counts
}

type cacheShard struct {
	mu       sync.Mutex
	capacity int64
	used     int64
	ring     []cached // CLOCK, swept from hand
	hand     int
	_        [56]byte // two shards share no cache line
}

// cached is a block in the cache: block i of a file.
type cached struct {
	file  *fileCache
	i     uint32
	bytes uint32 // with the overhead
}

func (c *cached) slot() *cacheSlot { return &c.file.slots[c.i] }

// CacheStats is what a cache counted.
type CacheStats struct {
	Hits, Misses uint64 // of point reads and of scans that fill the cache, as long as they are short
	Bytes        int64  // held now
	Capacity     int64
}

// NewCache returns a cache of at most so many bytes.
func NewCache(bytes int64) *Cache {
	bytes = max(bytes, 0)
	n := min(max(bytes/minShardBytes, 1), maxCacheShards)
	c := &Cache{shards: make([]cacheShard, n)}
	for i := range c.shards {
		c.shards[i].capacity = bytes / n
	}
	return c
}

// Stats returns the counters. They are read one after the other, not at one
// instant.
func (c *Cache) Stats() CacheStats {
	var s CacheStats
	s.Hits, s.Misses = c.counts.sum()
	for i := range c.shards {
		shard := &c.shards[i]
		s.Capacity += shard.capacity
		shard.mu.Lock()
		s.Bytes += shard.used
		shard.mu.Unlock()
	}
	return s
}

// fileCache is the view of a cache that one open file has. Its methods work on
// the zero value, which caches nothing. It must not be copied.
type fileCache struct {
	cache *Cache
	base  uint64 // spreads the blocks of different files over the shards
	slots []cacheSlot
	// touched has a bit per block: it was used since the hand last passed.
	touched []atomic.Uint64
}

// cacheSlot is where a reader finds a block. It is filled and emptied under the lock
// of its shard.
type cacheSlot struct {
	first  atomic.Pointer[byte] // of the contents; nil if the block is not cached
	length uint32               // of the contents; never changes
	ringAt uint32               // where the block is in the ring; guarded by the shard
}

// init makes it the view of a file with these blocks, whose contents have the lengths
// that the index says.
func (f *fileCache) init(c *Cache, x *index) {
	if c == nil {
		return
	}
	f.cache, f.base = c, c.files.Add(1)*7
	f.slots, f.touched = make([]cacheSlot, x.blocks()), make([]atomic.Uint64, x.blocks()/64+1)
	for i := range f.slots {
		_, sealed := x.span(i, i)
		f.slots[i].length = uint32(sealed - trailerBytes)
	}
}

func (f *fileCache) shard(i int) *cacheShard {
	return &f.cache.shards[(f.base+uint64(i))%uint64(len(f.cache.shards))]
}

// lookup returns the contents of data block i, nil if they are not cached. It counts a
// hit or a miss.
func (f *fileCache) lookup(i int) []byte {
	contents := f.hit(i)
	if contents == nil {
		f.missed()
	}
	return contents
}

// missed counts a miss.
func (f *fileCache) missed() {
	if f.cache != nil {
		f.cache.counts.mine().misses.Add(1)
	}
}

// hit is lookup, but that it counts no miss.
func (f *fileCache) hit(i int) []byte {
	contents := f.peek(i)
	if contents == nil {
		return nil
	}
	word, bit := &f.touched[i/64], uint64(1)<<(i%64)
	if word.Load()&bit == 0 { // a write would take the cache line from the others
		word.Or(bit)
	}
	f.cache.counts.mine().hits.Add(1)
	return contents
}

// peek returns the contents of data block i, nil if they are not cached, and leaves no
// trace.
func (f *fileCache) peek(i int) []byte {
	if f.cache == nil {
		return nil
	}
	slot := &f.slots[i]
	first := slot.first.Load()
	if first == nil {
		return nil
	}
	return unsafe.Slice(first, slot.length) // insert saw to the length
}

// insert caches the contents of data block i, which it takes over: they must not change
// any more. It ignores contents that have not the length that they must have.
func (f *fileCache) insert(i int, contents []byte) {
	if f.cache != nil && len(contents) == int(f.slots[i].length) {
		f.shard(i).insert(cached{file: f, i: uint32(i), bytes: uint32(len(contents)) + cachedOverhead}, contents)
	}
}

// spare reports whether there is room for a block of so many bytes.
func (f *fileCache) spare(i, bytes int) bool {
	return f.cache != nil && f.shard(i).spare(int64(bytes)+cachedOverhead)
}

// evict drops the blocks of the file.
func (f *fileCache) evict() {
	for i := range f.slots {
		if f.slots[i].first.Load() != nil {
			f.shard(i).evict(f, i)
		}
	}
}

// untouch forgets that block i was used, and reports whether it was.
func (f *fileCache) untouch(i uint32) bool {
	bit := uint64(1) << (i % 64)
	return f.touched[i/64].And(^bit)&bit != 0
}

func (s *cacheShard) spare(bytes int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used+bytes <= s.capacity
}

func (s *cacheShard) insert(c cached, contents []byte) {
	if int64(c.bytes) > s.capacity {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	slot := c.slot()
	if slot.first.Load() != nil {
		return // another reader was faster
	}
	for s.used+int64(c.bytes) > s.capacity {
		if s.hand >= len(s.ring) {
			s.hand = 0
		}
		if victim := s.ring[s.hand]; victim.file.untouch(victim.i) {
			s.hand++
		} else {
			s.removeLocked(s.hand)
		}
	}
	slot.ringAt = uint32(len(s.ring))
	s.ring = append(s.ring, c)
	s.used += int64(c.bytes)
	slot.first.Store(unsafe.SliceData(contents))
}

func (s *cacheShard) evict(f *fileCache, i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.slots[i].first.Load() != nil {
		s.removeLocked(int(f.slots[i].ringAt))
	}
}

// removeLocked empties the slot of the block at a place of the ring; the last one
// takes its place.
func (s *cacheShard) removeLocked(at int) {
	c := s.ring[at]
	c.slot().first.Store(nil)
	c.file.untouch(c.i)
	s.used -= int64(c.bytes)
	last := len(s.ring) - 1
	s.ring[at] = s.ring[last]
	s.ring[at].slot().ringAt = uint32(at)
	s.ring[last] = cached{}
	s.ring = s.ring[:last]
}
