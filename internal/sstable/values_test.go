package sstable

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
)

// valueAt returns a pointer into a file and a value that differs from all others.
func valueAt(file kv.FileNum, i, length int) (kv.ValuePointer, []byte) {
	value := bytes.Repeat(fmt.Appendf(nil, "%d/%d,", file, i), length)[:length]
	return kv.ValuePointer{File: file, Offset: uint64(i) << 15, Length: uint32(length)}, value
}

// check requires that the queues, the slots and the map of each shard agree.
func (c *Cache) check(t testing.TB) {
	t.Helper()
	for n := range c.shards {
		s := &c.shards[n]
		used, values, linked := int64(len(s.values.seen))*seenBytes, 0, 0
		for at := uint32(2); at < uint32(len(s.places)); at++ {
			e := &s.places[at]
			used += int64(e.bytes)
			place := uint32(0)
			if e.file == nil {
				values++
				place = s.values.places[e.key]
			} else {
				place = e.slot().place
			}
			if place != at {
				t.Fatalf("place %d believes that it is %d", at, place)
			}
		}
		for q := short; len(s.places) > 0 && q <= long; q++ {
			for at := s.places[q].newer; at != uint32(q); at = s.places[at].newer {
				if s.places[at].queue != q {
					t.Fatalf("place %d is linked in the wrong queue", at)
				}
				linked++
			}
		}
		require.Equal(t, max(len(s.places)-2, 0), linked)
		require.Len(t, s.values.places, values)
		require.Equal(t, used, s.used)
		require.LessOrEqual(t, s.used, s.capacity)
	}
}

func TestValuesAreFoundByTheirPlace(t *testing.T) {
	c := NewCache(1 << 20)
	v, other := c.NewValues(), c.NewValues()
	p, value := valueAt(7, 1, 1000)
	require.Nil(t, v.get(p, true))
	given := bytes.Clone(value)
	v.Add(p, given)
	clear(given) // it belongs to the caller
	require.Equal(t, value, v.get(p, true))
	assert.Nil(t, v.get(p, false))
	assert.Nil(t, other.get(p, true), "of another partition")
	for _, q := range []kv.ValuePointer{
		{File: 8, Offset: p.Offset, Length: p.Length}, {File: 7, Offset: p.Offset + 1, Length: p.Length}, {File: 7, Offset: p.Offset, Length: p.Length - 1},
	} {
		assert.Nil(t, v.get(q, true))
	}
	v.Add(p, value)
	stats := c.Stats()
	assert.EqualValues(t, 1, stats.ValueHits)
	assert.EqualValues(t, 5, stats.ValueMisses)
	assert.Zero(t, stats.Misses)
	assert.EqualValues(t, 1024+valueOverhead, stats.Bytes, "once, with what the allocator rounds up")
	c.check(t)
}

// Until the cache is full each value is admitted, then those that are missed twice.
func TestAFullCacheAdmitsWhatIsMissedTwice(t *testing.T) {
	c := NewCache(256 << 10)
	v := c.NewValues()
	full := 0
	for ; ; full++ {
		p, value := valueAt(1, full, 1000)
		if v.Add(p, value); v.get(p, true) == nil {
			break
		}
	}
	require.Greater(t, full, 200)
	p, value := valueAt(1, full, 1000)
	v.Add(p, value)
	require.Equal(t, value, v.get(p, true))
	c.check(t)
}

func TestReadsThatDoNotComeBackDropNothing(t *testing.T) {
	c := NewCache(256 << 10)
	v := c.NewValues()
	const kept = 200
	for i := range kept {
		v.Add(valueAt(1, i, 1000))
	}
	for i := range 5000 {
		v.Add(valueAt(2, i, 1000))
	}
	for i := range kept {
		p, value := valueAt(1, i, 1000)
		require.Equal(t, value, v.get(p, true), "although it was used by nothing")
	}
}

// Among many values that come back seldom, those that come back often stay.
func TestTheCacheKeepsTheValuesThatAreUsed(t *testing.T) {
	c := NewCache(256 << 10)
	v := c.NewValues()
	const often, seldom = 100, 2000
	rng := rand.New(rand.NewPCG(1, 1))
	read := func(i int) bool {
		p, value := valueAt(1, i, 1000)
		if got := v.get(p, true); got != nil {
			return true
		}
		v.Add(p, value)
		return false
	}
	for i := range seldom {
		read(often + i) // fills the cache
	}
	hits, rounds := 0, 0
	for n := range 6000 {
		read(often + rng.IntN(seldom))
		if hit := read(rng.IntN(often)); n >= 3000 {
			rounds++
			if hit {
				hits++
			}
		}
	}
	require.Greater(t, hits, rounds*95/100)
	c.check(t)
}

func TestDroppingAFileDropsItsValuesOnly(t *testing.T) {
	c := NewCache(4 << 20)
	v, other := c.NewValues(), c.NewValues()
	for i := range 500 {
		for file := range kv.FileNum(3) {
			v.Add(valueAt(1+file, i, 300))
		}
		other.Add(valueAt(2, i, 300))
	}
	v.Drop(2)
	v.Drop(9)
	c.check(t)
	for i := range 500 {
		for file := range kv.FileNum(3) {
			p, value := valueAt(1+file, i, 300)
			if file == 1 {
				require.Nil(t, v.get(p, true))
				continue
			}
			require.Equal(t, value, v.get(p, true))
		}
		p, value := valueAt(2, i, 300)
		require.Equal(t, value, other.get(p, true))
	}
	for file := range kv.FileNum(3) {
		v.Drop(1 + file)
	}
	other.Drop(2)
	require.Zero(t, c.Stats().Bytes)
}

func TestValuesThatAreNotCached(t *testing.T) {
	for name, c := range map[string]*Cache{"none": nil, "empty": NewCache(0), "too small": NewCache(500), "large": NewCache(64 << 20)} {
		v := c.NewValues()
		p, value := valueAt(1, 0, 1000)
		if name == "large" {
			p, value = valueAt(1, 0, maxCachedValue+1)
		}
		for range 3 {
			v.Add(p, value)
			require.Nil(t, v.get(p, true), name)
		}
		v.Drop(1)
	}
	v := NewCache(1 << 20).NewValues()
	p, value := valueAt(1<<keyBits, 0, 100)
	v.Add(p, value)
	require.Nil(t, v.get(p, true), "its number could be that of a file of another partition")
	p, value = valueAt(1, 0, 100)
	v.Add(p, value[:99])
	require.Nil(t, v.get(p, true), "not the value of the pointer")
}

// Values and blocks of any size share one bound, and what is found is what was added.
func TestValuesAndBlocksShareTheCache(t *testing.T) {
	for _, capacity := range []int64{700, 20_000, 3 << 20} {
		c := NewCache(capacity)
		v := c.NewValues()
		rng := rand.New(rand.NewPCG(uint64(capacity), 1))
		f := newFileCache(c, 400, func(i int) int { return 10 + i })
		hits := 0
		for n := range 6000 {
			i := min(rng.IntN(400), rng.IntN(400))
			switch {
			case n%1000 == 999:
				v.Drop(kv.FileNum(1 + i%3))
			case n%1500 == 1499:
				f.evict()
			case n%2 == 0:
				if f.lookup(i) == nil {
					f.insert(i, testBlock(10+i))
				}
			default:
				p, value := valueAt(kv.FileNum(1+i%3), i, 1+i*7)
				if got := v.get(p, true); got != nil {
					require.Equal(t, value, got)
					hits++
				} else {
					v.Add(p, value)
				}
			}
			if n%100 == 0 {
				c.check(t)
			}
		}
		require.True(t, hits > 0 || capacity < 20_000)
	}
}

func TestValuesAreSafeForConcurrentUse(t *testing.T) {
	c := NewCache(2 << 20) // two shards
	v := c.NewValues()
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for i := range 1500 {
				n := (i*7 + worker*1001) % 700
				p, value := valueAt(kv.FileNum(1+n%4), n, 1000+n%9)
				if got := v.get(p, true); got == nil {
					v.Add(p, value)
				} else if !bytes.Equal(value, got) {
					t.Errorf("value %d is another one", n)
				}
				if i%500 == 0 {
					v.Drop(kv.FileNum(1 + worker))
				}
			}
		})
	}
	wg.Wait()
	c.check(t)
}

// A lookup that may not wait has a separated value only from the cache; one that may takes it
// from there or returns the pointer.
func TestQueriesTakeValuesFromTheCache(t *testing.T) {
	entries := withPointers(sweepEntries())
	f, _ := build(t, entries, WriterOptions{BlockBytes: 160})
	cache := NewCache(4 << 20)
	r := open(t, f, cache)
	values := cache.NewValues()
	apart := map[kv.ValuePointer][]byte{}
	for i := range entries {
		if p, ok := kv.ParseValuePointer(entries[i].Value); entries[i].Apart && ok {
			apart[p] = bytes.Repeat([]byte{byte(i)}, int(p.Length))
		}
	}
	asks := func(q *Query, searched bool) []Ask {
		return []Ask{{Reader: r, Query: q, Values: values, Searched: searched}}
	}
	none := kv.NewReadBudget(-1)
	none.Take(1)
	require.True(t, none.Spent())
	for _, cached := range []bool{false, true} {
		for _, blocks := range []bool{false, true} {
			answered := 0
			for i := range entries {
				e := &entries[i]
				p, ok := kv.ParseValuePointer(e.Value)
				if !e.Apart || !ok {
					continue
				}
				if !blocks {
					r.cache.evict()
				}
				want := query(e.Key, e.Seq)
				r.Get(&want)
				if !want.Apart {
					continue // a range tombstone hides it
				}
				if !blocks {
					r.cache.evict()
				}
				if cached {
					values.Add(p, apart[p])
					want.Apart, want.Value = false, apart[p]
				}
				answered++

				q := query(e.Key, e.Seq)
				one := asks(&q, false)
				GetCached(one)
				require.Equal(t, cached && blocks, !one[0].Missing)
				if one[0].Missing {
					require.Equal(t, query(e.Key, e.Seq), q)
					GetBatch(one)
				}
				require.Equal(t, want, q)

				q = query(e.Key, e.Seq)
				q.Budget = none
				GetBatch(asks(&q, false))
				require.ErrorIs(t, q.Err, kv.ErrBudgetSpent)
				require.Nil(t, q.Value)

				if !blocks {
					r.cache.evict()
				}
				q = query(e.Key, e.Seq)
				GetBatch(asks(&q, true))
				require.Equal(t, !cached || blocks, q.Apart, "it was searched unless the block had to be read first")
			}
			require.Positive(t, answered)
		}
	}
}
