package memtable

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
)

func rangeDelete(start, end string, seq kv.SeqNum) kv.Entry {
	return kv.Entry{Key: []byte(start), Value: []byte(end), Seq: seq, Kind: kv.KindRangeDelete}
}

func TestCoverFindsTheNewestRangeTombstoneUpToANumber(t *testing.T) {
	table := New(Options{})
	var m model
	for _, e := range []kv.Entry{rangeDelete("b", "f", 2), put("c", 3), rangeDelete("a", "d", 5), rangeDelete("c", "cc", 5)} {
		m.add(table, e)
	}
	for _, want := range []struct {
		key   string
		at    kv.SeqNum
		cover kv.SeqNum
	}{
		{"a", kv.MaxSeqNum, 5}, {"a", 4, 0}, {"b", 4, 2}, {"b", 1, 0}, {"c", 5, 5}, {"c", 4, 2},
		{"d", kv.MaxSeqNum, 2}, {"ez", 2, 2}, {"f", kv.MaxSeqNum, 0},
	} {
		for range 2 { // before and after they are folded
			assert.Equal(t, want.cover, table.Cover([]byte(want.key), want.at), "%v", want)
			table.RangeTombstones()
		}
	}
	assert.Equal(t, []kv.Entry{m[2], m[0], m[3]}, table.RangeTombstones().All())
	assert.Same(t, table.RangeTombstones(), table.RangeTombstones(), "nothing new, nothing done")
}

// TestManyRangeTombstonesStayInFewRuns adds them with and without folding in between.
func TestManyRangeTombstonesStayInFewRuns(t *testing.T) {
	testsize.OneGoroutine(t)
	const n = 700
	for _, foldEvery := range []int{n, 37, 1} {
		table := New(Options{})
		var m model
		rng := rand.New(rand.NewPCG(1, 1))
		for i := range n {
			start := rng.IntN(n)
			m.add(table, rangeDelete(fmt.Sprintf("%05d", start), fmt.Sprintf("%05d", start+1+rng.IntN(9)), kv.SeqNum(i+1)))
			if i%foldEvery == foldEvery-1 {
				require.Equal(t, i+1, table.RangeTombstones().Len())
			}
			s := table.ranges.Load()
			require.Equal(t, i+1, s.len())
			sum := 0
			for j, r := range s.runs {
				sum += r.Len()
				require.True(t, j == 0 || s.runs[j-1].Len() >= growth*r.Len(), "run %d after %d adds", j, i+1)
			}
			require.Equal(t, i+1, sum)
			if i%100 == 0 {
				key, at := fmt.Appendf(nil, "%05d", rng.IntN(n)), kv.SeqNum(rng.IntN(i+2))
				require.Equal(t, m.cover(key, at), table.Cover(key, at))
			}
		}
		require.ElementsMatch(t, m, table.RangeTombstones().All())
	}
}

func TestBytesCountsMarksAndRangeTombstones(t *testing.T) {
	require.EqualValues(t, unsafe.Sizeof(mark{}), markBytes)
	require.EqualValues(t, 2*(unsafe.Sizeof(kv.Entry{})+unsafe.Sizeof([]byte{})), rangeTombstoneBytes)
	table := New(Options{})
	var m model
	m.add(table, put("a", 1))
	before := table.Bytes()
	require.EqualValues(t, firstChunkBytes+8*firstSlots+refBytes+markBytes, before)
	m.add(table, rangeDelete("a", "b", 2)) // fits the first chunk
	require.EqualValues(t, rangeTombstoneBytes+refBytes, table.Bytes()-before)
}

// TestReadersSeeThePublishedRangeTombstones: a reader that learned a number finds the
// range tombstones up to it (I3), and a set once returned never changes.
func TestReadersSeeThePublishedRangeTombstones(t *testing.T) {
	const n = 3_000
	// Tombstone i covers the keys i and i-1.
	key := func(i kv.SeqNum) []byte { return fmt.Appendf(nil, "%05d", i) }
	table := New(Options{ChunkBytes: 1 << 10})
	var published atomic.Uint64
	var group sync.WaitGroup
	for seed := range uint64(2) {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(seed, 2))
			for at := kv.SeqNum(0); at < n; {
				at = kv.SeqNum(published.Load())
				if at == 0 {
					continue
				}
				i := 1 + kv.SeqNum(rng.IntN(int(at)))
				if !assert.Equal(t, i, table.Cover(key(i), i)) || !assert.Equal(t, min(i+1, at), table.Cover(key(i), at)) {
					return
				}
				if rng.IntN(16) > 0 {
					continue
				}
				taken := table.RangeTombstones()
				if !assert.GreaterOrEqual(t, taken.Len(), int(at)) || !assert.Equal(t, i, taken.Cover(key(i), i)) ||
					!assert.Zero(t, taken.Cover(key(kv.SeqNum(taken.Len())+1), kv.MaxSeqNum)) {
					return
				}
			}
		})
	}
	for i := kv.SeqNum(1); i <= n; i++ {
		e := rangeDelete(string(key(i-1)), string(key(i+1)), i)
		table.Add(0, &e)
		published.Store(uint64(i))
	}
	group.Wait()
}
