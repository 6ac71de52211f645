package sstable

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func testBlock(n int) block { return block{data: make([]byte, n)} }

func TestCacheStaysWithinItsBound(t *testing.T) {
	c := NewCache(10_000)
	f := newFileCache(c, 1000)
	for i := range 1000 {
		f.insert(i, testBlock(100+i))
		require.LessOrEqual(t, c.Stats().Bytes, int64(10_000))
	}
	require.Greater(t, c.Stats().Bytes, int64(8_000), "and uses it")
	require.EqualValues(t, 10_000, c.Stats().Capacity)
}

func TestCacheRefusesWhatIsLargerThanItself(t *testing.T) {
	f := newFileCache(NewCache(1_000), 2)
	f.insert(0, testBlock(100))
	f.insert(1, testBlock(1_000))
	_, ok := f.lookup(1)
	require.False(t, ok)
	_, ok = f.lookup(0)
	require.True(t, ok, "nothing was dropped for it")
}

func TestCacheKeepsWhatIsUsed(t *testing.T) {
	f := newFileCache(NewCache(10*(100+cachedOverhead)), 1000)
	f.insert(0, testBlock(100))
	for i := 1; i < 1000; i++ {
		_, ok := f.lookup(0)
		require.True(t, ok, "a block in use is not dropped for one that is not")
		f.insert(i, testBlock(100))
	}
}

func TestCacheCounts(t *testing.T) {
	c := NewCache(1 << 20)
	f := newFileCache(c, 2)
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

func TestClosingAFileEvictsItsBlocksOnly(t *testing.T) {
	c := NewCache(64 << 20)
	a, b := newFileCache(c, 100), newFileCache(c, 100)
	for i := range 100 {
		a.insert(i, testBlock(10))
		b.insert(i, testBlock(10))
	}
	a.evict()
	for i := range 100 {
		_, inA := a.peek(i)
		_, inB := b.peek(i)
		require.False(t, inA)
		require.True(t, inB)
	}
	require.EqualValues(t, 100*(10+cachedOverhead), c.Stats().Bytes)
	b.evict()
	require.Zero(t, c.Stats().Bytes)
}

func TestWithoutCacheNothingIsKept(t *testing.T) {
	for _, c := range []*Cache{nil, NewCache(0), NewCache(-1)} {
		f := newFileCache(c, 1)
		f.insert(0, testBlock(1))
		_, ok := f.lookup(0)
		require.False(t, ok)
		_, ok = f.peek(0)
		require.False(t, ok)
		f.evict()
	}
}

func TestCacheIsSafeForConcurrentUse(t *testing.T) {
	c := NewCache(3 << 20) // three shards
	files := []fileCache{newFileCache(c, 3000), newFileCache(c, 3000)}
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			f := &files[worker%2]
			for i := range 20_000 {
				n := (i*7 + worker*1001) % 3000
				if _, ok := f.lookup(n); !ok {
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
