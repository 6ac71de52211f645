package memtable

import (
	"encoding/binary"
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

// perEntry reports how long one of benchEntries steps took.
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

// BenchmarkAddPause reports the longest single Add.
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
	keys, absent := newBenchKeys(1), newBenchKeys(2)
	t := keys.table()
	var e kv.Entry
	get := func(from *benchKeys, want bool) func(*testing.B) {
		order := rand.New(rand.NewPCG(3, 1)).Perm(benchEntries)
		return func(b *testing.B) {
			for n := 0; b.Loop(); n++ {
				i := order[n%benchEntries]
				if t.Get(from.hashes[i], from.key(i), kv.MaxSeqNum, &e) != want {
					b.Fatal("wrong answer")
				}
			}
		}
	}
	b.Run("hit", get(keys, true))
	b.Run("miss", get(absent, false))
}

// BenchmarkGetBatch reads 16 keys at a time; one operation is one key.
func BenchmarkGetBatch(b *testing.B) {
	keys := newBenchKeys(1)
	t := keys.table()
	for _, touch := range []bool{false, true} {
		b.Run(map[bool]string{false: "plain", true: "touched"}[touch], func(b *testing.B) {
			rng := rand.New(rand.NewPCG(3, 1))
			batch := make([]*kv.Lookup, 16)
			for i := range batch {
				batch[i] = &kv.Lookup{}
			}
			var e kv.Entry
			n := 0
			for b.Loop() {
				if n%len(batch) == 0 {
					for _, r := range batch {
						i := rng.IntN(benchEntries)
						r.Key, r.Hash = keys.key(i), keys.hashes[i]
					}
					if touch {
						t.Touch(batch)
					}
				}
				r := batch[n%len(batch)]
				if !t.Get(r.Hash, r.Key, kv.MaxSeqNum, &e) {
					b.Fatal("lost a key")
				}
				n++
			}
		})
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
	order := rand.New(rand.NewPCG(3, 1)).Perm(benchEntries)
	for n := 0; b.Loop(); n++ {
		i := order[n%benchEntries]
		if !t.Get(keys.hashes[i], keys.key(i), kv.MaxSeqNum, &e) {
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
		for it := t.NewIterator(); it.Next() || (n == 0 && it.First()); {
			n += len(it.Entry().Key)
		}
	}
	perEntry(b)
}

// BenchmarkScanBesideAdds opens an iterator and reads 50 entries after every
// few Adds, the worst case for an order that is made on demand.
func BenchmarkScanBesideAdds(b *testing.B) {
	for _, adds := range []int{1, 100} {
		b.Run(map[int]string{1: "every1", 100: "every100"}[adds], func(b *testing.B) {
			keys := newBenchKeys(1)
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
					binary.BigEndian.PutUint64(key[:], rng.Uint64())
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
		})
	}
}

// The rest measures what else one might build.

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
