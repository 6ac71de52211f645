package sstable

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

const (
	maxCacheShards = 16
	minShardBytes  = 1 << 20
	// cachedOverhead is the cost of a cached block besides its bytes: its queue entry and
	// the allocator's rounding. Estimated.
	cachedOverhead = 96
	// newShare: one in this many bytes of a shard is for the short queue.
	newShare = 10
	// maxChances is how many used blocks one insert requeues before it drops a block even
	// if it was used. It bounds how long the insert holds the lock, and exceeds what a
	// steady load needs.
	maxChances = 1024
	// maxUses is the largest use count of a block, which takes two bits.
	maxUses = 3
)

// Cache keeps verified data blocks of many files, and separated values, in memory, within
// a bound of bytes that it never exceeds. For values see Values; the rest is of blocks.
//
// Readers find blocks without the cache: each Reader has a slot per data block, and a
// hit is one atomic load of that slot, which points to the bytes of the block. The
// cache only decides which slots are filled, shard by shard (see cacheShard). So a hit
// takes no lock, computes no hash, and rarely writes to memory that other processors
// read: only while the block's use count is below maxUses. Blocks are immutable and
// lent by reference; the garbage collector frees a dropped block after its last reader.
//
// Safe for concurrent use.
type Cache struct {
	shards []cacheShard
	files  atomic.Uint64
	sets   atomic.Uint64 // of Values
	counts counts
}

// cacheShard evicts as S3-FIFO does (Yang et al., "FIFO queues are all you need for
// cache eviction", SOSP 2023). A new block enters a short queue. At its end, a block
// that was used moves to the long queue, any other is dropped. At the end of the long
// queue, a block that was used is requeued with one use less, any other is dropped. A
// block that returns soon after it was dropped from the short queue enters the long one
// at once; where the paper has a table of such ghosts, the empty slot records the drop.
// Other differences: one use is enough to leave the short queue, and if all blocks were
// used, one is dropped nevertheless (maxChances).
type cacheShard struct {
	mu       sync.Mutex
	capacity int64
	used     int64
	usedNew  int64 // of used, bytes in the short queue
	dropped  uint32
	// places holds both queues as doubly linked lists, without gaps. The first two places
	// are the ends of the queues and hold no blocks. Empty until the first insert.
	places []cached
	values valueShard
	_      [64]byte // two shards share no cache line
}

// queue identifies a queue. It is also the index of its sentinel in places, which links
// to its oldest and its newest block.
type queue uint8

const (
	short queue = iota
	long
)

// cached is a block in the cache, block i of a file, or a value.
type cached struct {
	file         *fileCache // nil: it is a value
	value        *byte      // the first of a value
	key          valueKey   // of a value
	i            uint32     // of a value: its length
	bytes        uint32     // with the overhead
	older, newer uint32     // places
	queue        queue
	uses         uint8 // of a value: see maxUses
}

func (c *cached) slot() *cacheSlot { return &c.file.slots[c.i] }

// CacheStats holds the counters of a cache.
type CacheStats struct {
	Hits, Misses uint64 // of point reads, and of the first blocks of scans that fill the cache
	// ValueHits and ValueMisses count the lookups of separated values. A read that misses may
	// look twice.
	ValueHits, ValueMisses uint64
	Bytes                  int64 // held now
	Capacity               int64
}

// NewCache returns a cache of at most this many bytes.
func NewCache(bytes int64) *Cache {
	bytes = max(bytes, 0)
	n := min(max(bytes/minShardBytes, 1), maxCacheShards)
	c := &Cache{shards: make([]cacheShard, n)}
	for i := range c.shards {
		c.shards[i].capacity = bytes / n
	}
	return c
}

// Stats returns the counters. They are read one after the other, not atomically
// together.
func (c *Cache) Stats() CacheStats {
	var s CacheStats
	s.Hits, s.Misses = c.counts.sum()
	for i := range c.shards {
		shard := &c.shards[i]
		s.Capacity += shard.capacity
		shard.mu.Lock()
		s.Bytes += shard.used
		s.ValueHits += shard.values.hits
		s.ValueMisses += shard.values.misses
		shard.mu.Unlock()
	}
	return s
}

// fileCache is one open file's view of a cache. Its methods work on the zero value,
// which caches nothing. It must not be copied.
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
	// place, guarded by the shard, is the block's index in places. If the block is not
	// cached: the number of its last drop from the short queue, 0 if there was none.
	place uint32
}

// init attaches f to c for a file with the data blocks of x.
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

// hit is lookup, but counts no miss.
func (f *fileCache) hit(i int) []byte {
	contents := f.peek(i)
	if contents == nil {
		return nil
	}
	word, shift := &f.uses[i/32], i%32*2
	// Skip the write at maxUses: it would take the cache line from other processors. A failed
	// CompareAndSwap loses one use, which is harmless.
	if uses := word.Load(); uses>>shift&maxUses < maxUses {
		word.CompareAndSwap(uses, uses+1<<shift)
	}
	f.cache.counts.mine().hits.Add(1)
	return contents
}

// peek returns the contents of data block i, nil if they are not cached. It counts
// neither a hit nor a use.
func (f *fileCache) peek(i int) []byte {
	if f.cache == nil {
		return nil
	}
	slot := &f.slots[i]
	first := slot.first.Load()
	if first == nil {
		return nil
	}
	return unsafe.Slice(first, slot.length) // #nosec G103 -- insert checked the length
}

// insert caches the contents of data block i and takes ownership: they must not change
// afterwards. It ignores contents of a length other than the index says.
func (f *fileCache) insert(i int, contents []byte) {
	if f.cache != nil && len(contents) == int(f.slots[i].length) {
		f.shard(i).insert(cached{file: f, i: uint32(i), bytes: uint32(len(contents)) + cachedOverhead}, contents)
	}
}

// spare reports whether a block of this many bytes fits without dropping another.
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

// takeUse reports whether block i has a use, and removes one.
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

// forgetUses sets the use count of block i to zero.
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
		return // another reader inserted it first
	}
	if !s.makeRoomLocked(int64(c.bytes)) {
		return
	}
	if slot.place != 0 && s.dropped-slot.place < uint32(len(s.places)) {
		c.queue = long // a ghost
	}
	slot.place = s.addLocked(c)
	slot.first.Store(unsafe.SliceData(contents)) // #nosec G103 -- a slice would not be one atomic word
}

// makeRoomLocked drops blocks and values until there is room for bytes. It reports false if
// there is none although none are left.
func (s *cacheShard) makeRoomLocked(bytes int64) bool {
	for chances := maxChances; s.used+bytes > s.capacity && len(s.places) > 2; chances-- {
		s.shrinkLocked(chances > 0)
	}
	return s.used+bytes <= s.capacity
}

// addLocked adds c to its queue and returns its place.
func (s *cacheShard) addLocked(c cached) (at uint32) {
	if len(s.places) == 0 {
		s.places = []cached{short: {}, long: {older: uint32(long), newer: uint32(long)}}
	}
	at = uint32(len(s.places))
	s.places = append(s.places, c)
	s.joinLocked(at)
	s.used += int64(c.bytes)
	return at
}

// shrinkLocked drops the oldest block of a queue or, if mayGoOn is set, requeues it if
// it was used.
// REQUIRES: a block or a value is cached.
func (s *cacheShard) shrinkLocked(mayGoOn bool) {
	from := long
	if s.usedNew > s.capacity/newShare || s.places[long].newer == uint32(long) {
		from = short
	}
	at := s.places[from].newer
	c := &s.places[at]
	switch {
	case mayGoOn && c.takeUse():
		s.leaveLocked(at)
		c.queue = long
		s.joinLocked(at)
		if from == short {
			c.forgetUses()
		}
	case from == short:
		file, i := c.file, c.i
		s.removeLocked(at)
		s.dropped = max(s.dropped+1, 1)
		if file != nil {
			file.slots[i].place = s.dropped
		}
	default:
		s.removeLocked(at)
	}
}

// takeUse reports whether a block or value has a use, and removes one.
func (c *cached) takeUse() bool {
	if c.file != nil {
		return c.file.takeUse(c.i)
	}
	if c.uses == 0 {
		return false
	}
	c.uses--
	return true
}

func (c *cached) forgetUses() {
	c.uses = 0
	if c.file != nil {
		c.file.forgetUses(c.i)
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

// leaveLocked unlinks the block at a place from its queue.
func (s *cacheShard) leaveLocked(at uint32) {
	c := &s.places[at]
	s.places[c.older].newer, s.places[c.newer].older = c.newer, c.older
	if c.queue == short {
		s.usedNew -= int64(c.bytes)
	}
}

// linkLocked makes the neighbours of a place link to it.
func (s *cacheShard) linkLocked(at uint32) {
	c := &s.places[at]
	s.places[c.older].newer, s.places[c.newer].older = at, at
}

// removeLocked removes the block or value at a place and empties its slot. The one at the
// last place moves into the gap.
func (s *cacheShard) removeLocked(at uint32) {
	s.leaveLocked(at)
	c := &s.places[at]
	s.used -= int64(c.bytes)
	if c.file == nil {
		delete(s.values.places, c.key)
	} else {
		c.slot().first.Store(nil)
		c.slot().place = 0
		c.forgetUses()
	}
	last := uint32(len(s.places) - 1)
	if at != last {
		s.places[at] = s.places[last]
		s.placedLocked(at)
		s.linkLocked(at)
	}
	s.places[last] = cached{}
	s.places = s.places[:last]
}

// placedLocked records that a block or value is now at this place.
func (s *cacheShard) placedLocked(at uint32) {
	if c := &s.places[at]; c.file == nil {
		s.values.places[c.key] = at
	} else {
		c.slot().place = at
	}
}
