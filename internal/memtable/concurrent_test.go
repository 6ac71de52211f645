package memtable

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
)

// history is a sequence of writes that every goroutine can compute by itself:
// batch b writes batchOps different keys, all with sequence number b, and each value
// names its key and batch.
const (
	historyKeys = 64
	batchOps    = 4
)

func historyKey(i int) []byte { return fmt.Appendf(nil, "shared/key/%02d", i) }

// historyKeyOf returns which key operation op of batch b writes.
func historyKeyOf(b kv.SeqNum, op int) int {
	return (int(b)*7 + op*(historyKeys/batchOps)) % historyKeys
}

func historyEntry(b kv.SeqNum, op int) kv.Entry {
	i := historyKeyOf(b, op)
	e := kv.Entry{Key: historyKey(i), Seq: b, Kind: kv.KindPut}
	if (int(b)+op)%5 == 0 {
		e.Kind = kv.KindDelete
		return e
	}
	e.Value = binary.BigEndian.AppendUint64(make([]byte, int(b)%80, 100), uint64(b)<<8|uint64(i))
	return e
}

// newestIn returns the batch and operation that wrote key i last, up to batch
// at; 0 if none did.
func newestIn(at kv.SeqNum, i int) (kv.SeqNum, int) {
	for b := at; b > 0; b-- {
		for op := range batchOps {
			if historyKeyOf(b, op) == i {
				return b, op
			}
		}
	}
	return 0, 0
}

// TestReadersSeeExactlyThePublishedPrefix runs Get, iterators and WrittenSince
// beside the writer. Each reader learns the published number as a partition's readers
// do, and must then see all batches up to it and, at that number, nothing of later
// ones.
func TestReadersSeeExactlyThePublishedPrefix(t *testing.T) {
	batches := kv.SeqNum(3_000)
	if testsize.Reduced() {
		batches = 600
	}
	table := New(Options{ChunkBytes: 1 << 10})
	var published atomic.Uint64
	var group sync.WaitGroup
	done := func() bool { return kv.SeqNum(published.Load()) == batches }

	for seed := range uint64(2) {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(seed, 1))
			for last := false; !last; {
				last = done()
				at := kv.SeqNum(published.Load())
				at -= kv.SeqNum(rng.IntN(int(min(at, 20)) + 1)) // a snapshot of the past
				i := rng.IntN(historyKeys)
				var got kv.Entry
				found := table.Get(keyhash.Sum(historyKey(i)), historyKey(i), at, &got)
				b, op := newestIn(at, i)
				if !assert.Equal(t, b != 0, found) || (found && !assertEntry(t, historyEntry(b, op), got)) {
					return
				}
			}
		})
	}
	for range 2 {
		group.Go(func() {
			for last := false; !last; {
				last = done()
				before := kv.SeqNum(published.Load())
				if !checkPrefix(t, table.NewIterator(), before) {
					return
				}
			}
		})
	}
	group.Go(func() {
		rng := rand.New(rand.NewPCG(3, 1))
		for last := false; !last; {
			last = done()
			before := kv.SeqNum(published.Load())
			since := before - kv.SeqNum(rng.IntN(int(min(before, 100))+1))
			if !checkSuffix(t, table, since, before) {
				return
			}
		}
	})
	for b := kv.SeqNum(1); b <= batches; b++ {
		for op := range batchOps {
			e := historyEntry(b, op)
			table.Add(keyhash.Sum(e.Key), &e)
		}
		published.Store(uint64(b))
		if b%16 == 0 {
			runtime.Gosched() // so that the other goroutines run on a single core too
		}
	}
	table.Seal()
	group.Wait()
	checkPrefix(t, table.NewIterator(), batches)
	checkSuffix(t, table, 0, batches)
	require.Equal(t, int(batches)*batchOps, table.Len())
}

// checkPrefix checks that the iterator returns a prefix of the Adds that includes at
// least all batches up to complete, each entry once and in order, and the same
// entries backward.
func checkPrefix(t *testing.T, it kv.Iterator, complete kv.SeqNum) bool {
	seen := map[kv.SeqNum]int{}
	var newest kv.SeqNum
	var last kv.Entry
	var forth []kv.Entry
	for ok := it.First(); ok; ok = it.Next() {
		e := *it.Entry()
		if last.Key != nil && kv.Compare(last.Key, last.Seq, e.Key, e.Seq) >= 0 {
			return assert.Fail(t, "order", "%v before %v", last, e)
		}
		last = e
		forth = append(forth, e)
		seen[e.Seq]++
		newest = max(newest, e.Seq)
	}
	if !assert.GreaterOrEqual(t, newest, complete) {
		return false
	}
	for b := kv.SeqNum(1); b < newest; b++ {
		if seen[b] != batchOps {
			return assert.Fail(t, "batch torn apart", "%d entries of batch %d of %d", seen[b], b, newest)
		}
	}
	left := len(forth)
	for ok := it.Last(); ok; ok = it.Prev() {
		if left--; left < 0 || !assertEntry(t, forth[left], *it.Entry()) {
			return assert.Fail(t, "backward differs", "%d entries from the first", left)
		}
	}
	return assert.Zero(t, left)
}

// checkSuffix checks that WrittenSince returns the entries after a number in the
// order of Add, at least those of all batches up to complete.
func checkSuffix(t *testing.T, table *Table, since, complete kv.SeqNum) bool {
	n, ok := 0, true
	table.WrittenSince(since, func(e *kv.Entry) bool {
		ok = assertEntry(t, historyEntry(since+1+kv.SeqNum(n/batchOps), n%batchOps), *e)
		n++
		return ok
	})
	return ok && assert.GreaterOrEqual(t, n, int(complete-since)*batchOps)
}

// TestIteratorsOfOneTableAtOnce creates iterators of a sealed table in many
// goroutines: all get the same run.
func TestIteratorsOfOneTableAtOnce(t *testing.T) {
	table := New(Options{})
	var m model
	for i := range 5_000 {
		m.add(table, put(fmt.Sprint(i*7919%5_000), kv.SeqNum(i+1)))
	}
	table.Seal()
	want := m.sorted()
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			got := all(table)
			if assert.Len(t, got, len(want)) {
				for i := range want {
					assert.Equal(t, want[i].Seq, got[i].Seq)
				}
			}
		})
	}
	group.Wait()
}
