package sstable

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

const (
	maxCacheShards = 16
	minShardBytes  = 1 << 20
	// cachedOverhead is what a cached block costs beside its bytes: its place in a
	// queue and the allocator's rounding; an estimate.
	cachedOverhead = 64
	// newShare of a shard, one in so many bytes, is for blocks that still have to prove
	// themselves.
	newShare = 10
	// maxChances is how many blocks an insert lets go on because they were used, before it
	// drops one all the same. It bounds how long the insert holds the lock, and is more than
	// what a steady load comes to.
	maxChances = 1024
	// maxUses is how far uses of a block are counted, in two bits.
	maxUses = 3
)

// Cache keeps verified data blocks of many files in memory, within a bound of
// bytes that it never exceeds.
//
// The way to a block does not lead through the cache: each Reader has a slot per
// data block, and a hit is one atomic load of that slot, which leads to the bytes of
// the block without a detour. The cache only decides which slots are filled, shard
// by shard (see cacheShard). So a hit takes no lock, hashes nothing, and writes to no
// memory that other processors read, but for a bit now and then. Blocks are
// immutable and handed out by reference; one that is dropped while somebody reads it
// lives until that reader is done.
//
// Safe for concurrent use.
type Cache struct {
	shards []cacheShard
	files  atomic.Uint64
	counts counts
}

// cacheShard chooses what stays, as S3-FIFO does (Yang et al., "FIFO queues are all you
// need for cache eviction", SOSP 2023). Blocks come into a short queue. At its end, a
// block that was used goes on to the long queue, any other is dropped. At the end of
// the long queue, a block that was used begins again, with one use less. A block that
// comes back soon after it was dropped from the short queue goes to the long one at
// once; where the paper has a table of such ghosts, an empty slot remembers when.
// Other differences: one use is enough to leave the short queue, and where all were used,
// a block is dropped nevertheless (maxChances).
type cacheShard struct {
	mu       sync.Mutex
	capacity int64
	used     int64
	usedNew  int64 // of used, what the short queue holds
	dropped  uint32
	// places holds both queues, lists in both directions, without gaps. The first two
	// places are no blocks but the ends of the queues. Empty until the first insert.
	places []cached
	_      [64]byte // two shards share no cache line
}

// queue is one of the two, and the place in front of its oldest block and behind its
// newest.
type queue uint32

const (
	short queue = iota
	long
)

// cached is a block in the cache: block i of a file.
type cached struct {
	file         *fileCache
	i            uint32
	bytes        uint32 // with the overhead
	queue        queue
	older, newer uint32 // places
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
	uses  []atomic.Uint64 // of the blocks, two bits for each
}

// cacheSlot is where a reader finds a block. It is filled and emptied under the lock
// of its shard.
type cacheSlot struct {
	first  atomic.Pointer[byte] // of the contents; nil if the block is not cached
	length uint32               // of the contents; never changes
	// place, guarded by the shard, says where the block is in its queue. If it is not
	// cached: which drop from the short queue was its last one, 0 if none was.
	place uint32
}

// init makes it the view of a file with these blocks, whose contents have the lengths
// that the index says.
func (f *fileCache) init(c *Cache, x *index) {
	if c == nil {
		return
	}
	f.cache, f.base = c, c.files.Add(1)*7
	f.slots, f.uses = make([]cacheSlot, x.blocks()), make([]atomic.Uint64, x.blocks()/32+1)
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
	word, shift := &f.uses[i/32], i%32*2
	// A write would take the cache line from the others. One that fails is not missed.
	if uses := word.Load(); uses>>shift&maxUses < maxUses {
		word.CompareAndSwap(uses, uses+1<<shift)
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

// takeUse reports whether block i was used, and counts one use less.
func (f *fileCache) takeUse(i uint32) bool {
	word, shift := &f.uses[i/32], i%32*2
	for {
		uses := word.Load()
		if uses>>shift&maxUses == 0 {
			return false
		}
		if word.CompareAndSwap(uses, uses-1<<shift) {
			return true
		}
	}
}

// forgetUses makes block i one that was not used.
func (f *fileCache) forgetUses(i uint32) { f.uses[i/32].And(^(uint64(maxUses) << (i % 32 * 2))) }

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
	if len(s.places) == 0 {
		s.places = []cached{short: {}, long: {older: uint32(long), newer: uint32(long)}}
	}
	for chances := maxChances; s.used+int64(c.bytes) > s.capacity; chances-- {
		s.shrinkLocked(chances > 0)
	}
	if slot.place != 0 && s.dropped-slot.place < uint32(len(s.places)) {
		c.queue = long // a ghost
	}
	slot.place = uint32(len(s.places))
	s.places = append(s.places, c)
	s.joinLocked(slot.place)
	s.used += int64(c.bytes)
	slot.first.Store(unsafe.SliceData(contents))
}

// shrinkLocked drops the oldest block of a queue; or, if it may, lets one that was used
// go on.
// REQUIRES: a block is cached.
func (s *cacheShard) shrinkLocked(mayGoOn bool) {
	from := long
	if s.usedNew > s.capacity/newShare || s.places[long].newer == uint32(long) {
		from = short
	}
	at := s.places[from].newer
	c := &s.places[at]
	switch slot := c.slot(); {
	case mayGoOn && c.file.takeUse(c.i):
		s.leaveLocked(at)
		c.queue = long
		s.joinLocked(at)
		if from == short {
			c.file.forgetUses(c.i)
		}
	case from == short:
		s.removeLocked(at)
		s.dropped = max(s.dropped+1, 1)
		slot.place = s.dropped
	default:
		s.removeLocked(at)
	}
}

func (s *cacheShard) evict(f *fileCache, i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.slots[i].first.Load() != nil {
		s.removeLocked(f.slots[i].place)
	}
}

// joinLocked makes the block at a place the newest of its queue.
func (s *cacheShard) joinLocked(at uint32) {
	c := &s.places[at]
	c.older, c.newer = s.places[c.queue].older, uint32(c.queue)
	s.linkLocked(at)
	if c.queue == short {
		s.usedNew += int64(c.bytes)
	}
}

// leaveLocked takes the block at a place out of its queue.
func (s *cacheShard) leaveLocked(at uint32) {
	c := &s.places[at]
	s.places[c.older].newer, s.places[c.newer].older = c.newer, c.older
	if c.queue == short {
		s.usedNew -= int64(c.bytes)
	}
}

// linkLocked makes the neighbours of a place point to it.
func (s *cacheShard) linkLocked(at uint32) {
	c := &s.places[at]
	s.places[c.older].newer, s.places[c.newer].older = at, at
}

// removeLocked empties the slot of the block at a place. The block at the last place
// moves there.
func (s *cacheShard) removeLocked(at uint32) {
	s.leaveLocked(at)
	c := s.places[at]
	c.slot().first.Store(nil)
	c.slot().place = 0
	c.file.forgetUses(c.i)
	s.used -= int64(c.bytes)
	last := uint32(len(s.places) - 1)
	if at != last {
		s.places[at] = s.places[last]
		s.places[at].slot().place = at
		s.linkLocked(at)
	}
	s.places[last] = cached{}
	s.places = s.places[:last]
}
