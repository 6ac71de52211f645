package sstable

import (
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// testBlock returns contents to insert into a cache.
func testBlock(n int) []byte { return make([]byte, n) }

// newFileCache returns the cache of a file whose blocks have contents of these lengths.
func newFileCache(c *Cache, blocks int, length func(i int) int) *fileCache {
	x := index{prefixes: make([]uint64, blocks), offsets: []uint64{0}}
	for i := range blocks {
		x.offsets = append(x.offsets, x.offsets[i]+uint64(length(i)+trailerBytes))
	}
	f := &fileCache{}
	f.init(c, &x)
	return f
}

// all gives all blocks the same length.
func all(length int) func(int) int { return func(int) int { return length } }

func TestCacheStaysWithinItsBound(t *testing.T) {
	c := NewCache(10_000)
	f := newFileCache(c, 1000, func(i int) int { return 100 + i })
	for i := range 1000 {
		f.insert(i, testBlock(100+i))
		require.LessOrEqual(t, c.Stats().Bytes, int64(10_000))
	}
	require.Greater(t, c.Stats().Bytes, int64(8_000), "and uses it")
	require.EqualValues(t, 10_000, c.Stats().Capacity)
}

func TestCacheRefusesWhatIsLargerThanItself(t *testing.T) {
	f := newFileCache(NewCache(1_000), 2, func(i int) int { return 100 + 900*i })
	f.insert(0, testBlock(100))
	f.insert(1, testBlock(1_000))
	require.Nil(t, f.lookup(1))
	require.Len(t, f.lookup(0), 100, "nothing was dropped for it")
}

func TestCacheKeepsWhatIsUsed(t *testing.T) {
	f := newFileCache(NewCache(10*(100+cachedOverhead)), 1000, all(100))
	f.insert(0, testBlock(100))
	for i := 1; i < 1000; i++ {
		require.NotNil(t, f.lookup(0), "a block in use is not dropped for one that is not")
		f.insert(i, testBlock(100))
	}
}

// cacheModel models a shard with blocks of one length, on plain slices.
type cacheModel struct {
	room        int
	short, long []int // the oldest first
	uses        map[int]int
	drops       int         // from the short queue
	ghosts      map[int]int // per dropped block that has not returned, the number of its drop
}

func (m *cacheModel) has(block int) bool {
	return slices.Contains(m.short, block) || slices.Contains(m.long, block)
}

func (m *cacheModel) insert(block int) {
	for len(m.short)+len(m.long) == m.room {
		from := &m.long
		if len(m.short) > m.room/newShare || len(m.long) == 0 {
			from = &m.short
		}
		oldest := (*from)[0]
		used := m.uses[oldest] > 0
		uses := m.uses[oldest] - 1
		m.remove(oldest)
		switch {
		case used && from == &m.short:
			m.long = append(m.long, oldest)
		case used:
			m.long, m.uses[oldest] = append(m.long, oldest), uses
		case from == &m.short:
			m.drops++
			m.ghosts[oldest] = m.drops
		}
	}
	// The window of ghosts also counts the two ends of the queues.
	if n := m.ghosts[block]; n != 0 && m.drops-n < len(m.short)+len(m.long)+2 {
		m.long = append(m.long, block)
	} else {
		m.short = append(m.short, block)
	}
	delete(m.ghosts, block)
}

func (m *cacheModel) remove(block int) {
	delete(m.uses, block)
	is := func(b int) bool { return b == block }
	m.short, m.long = slices.DeleteFunc(m.short, is), slices.DeleteFunc(m.long, is)
}

func TestCacheKeepsWhatItsModelKeeps(t *testing.T) {
	const room, blocks, length = 20, 60, 100
	rng := rand.New(rand.NewPCG(1, 1))
	c := NewCache(room * (length + cachedOverhead))
	f := newFileCache(c, blocks, all(length))
	m := cacheModel{room: room, uses: map[int]int{}, ghosts: map[int]int{}}
	for range 20_000 {
		i := min(rng.IntN(blocks), rng.IntN(blocks))
		switch {
		case rng.IntN(100) == 0:
			f.shard(i).evict(f, i)
			m.remove(i)
		case m.has(i):
			m.uses[i] = min(m.uses[i]+1, maxUses)
			require.NotNil(t, f.lookup(i))
		default:
			m.insert(i)
			require.Nil(t, f.lookup(i))
			f.insert(i, testBlock(length))
		}
		for i := range blocks {
			if m.has(i) != (f.peek(i) != nil) {
				require.Failf(t, "another choice", "block %d: want it cached: %t", i, m.has(i))
			}
		}
	}
}

func TestCacheLooksForRoomForAWhileOnly(t *testing.T) {
	const room, length = 2 * maxChances, 100
	f := newFileCache(NewCache(room*(length+cachedOverhead)), room+2, all(length))
	useAll := func() (uses int) {
		for range maxUses {
			for i := range f.slots {
				f.lookup(i)
			}
		}
		return countUses(f)
	}
	for i := range room {
		f.insert(i, testBlock(length))
	}
	for i := room; i < room+2; i++ {
		before := useAll()
		f.insert(i, testBlock(length))
		require.NotNil(t, f.peek(i))
		require.LessOrEqual(t, before-countUses(f), maxUses*(maxChances+1), "a use is taken, or all when a block proves itself")
	}
}

func countUses(f *fileCache) (sum int) {
	for i := range f.slots {
		sum += int(f.uses[i/32].Load() >> (i % 32 * 2) & maxUses)
	}
	return sum
}

func TestCacheCounts(t *testing.T) {
	c := NewCache(1 << 20)
	f := newFileCache(c, 2, all(10))
	f.lookup(0)
	f.insert(0, testBlock(10))
	f.lookup(0)
	f.lookup(0)
	f.peek(0)
	f.peek(1)
	stats := c.Stats()
	assert.EqualValues(t, 2, stats.Hits)
	assert.EqualValues(t, 1, stats.Misses)
	assert.EqualValues(t, 10+cachedOverhead, stats.Bytes)
	f.insert(0, testBlock(10))
	assert.EqualValues(t, 10+cachedOverhead, c.Stats().Bytes, "a block that is there is not inserted again")
}

func TestConcurrentReadersAreAllCounted(t *testing.T) {
	const readers, each = 8, 1000
	c := NewCache(1 << 20)
	f := newFileCache(c, 2, all(10))
	f.insert(0, testBlock(10))
	var wg sync.WaitGroup
	for range readers {
		wg.Go(func() {
			for range each {
				f.lookup(0)
				f.lookup(1)
			}
		})
	}
	wg.Wait()
	stats := c.Stats()
	require.EqualValues(t, readers*each, stats.Hits)
	require.EqualValues(t, readers*each, stats.Misses)
}

// The contents in a slot always have the length that the index says.
func TestCacheIgnoresContentsOfAnotherLength(t *testing.T) {
	c := NewCache(1 << 20)
	f := newFileCache(c, 1, all(10))
	f.insert(0, testBlock(9))
	f.insert(0, testBlock(11))
	require.Nil(t, f.peek(0))
	require.Zero(t, c.Stats().Bytes)
}

func TestClosingAFileEvictsItsBlocksOnly(t *testing.T) {
	c := NewCache(64 << 20)
	a, b := newFileCache(c, 100, all(10)), newFileCache(c, 100, all(10))
	for i := range 100 {
		a.insert(i, testBlock(10))
		b.insert(i, testBlock(10))
	}
	a.evict()
	for i := range 100 {
		require.Nil(t, a.peek(i))
		require.NotNil(t, b.peek(i))
	}
	require.EqualValues(t, 100*(10+cachedOverhead), c.Stats().Bytes)
	b.evict()
	require.Zero(t, c.Stats().Bytes)
}

func TestWithoutCacheNothingIsKept(t *testing.T) {
	for _, c := range []*Cache{nil, NewCache(0), NewCache(-1)} {
		f := newFileCache(c, 1, all(1))
		f.insert(0, testBlock(1))
		require.Nil(t, f.lookup(0))
		require.Nil(t, f.peek(0))
		f.evict()
	}
}

func TestCacheIsSafeForConcurrentUse(t *testing.T) {
	c := NewCache(3 << 20) // three shards
	files := []*fileCache{newFileCache(c, 3000, all(2000)), newFileCache(c, 3000, all(2000))}
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			f := files[worker%2]
			for i := range 20_000 {
				n := (i*7 + worker*1001) % 3000
				if f.lookup(n) == nil {
					f.insert(n, testBlock(2000))
				}
				if i%5000 == 0 {
					f.evict()
				}
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, c.Stats().Bytes, int64(3<<20))
	for i := range files {
		files[i].evict()
	}
	require.Zero(t, c.Stats().Bytes)
}
