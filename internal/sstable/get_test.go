package sstable

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
)

func TestGetPassesOverWhatIsDone(t *testing.T) {
	f, _ := build(t, numbered(10, 5), WriterOptions{})
	r := open(t, f, nil)
	f.takeReads()
	want := errors.New("from a newer file")
	qs := []Query{query([]byte("key00002"), kv.MaxSeqNum), query([]byte("key00004"), kv.MaxSeqNum)}
	qs[0].Done, qs[0].Err = true, want
	qs[1].Done, qs[1].Kind, qs[1].Seq = true, kv.KindDelete, 99
	before := fmt.Sprint(qs)
	r.Get(&qs[0])
	r.Get(&qs[1])
	getBatch(r, qs)
	require.Equal(t, before, fmt.Sprint(qs))
	require.Empty(t, f.takeReads())
}

func TestGetCopiesTheValueIntoTheRoomGiven(t *testing.T) {
	f, _ := build(t, numbered(10, 5), WriterOptions{})
	r := open(t, f, NewCache(1<<20))
	room := make([]byte, 3, 64)
	q := query([]byte("key00002"), kv.MaxSeqNum)
	q.Value = room
	r.Get(&q)
	require.Equal(t, "bbbbb", string(q.Value))
	require.Same(t, &room[0], &q.Value[0])
	q.Value[0] = 'X'
	got, err := get(r, q.Key, q.At)
	require.NoError(t, err)
	require.Equal(t, "bbbbb", got.value, "the asker's copy is its own")
}

func TestAReadErrorIsNotAnAbsence(t *testing.T) {
	eio := errors.New("input/output error")
	entries := numbered(100, 100)
	f, _ := build(t, entries, WriterOptions{})
	r := open(t, f, NewCache(1<<20))
	f.onRead = func([]byte, int64) error { return eio }
	_, err := get(r, entries[7].Key, kv.MaxSeqNum)
	require.ErrorIs(t, err, eio)
	require.ErrorContains(t, err, f.Name())
	qs := questions(entries)
	getBatch(r, qs)
	failed := 0
	for i := range qs {
		if qs[i].Err != nil {
			require.ErrorIs(t, qs[i].Err, eio)
			require.True(t, qs[i].Done, "older files must not be asked")
			failed++
			continue
		}
		require.Equal(t, oracle(entries, qs[i].Key, qs[i].At), resultOf(&qs[i]))
	}
	require.GreaterOrEqual(t, failed, 2*len(entries))

	f.onRead = nil // the error was not cached
	requireAnswers(t, r, entries)
}

func TestGetBatchAnswersLikeGet(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 40 {
		entries := randomEntries(rng, 1+rng.IntN(300))
		f, _ := build(t, entries, WriterOptions{BlockBytes: 1 + rng.IntN(300)})
		all := questions(entries)
		for _, cache := range []*Cache{nil, NewCache(2_000), NewCache(1 << 20)} {
			r := open(t, f, cache)
			for range 10 {
				qs := make([]Query, rng.IntN(60))
				for i := range qs {
					qs[i] = all[rng.IntN(len(all))] // with duplicates
				}
				getBatch(r, qs)
				for i := range qs {
					want, err := get(r, qs[i].Key, qs[i].At)
					require.NoError(t, err)
					require.NoError(t, qs[i].Err)
					require.Equal(t, want, resultOf(&qs[i]))
				}
			}
		}
	}
}

func TestGetBatchReadsEachBlockOnceAndNeighboursTogether(t *testing.T) {
	entries := numbered(4_000, 100)
	f, _ := build(t, entries, WriterOptions{})
	r := open(t, f, NewCache(16<<20))
	first := func(block int) (entry int) {
		for i := range block {
			entry += int(r.index.fields(i).entries)
		}
		return entry
	}
	ask := func(positions ...int) []int {
		var qs []Query
		for _, p := range positions {
			qs = append(qs, query(entries[p].Key, kv.MaxSeqNum))
		}
		f.takeReads()
		getBatch(r, qs)
		for i, p := range positions {
			require.NoError(t, qs[i].Err)
			require.Equal(t, string(entries[p].Value), string(qs[i].Value))
		}
		return f.takeReads()
	}
	_, block := r.index.span(0, 0)
	reads := ask(1, 0, 5, 1, 1)
	require.Equal(t, []int{block}, reads, "one block, one read")
	require.Empty(t, ask(0, 1, 2, 3), "now it is cached")

	reads = ask(first(20), first(21)+5, first(22)+9)
	require.Len(t, reads, 1, "neighbours are read together")
	require.Greater(t, reads[0], 2*block)
	reads = ask(first(40), first(42)+5)
	require.Len(t, reads, 1, "also over a gap of one block")
	require.Empty(t, ask(first(40), first(42)+5))
	reads = ask(first(41))
	require.Len(t, reads, 1, "the gap was not cached")
	require.Len(t, ask(first(60), first(80), first(100)), 3, "distant blocks are read apart")
}

func TestGetBatchFailsOnlyWhatNeedsTheDamagedBlock(t *testing.T) {
	entries := numbered(400, 100)
	f, _ := build(t, entries, WriterOptions{})
	r := open(t, f, nil)
	start, length := r.index.span(3, 3)
	f.data[start+int64(length)/2] ^= 4
	qs := make([]Query, len(entries))
	for i := range qs {
		qs[i] = query(entries[i].Key, kv.MaxSeqNum)
	}
	getBatch(r, qs)
	failed := 0
	for i := range qs {
		if r.index.find(qs[i].Key, qs[i].At) == 3 {
			var damage *kv.CorruptionError
			require.ErrorAs(t, qs[i].Err, &damage)
			require.Equal(t, start, damage.Offset)
			require.Equal(t, f.Name(), damage.File)
			failed++
			continue
		}
		require.NoError(t, qs[i].Err)
		require.Equal(t, entries[i].Value, qs[i].Value)
	}
	require.EqualValues(t, r.index.fields(3).entries, failed)
}

func TestGetBatchReadsDistantBlocksAtTheSameTime(t *testing.T) {
	entries := numbered(4_000, 100)
	f, _ := build(t, entries, WriterOptions{})
	synctest.Test(t, func(t *testing.T) {
		r := open(t, f, nil)
		const distant = 5
		var together sync.WaitGroup // every read waits until all have begun
		together.Add(distant)
		f.onRead = func([]byte, int64) error {
			together.Done()
			together.Wait()
			return nil
		}
		qs := make([]Query, distant)
		for i := range qs {
			qs[i] = query(entries[i*800].Key, kv.MaxSeqNum)
		}
		getBatch(r, qs)
		for i := range qs {
			require.NoError(t, qs[i].Err)
			require.Equal(t, entries[i*800].Value, qs[i].Value)
		}
	})
}

// Fast reads do not get a goroutine each.
func TestGetBatchBecomesConcurrentWhenReadsAreSlow(t *testing.T) {
	entries := numbered(4_000, 100)
	f, _ := build(t, entries, WriterOptions{})
	synctest.Test(t, func(t *testing.T) {
		var latency time.Duration
		var running, most atomic.Int32
		r := open(t, f, nil)
		f.onRead = func([]byte, int64) error {
			if n := running.Add(1); n > most.Load() {
				most.Store(n)
			}
			time.Sleep(latency)
			running.Add(-1)
			return nil
		}
		depth := func() int {
			most.Store(0)
			qs := make([]Query, 30)
			for i := range qs {
				qs[i] = query(entries[i*130].Key, kv.MaxSeqNum)
			}
			getBatch(r, qs)
			return int(most.Load())
		}
		r.slow.Store(false)
		require.Equal(t, 1, depth())
		latency = 100 * time.Microsecond
		require.Equal(t, readDepth, depth(), "the first slow read is enough")
		start := time.Now()
		require.Equal(t, readDepth, depth())
		require.Equal(t, 4*latency, time.Since(start), "30 reads, eight at a time")
		latency = 0
		depth()
		require.Equal(t, 1, depth())
	})
}

// The device may fail to read a sector: then one read of several blocks fails as a whole.
func TestGetBatchFailsOnlyWhatNeedsTheUnreadableBlock(t *testing.T) {
	eio := errors.New("input/output error")
	entries := numbered(400, 100)
	f, _ := build(t, entries, WriterOptions{})
	r := open(t, f, nil)
	start, length := r.index.span(3, 3)
	f.onRead = func(p []byte, offset int64) error {
		if offset < start+int64(length) && start < offset+int64(len(p)) {
			return eio
		}
		return nil
	}
	for i := range entries {
		first := max(0, i-20)
		qs := make([]Query, i-first+1)
		for j := range qs {
			qs[j] = query(entries[first+j].Key, kv.MaxSeqNum)
		}
		getBatch(r, qs)
		for j := range qs {
			if r.index.find(qs[j].Key, qs[j].At) == 3 {
				require.ErrorIs(t, qs[j].Err, eio)
			} else {
				require.NoError(t, qs[j].Err)
				require.Equal(t, entries[first+j].Value, qs[j].Value)
			}
		}
	}
}

func TestConcurrentReadersAgree(t *testing.T) {
	entries := numbered(2_000, 50)
	f, _ := build(t, entries, WriterOptions{BlockBytes: 512})
	r := open(t, f, NewCache(40_000)) // a fraction of the file: blocks come and go
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(worker), 0))
			for range 100 {
				qs := make([]Query, 1+rng.IntN(40))
				for i := range qs {
					qs[i] = query(entries[rng.IntN(len(entries))].Key, kv.MaxSeqNum)
				}
				getBatch(r, qs)
				for i := range qs {
					if want := oracleAt(entries, qs[i].Key); qs[i].Err != nil || resultOf(&qs[i]) != want {
						t.Errorf("key %q: got %v, want %v, error %v", qs[i].Key, resultOf(&qs[i]), want, qs[i].Err)
						return
					}
				}
				start := rng.IntN(len(entries))
				it := r.NewIterator(IterOptions{FillCache: worker%2 == 0, Readahead: 4096})
				ok := it.SeekGE(entries[start].Key)
				for i := start; i < min(start+50, len(entries)); i++ {
					if !ok || string(it.Entry().Value) != string(entries[i].Value) {
						t.Errorf("scan from %d is wrong at %d: %v", start, i, it.Err())
						return
					}
					ok = it.Next()
				}
				if err := it.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.NoError(t, r.Close())
	require.Zero(t, r.cache.cache.Stats().Bytes)
}

// oracleAt is the oracle for entries made by numbered, without a scan of all of them.
func oracleAt(entries []kv.Entry, key []byte) result {
	var i int
	if _, err := fmt.Sscanf(string(key), "key%d", &i); err != nil {
		return result{}
	}
	e := entries[i/2]
	return result{done: true, kind: e.Kind, seq: e.Seq, value: string(e.Value)}
}
