package memtable

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
)

const benchEntries = 1 << 20

// benchKeys holds random 16-byte keys and their hashes.
type benchKeys struct {
	keys   []byte
	hashes []uint64
}

func newBenchKeys(seed uint64) *benchKeys {
	b := &benchKeys{keys: make([]byte, 16*benchEntries), hashes: make([]uint64, benchEntries)}
	rng := rand.New(rand.NewPCG(seed, 1))
	for i := range b.hashes {
		binary.BigEndian.PutUint64(b.keys[16*i:], rng.Uint64())
		binary.BigEndian.PutUint64(b.keys[16*i+8:], rng.Uint64())
		b.hashes[i] = keyhash.Sum(b.key(i))
	}
	return b
}

func (b *benchKeys) key(i int) []byte { return b.keys[16*i : 16*i+16] }

// shuffled returns the same keys in another order, copied together, so that a loop over
// them has them in the cache, as a server has the keys of a request.
func (b *benchKeys) shuffled() *benchKeys {
	s := &benchKeys{keys: make([]byte, 0, len(b.keys)), hashes: make([]uint64, 0, len(b.hashes))}
	for _, i := range rand.New(rand.NewPCG(3, 1)).Perm(benchEntries) {
		s.keys = append(s.keys, b.key(i)...)
		s.hashes = append(s.hashes, b.hashes[i])
	}
	return s
}

var benchValue = make([]byte, 100)

func (b *benchKeys) entry(i int) kv.Entry {
	return kv.Entry{Key: b.key(i), Value: benchValue, Seq: kv.SeqNum(i + 1), Kind: kv.KindPut}
}

func (b *benchKeys) table() *Table {
	t := New(Options{})
	for i := range benchEntries {
		e := b.entry(i)
		t.Add(b.hashes[i], &e)
	}
	return t
}

// perEntry reports the time per entry of benchEntries steps.
func perEntry(b *testing.B) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchEntries, "ns/entry")
}

func BenchmarkAdd(b *testing.B) {
	keys := newBenchKeys(1)
	var t *Table
	for b.Loop() {
		t = keys.table()
	}
	perEntry(b)
	b.ReportMetric(float64(t.Bytes())/benchEntries, "B/entry")
}

// BenchmarkAddBatch adds keys in batches, twice: the second time each has a version.
func BenchmarkAddBatch(b *testing.B) {
	keys := newBenchKeys(1)
	run := func(size int) func(b *testing.B) {
		return func(b *testing.B) {
			for b.Loop() {
				t := New(Options{})
				for i := range 2 * benchEntries {
					at := i % benchEntries
					if size > 0 && at%size == 0 {
						t.TouchHashes(keys.hashes[at:min(at+size, benchEntries)])
					}
					e := keys.entry(at)
					e.Seq = kv.SeqNum(i + 1)
					t.Add(keys.hashes[at], &e)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchEntries/2, "ns/entry")
		}
	}
	b.Run("plain", run(0))
	for _, size := range []int{4, 16, 64, 250, 2000} {
		b.Run(fmt.Sprintf("keys=%d/touched", size), run(size))
	}
}

func BenchmarkAddPause(b *testing.B) {
	keys := newBenchKeys(1)
	var longest time.Duration
	for b.Loop() {
		t := New(Options{})
		for i := range benchEntries {
			e := keys.entry(i)
			start := time.Now()
			t.Add(keys.hashes[i], &e)
			longest = max(longest, time.Since(start))
		}
	}
	b.ReportMetric(float64(longest.Nanoseconds()), "ns-longest")
}

func BenchmarkGet(b *testing.B) {
	keys := newBenchKeys(1)
	t := keys.table()
	var e kv.Entry
	get := func(asked *benchKeys, want bool) func(*testing.B) {
		return func(b *testing.B) {
			for n := 0; b.Loop(); n++ {
				i := n % benchEntries
				if t.Get(asked.hashes[i], asked.key(i), kv.MaxSeqNum, &e) != want {
					b.Fatal("wrong answer")
				}
			}
		}
	}
	b.Run("hit", get(keys.shuffled(), true))
	b.Run("miss", get(newBenchKeys(2), false))
}

// BenchmarkGetBatch reads keys in batches; one operation is one key.
func BenchmarkGetBatch(b *testing.B) {
	keys := newBenchKeys(1)
	t := keys.table()
	asked := keys.shuffled()
	run := func(size int, touch bool) func(b *testing.B) {
		return func(b *testing.B) {
			batch := make([]*kv.Lookup, size)
			for i := range batch {
				batch[i] = &kv.Lookup{}
			}
			var e kv.Entry
			for n := 0; b.Loop(); n++ {
				if n%len(batch) == 0 {
					for j, r := range batch {
						i := (n + j) % benchEntries
						r.Key, r.Hash = asked.key(i), asked.hashes[i]
					}
					if touch {
						t.Touch(batch)
					}
				}
				r := batch[n%len(batch)]
				if !t.Get(r.Hash, r.Key, kv.MaxSeqNum, &e) {
					b.Fatal("lost a key")
				}
			}
		}
	}
	for _, size := range []int{2, 4, 16, 64} {
		b.Run(fmt.Sprintf("keys=%d/plain", size), run(size, false))
		b.Run(fmt.Sprintf("keys=%d/touched", size), run(size, true))
	}
}

// BenchmarkGetBesideWriter measures reads while the other core adds.
func BenchmarkGetBesideWriter(b *testing.B) {
	keys := newBenchKeys(1)
	t := keys.table()
	stop, done := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for seq := kv.SeqNum(benchEntries + 1); ; seq++ {
			select {
			case <-stop:
				done <- n
				return
			default:
			}
			e := keys.entry(n % benchEntries)
			e.Seq = seq
			t.Add(keys.hashes[n%benchEntries], &e)
			if n++; n%(benchEntries/2) == 0 {
				runtime.Gosched()
			}
		}
	}()
	var e kv.Entry
	asked := keys.shuffled()
	for n := 0; b.Loop(); n++ {
		i := n % benchEntries
		if !t.Get(asked.hashes[i], asked.key(i), kv.MaxSeqNum, &e) {
			b.Fatal("lost a key")
		}
	}
	elapsed := b.Elapsed()
	close(stop)
	b.ReportMetric(float64(elapsed.Nanoseconds())/float64(<-done), "ns/add")
}

// BenchmarkSort measures the order at flush: what the first NewIterator costs.
func BenchmarkSort(b *testing.B) {
	for _, shape := range []struct {
		name string
		key  func(i int, k []byte)
	}{
		{"random", func(int, []byte) {}},
		{"sharedPrefix", func(_ int, k []byte) { copy(k, "tenant/t") }},
		{"ascending", func(i int, k []byte) { copy(k, "tenant/t"); binary.BigEndian.PutUint64(k[8:], uint64(i)) }},
	} {
		b.Run(shape.name, func(b *testing.B) {
			keys := newBenchKeys(1)
			for i := range keys.hashes {
				shape.key(i, keys.key(i))
				keys.hashes[i] = keyhash.Sum(keys.key(i))
			}
			t := keys.table()
			t.Seal()
			for b.Loop() {
				t.order = order{}
				t.order.init()
				t.NewIterator()
			}
			perEntry(b)
		})
	}
}

// BenchmarkScanAll walks a sealed table as flush does, after the sort.
func BenchmarkScanAll(b *testing.B) {
	t := newBenchKeys(1).table()
	t.Seal()
	t.NewIterator()
	for b.Loop() {
		n := 0
		it := t.NewIterator()
		for ok := it.First(); ok; ok = it.Next() {
			n += len(it.Entry().Key)
		}
		if n != 16*benchEntries {
			b.Fatal("lost entries")
		}
	}
	perEntry(b)
}

// BenchmarkScanAllBackward is BenchmarkScanAll backward.
func BenchmarkScanAllBackward(b *testing.B) {
	t := newBenchKeys(1).table()
	t.Seal()
	t.NewIterator()
	for b.Loop() {
		n := 0
		it := t.NewIterator()
		for ok := it.Last(); ok; ok = it.Prev() {
			n += len(it.Entry().Key)
		}
		if n != 16*benchEntries {
			b.Fatal("lost entries")
		}
	}
	perEntry(b)
}

// BenchmarkWrittenSince compares the keys of the newest entries with a range, as
// the validation of a transaction does. The entries were written just before (hot), or
// other memory has displaced them from the caches (cold).
func BenchmarkWrittenSince(b *testing.B) {
	t := newBenchKeys(1).table()
	start := []byte{0xff, 0xff}
	other := make([]byte, 64<<20)
	for _, newest := range []int{0, 1, 16, 300, 10_000} {
		run := func(cold bool) func(*testing.B) {
			return func(b *testing.B) {
				seq := kv.SeqNum(benchEntries - newest)
				n := 0
				var took time.Duration
				for b.Loop() {
					if cold {
						for i := 0; i < len(other); i += 64 {
							other[i]++
						}
					}
					begun := time.Now()
					t.WrittenSince(seq, func(e *kv.Entry) bool {
						if bytes.Compare(e.Key, start) < 0 {
							n++
						}
						return true
					})
					took += time.Since(begun)
				}
				if n > newest*b.N {
					b.Fatal("older entries")
				}
				b.ReportMetric(float64(took.Nanoseconds())/float64(b.N), "ns/walk")
				b.ReportMetric(float64(took.Nanoseconds())/float64(b.N)/float64(max(1, newest)), "ns/entry")
			}
		}
		b.Run(fmt.Sprintf("entries=%d/hot", newest), run(false))
		b.Run(fmt.Sprintf("entries=%d/cold", newest), run(true))
	}
}

// BenchmarkCover searches a table with this many disjoint range tombstones.
func BenchmarkCover(b *testing.B) {
	for _, n := range []int{0, 1, 100, 10_000} {
		t := New(Options{})
		var key [16]byte
		name := func(i int) []byte { binary.BigEndian.PutUint64(key[:], uint64(i)); return key[:] }
		for i := range n {
			j := i * 7919 % n
			start, end := bytes.Clone(name(2*j)), bytes.Clone(name(2*j+1))
			e := kv.Entry{Key: start, Value: end, Seq: kv.SeqNum(i + 1), Kind: kv.KindRangeDelete}
			t.Add(0, &e)
		}
		run := func(b *testing.B) {
			i := 0
			for b.Loop() {
				i += 12_347
				if t.Cover(name(i%(2*n+1)), kv.MaxSeqNum) > kv.SeqNum(n) {
					b.Fatal("covered by none")
				}
			}
		}
		b.Run(fmt.Sprintf("tombstones=%d/runs", n), run)
		t.RangeTombstones()
		b.Run(fmt.Sprintf("tombstones=%d/folded", n), run)
	}
}

// BenchmarkAddRangeTombstones adds 10,000 range tombstones to a table.
func BenchmarkAddRangeTombstones(b *testing.B) {
	const n = 10_000
	keys := newBenchKeys(1)
	var longest time.Duration
	for b.Loop() {
		t := New(Options{})
		for i := range n {
			e := keys.entry(i)
			e.Kind, e.Value = kv.KindRangeDelete, append(bytes.Clone(e.Key), 0)
			start := time.Now()
			t.Add(keys.hashes[i], &e)
			longest = max(longest, time.Since(start))
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/tombstone")
	b.ReportMetric(float64(longest.Nanoseconds()), "ns-longest")
}

// BenchmarkScanBesideAdds opens an iterator and reads 50 entries after every
// few Adds, the worst case for an order that is made on demand.
func BenchmarkScanBesideAdds(b *testing.B) {
	for _, prefix := range []string{"", "tenant/t"} {
		for _, adds := range []int{1, 100} {
			b.Run(fmt.Sprintf("prefix=%s/adds=%d", prefix, adds), func(b *testing.B) { benchScanBesideAdds(b, prefix, adds) })
		}
	}
}

func benchScanBesideAdds(b *testing.B, prefix string, adds int) {
	keys := newBenchKeys(1)
	for i := range keys.hashes {
		copy(keys.key(i), prefix)
		keys.hashes[i] = keyhash.Sum(keys.key(i))
	}
	t := keys.table()
	t.NewIterator()
	seq := kv.SeqNum(benchEntries)
	rng := rand.New(rand.NewPCG(4, 1))
	var longest time.Duration
	for b.Loop() {
		for range adds {
			seq++
			e := keys.entry(rng.IntN(benchEntries))
			var key [16]byte
			binary.BigEndian.PutUint64(key[copy(key[:], prefix):], rng.Uint64())
			e.Key, e.Seq = key[:], seq
			t.Add(keyhash.Sum(e.Key), &e)
		}
		start := time.Now()
		it := t.NewIterator()
		it.SeekGE(keys.key(rng.IntN(benchEntries)))
		for range 50 {
			it.Next()
		}
		longest = max(longest, time.Since(start))
	}
	b.ReportMetric(float64(longest.Nanoseconds()), "ns-longest")
}

// The remaining benchmarks measure alternative designs.

// BenchmarkPeerMap is the simplest memtable: a Go map of the newest version and
// a sort of its keys at flush.
func BenchmarkPeerMap(b *testing.B) {
	type version struct {
		value []byte
		seq   kv.SeqNum
	}
	keys := newBenchKeys(1)
	m := map[string]version{}
	b.Run("add", func(b *testing.B) {
		for b.Loop() {
			m = map[string]version{}
			for i := range benchEntries {
				m[string(keys.key(i))] = version{append([]byte(nil), benchValue...), kv.SeqNum(i + 1)}
			}
		}
		perEntry(b)
	})
	b.Run("sort", func(b *testing.B) {
		for b.Loop() {
			sorted := make([]string, 0, len(m))
			for k := range m {
				sorted = append(sorted, k)
			}
			slices.Sort(sorted)
		}
		perEntry(b)
	})
}

// BenchmarkPeerSkiplist is an ordered memtable: a skiplist over this package's
// own arena, single-threaded, so without the cost of atomic links.
func BenchmarkPeerSkiplist(b *testing.B) {
	keys := newBenchKeys(1)
	for b.Loop() {
		s := newSkiplist()
		for i := range benchEntries {
			e := keys.entry(i)
			s.add(&e)
		}
	}
	perEntry(b)
}

type skiplist struct {
	arena arena
	rng   *rand.Rand
	nodes []skipnode
}

type skipnode struct {
	address uint64
	next    [12]uint32
}

func newSkiplist() *skiplist {
	s := &skiplist{rng: rand.New(rand.NewPCG(1, 1)), nodes: make([]skipnode, 1)}
	s.arena.init(DefaultChunkBytes)
	return s
}

func (s *skiplist) add(e *kv.Entry) {
	node := skipnode{address: s.arena.append(e, 0)}
	s.arena.publish(node.address)
	self := uint32(len(s.nodes))
	s.nodes = append(s.nodes, node)
	height := 1
	for height < len(node.next) && s.rng.IntN(4) == 0 {
		height++
	}
	at := uint32(0)
	for level := len(node.next) - 1; level >= 0; level-- {
		for {
			next := s.nodes[at].next[level]
			if next == 0 {
				break
			}
			r := s.arena.record(s.nodes[next].address)
			if kv.Compare(r.key(), r.seq(), e.Key, e.Seq) > 0 {
				break
			}
			at = next
		}
		if level < height {
			s.nodes[self].next[level] = s.nodes[at].next[level]
			s.nodes[at].next[level] = self
		}
	}
}
