package mergeiter

import (
	"container/heap"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/scanbatch"
)

const benchEntries = 1 << 17

// benchSources distributes random keys of a prefix and 16 bytes over k sources.
func benchSources(k int, prefix string) [][]kv.Entry {
	rng := rand.New(rand.NewPCG(1, 1))
	sources := make([][]kv.Entry, k)
	for i := range benchEntries {
		key := append([]byte(prefix), make([]byte, 16)...)
		binary.BigEndian.PutUint64(key[len(prefix):], rng.Uint64())
		sources[i%k] = append(sources[i%k], kv.Entry{Key: key, Seq: kv.SeqNum(i + 1), Kind: kv.KindPut})
	}
	for _, s := range sources {
		slices.SortFunc(s, compareEntries)
	}
	return sources
}

// plainIterator only walks a slice, so that the merge is measured.
type plainIterator struct {
	entries []kv.Entry
	pos     int
}

func (p *plainIterator) First() bool        { p.pos = 0; return p.Valid() }
func (p *plainIterator) SeekGE([]byte) bool { panic("not measured") }
func (p *plainIterator) Next() bool         { p.pos++; return p.Valid() }
func (p *plainIterator) Last() bool         { p.pos = len(p.entries) - 1; return p.Valid() }
func (p *plainIterator) SeekLT([]byte) bool { panic("not measured") }
func (p *plainIterator) Prev() bool         { p.pos--; return p.Valid() }
func (p *plainIterator) Valid() bool        { return uint(p.pos) < uint(len(p.entries)) }
func (p *plainIterator) Entry() *kv.Entry   { return &p.entries[p.pos] }
func (p *plainIterator) Err() error         { return nil }
func (p *plainIterator) Close() error       { return nil }

func plain(sources [][]kv.Entry) []kv.Iterator {
	iters := make([]kv.Iterator, len(sources))
	for i, s := range sources {
		iters[i] = &plainIterator{entries: s}
	}
	return iters
}

func perEntry(b *testing.B) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchEntries, "ns/entry")
}

func walk(b *testing.B, it kv.Iterator) {
	n := 0
	for ok := it.First(); ok; ok = it.Next() {
		n++
	}
	if n != benchEntries {
		b.Fatal("lost entries")
	}
}

func walkBack(b *testing.B, it kv.Iterator) {
	n := 0
	for ok := it.Last(); ok; ok = it.Prev() {
		n++
	}
	if n != benchEntries {
		b.Fatal("lost entries")
	}
}

// benchShapes are what a merge meets: the keys have a prefix in common, or not.
func benchShapes(b *testing.B, counts []int, run func(b *testing.B, sources [][]kv.Entry)) {
	for _, prefix := range []string{"", "tenant/users/"} {
		for _, k := range counts {
			sources := benchSources(k, prefix)
			b.Run(fmt.Sprintf("sources=%d/prefix=%d", k, len(prefix)), func(b *testing.B) {
				run(b, sources)
				perEntry(b)
			})
		}
	}
}

func BenchmarkMerge(b *testing.B) {
	benchShapes(b, []int{2, 4, 16}, func(b *testing.B, sources [][]kv.Entry) {
		for b.Loop() {
			walk(b, New(plain(sources)...))
		}
	})
}

func BenchmarkMergeBackward(b *testing.B) {
	benchShapes(b, []int{2, 4, 16}, func(b *testing.B, sources [][]kv.Entry) {
		for b.Loop() {
			walkBack(b, New(plain(sources)...))
		}
	})
}

// fill reads everything that the reader sees.
func fill(b *testing.B, v *Visible, view scanbatch.View, reverse bool, sources [][]kv.Entry) {
	v.Init(view, kv.Range{}, reverse, plain(sources))
	n := 0
	var batch scanbatch.Batch
	for more := true; more; {
		batch.Reset(256, 64<<10, false)
		more = v.Fill(&batch)
		n += len(batch.Items)
	}
	if n != benchEntries {
		b.Fatal("lost entries")
	}
}

func BenchmarkVisible(b *testing.B) {
	for _, reverse := range []bool{false, true} {
		b.Run(fmt.Sprintf("reverse=%t", reverse), func(b *testing.B) {
			benchShapes(b, []int{1, 2, 4, 16}, func(b *testing.B, sources [][]kv.Entry) {
				for b.Loop() {
					fill(b, new(Visible), scanbatch.View{At: kv.MaxSeqNum}, reverse, sources)
				}
			})
		})
	}
}

// BenchmarkVisibleUnderTombstones searches a thousand adjacent range tombstones, which
// hide nothing.
func BenchmarkVisibleUnderTombstones(b *testing.B) {
	sources := benchSources(4, "")
	var tombstones []kv.Entry
	for i := range 1000 {
		start := binary.BigEndian.AppendUint16(nil, uint16(i*65))
		end := binary.BigEndian.AppendUint16(nil, uint16(i*65+33))
		tombstones = append(tombstones, kv.Entry{Key: start, Value: end, Seq: 1, Kind: kv.KindRangeDelete})
	}
	view := scanbatch.View{At: kv.MaxSeqNum, Covers: []*kv.RangeTombstones{kv.NewRangeTombstones(tombstones)}}
	for b.Loop() {
		fill(b, new(Visible), view, false, sources)
	}
	perEntry(b)
}

// BenchmarkPeerHeap merges with container/heap, the simplest alternative.
func BenchmarkPeerHeap(b *testing.B) {
	for _, k := range []int{2, 4, 16} {
		sources := benchSources(k, "")
		b.Run(fmt.Sprintf("sources=%d", k), func(b *testing.B) {
			for b.Loop() {
				h := heapOf(plain(sources))
				for len(h) > 0 {
					if h[0].Next() {
						heap.Fix(&h, 0)
					} else {
						heap.Pop(&h)
					}
				}
			}
			perEntry(b)
		})
	}
}

type iteratorHeap []kv.Iterator

func heapOf(iters []kv.Iterator) iteratorHeap {
	for _, it := range iters {
		it.First()
	}
	h := iteratorHeap(iters)
	heap.Init(&h)
	return h
}

func (h iteratorHeap) Len() int { return len(h) }
func (h iteratorHeap) Less(i, j int) bool {
	x, y := h[i].Entry(), h[j].Entry()
	return kv.Compare(x.Key, x.Seq, y.Key, y.Seq) < 0
}
func (h iteratorHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *iteratorHeap) Push(any)     { panic("a merge only loses sources") }

func (h *iteratorHeap) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
