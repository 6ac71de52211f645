package sstable

import (
	"sync"
	"sync/atomic"
)

const (
	maxCacheShards = 16
	minShardBytes  = 1 << 20
	// cachedOverhead is what a cached block costs beside its bytes. Counted from
	// the struct, the ring entry and the allocator's rounding; an estimate.
	cachedOverhead = 128
)

// Cache keeps verified data blocks of many files in memory, within a bound of
// bytes that it never exceeds.
//
// The way to a block does not lead through the cache: each Reader has a slot per
// data block, and a hit is one atomic load of that slot. The cache only decides
// which slots are filled, by the CLOCK algorithm per shard. So a hit takes no
// lock and hashes nothing. Blocks are immutable and handed out by reference; one
// that is dropped while somebody reads it lives until that reader is done.
//
// Safe for concurrent use.
type Cache struct {
	shards []cacheShard
	files  atomic.Uint64
}

type cacheShard struct {
	mu       sync.Mutex
	capacity int64
	used     int64
	ring     []*cached // CLOCK, swept from hand
	hand     int

	hits, misses atomic.Uint64
	_            [40]byte // the counters of two shards share no cache line
}

// cached is a block in the cache.
type cached struct {
	block   block
	slot    *cacheSlot
	touched atomic.Bool // since the hand last passed
	at      int         // in the ring; guarded by the shard
}

// cacheSlot is where a reader finds a block, nil if it is not cached. It is
// filled and emptied under the lock of its shard.
type cacheSlot = atomic.Pointer[cached]

func (c *cached) bytes() int64 { return int64(len(c.block.data)) + cachedOverhead }

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
	for i := range c.shards {
		shard := &c.shards[i]
		s.Hits += shard.hits.Load()
		s.Misses += shard.misses.Load()
		s.Capacity += shard.capacity
		shard.mu.Lock()
		s.Bytes += shard.used
		shard.mu.Unlock()
	}
	return s
}

// fileCache is the view of a cache that one open file has. Its methods work on
// the zero value, which caches nothing.
type fileCache struct {
	cache *Cache
	base  uint64 // spreads the blocks of different files over the shards
	slots []cacheSlot
}

func newFileCache(c *Cache, blocks int) fileCache {
	if c == nil {
		return fileCache{}
	}
	return fileCache{cache: c, base: c.files.Add(1) * 7, slots: make([]cacheSlot, blocks)}
}

func (f *fileCache) shard(i int) *cacheShard {
	return &f.cache.shards[(f.base+uint64(i))%uint64(len(f.cache.shards))]
}

// lookup returns data block i if it is cached, and counts a hit or a miss.
func (f *fileCache) lookup(i int) (b block, ok bool) {
	if f.cache == nil {
		return b, false
	}
	c := f.slots[i].Load()
	if c == nil {
		f.shard(i).misses.Add(1)
		return b, false
	}
	if !c.touched.Load() { // a store would take the cache line from the others
		c.touched.Store(true)
	}
	f.shard(i).hits.Add(1)
	return c.block, true
}

// peek returns data block i if it is cached, and leaves no trace.
func (f *fileCache) peek(i int) (b block, ok bool) {
	if f.cache == nil {
		return b, false
	}
	c := f.slots[i].Load()
	if c == nil {
		return b, false
	}
	return c.block, true
}

// insert caches data block i, which takes over b: its bytes must not change any
// more.
func (f *fileCache) insert(i int, b block) {
	if f.cache == nil {
		return
	}
	f.shard(i).insert(&cached{block: b, slot: &f.slots[i]})
}

// spare reports whether there is room for a block of so many bytes.
func (f *fileCache) spare(i, bytes int) bool {
	return f.cache != nil && f.shard(i).spare(int64(bytes)+cachedOverhead)
}

// evict drops the blocks of the file.
func (f *fileCache) evict() {
	for i := range f.slots {
		if f.slots[i].Load() != nil {
			f.shard(i).evict(&f.slots[i])
		}
	}
}

func (s *cacheShard) spare(bytes int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used+bytes <= s.capacity
}

func (s *cacheShard) insert(c *cached) {
	if c.bytes() > s.capacity {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.slot.Load() != nil {
		return // another reader was faster
	}
	for s.used+c.bytes() > s.capacity {
		if s.hand >= len(s.ring) {
			s.hand = 0
		}
		if victim := s.ring[s.hand]; !victim.touched.Swap(false) {
			s.removeLocked(victim)
		} else {
			s.hand++
		}
	}
	c.at = len(s.ring)
	s.ring = append(s.ring, c)
	s.used += c.bytes()
	c.slot.Store(c)
}

func (s *cacheShard) evict(slot *cacheSlot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := slot.Load(); c != nil {
		s.removeLocked(c)
	}
}

// removeLocked empties the slot of c; the last one of the ring takes its place.
func (s *cacheShard) removeLocked(c *cached) {
	c.slot.Store(nil)
	s.used -= c.bytes()
	last := len(s.ring) - 1
	s.ring[c.at] = s.ring[last]
	s.ring[c.at].at = c.at
	s.ring[last] = nil
	s.ring = s.ring[:last]
}
