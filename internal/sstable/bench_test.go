package sstable

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// The standard data of the benchmarks: random 16-byte keys, 100-byte values.
const (
	benchKeys       = 1_000_000
	benchValueBytes = 100
)

var benchEntries = sync.OnceValue(func() []kv.Entry {
	rng := rand.New(rand.NewPCG(1, 1))
	entries := make([]kv.Entry, benchKeys)
	value := make([]byte, benchValueBytes)
	for i := range entries {
		key := binary.BigEndian.AppendUint64(nil, rng.Uint64())
		entries[i] = kv.Entry{Key: binary.BigEndian.AppendUint64(key, rng.Uint64()), Value: value, Seq: kv.SeqNum(i + 1), Kind: kv.KindPut}
	}
	slices.SortFunc(entries, func(a, b kv.Entry) int { return bytes.Compare(a.Key, b.Key) })
	return entries
})

// benchTable writes the standard data to a real file, which the page cache then holds.
func benchTable(b *testing.B, cache *Cache) *Reader {
	fs := vfs.OS
	f, err := fs.Create(filepath.Join(b.TempDir(), "000013.sst"))
	require.NoError(b, err)
	w := NewWriter(f, testID, WriterOptions{})
	entries := benchEntries()
	for i := range entries {
		require.NoError(b, w.Add(&entries[i]))
	}
	_, err = w.Finish()
	require.NoError(b, err)
	r, err := Open(f, testID, cache)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, r.Close()) })
	return r
}

// benchQueries returns queries of present keys, or of absent ones, in random order.
func benchQueries(present bool) []Query {
	entries := benchEntries()
	rng := rand.New(rand.NewPCG(2, 2))
	qs := make([]Query, 1<<16)
	for i := range qs {
		key := slices.Clone(entries[rng.IntN(len(entries))].Key)
		if !present {
			key[15] ^= 1
		}
		qs[i] = Query{Key: key, Hash: keyhash.Sum(key), At: kv.MaxSeqNum, Value: make([]byte, 0, benchValueBytes)}
	}
	return qs
}

func BenchmarkGet(b *testing.B) {
	for _, bench := range []struct {
		name    string
		cache   *Cache
		present bool
	}{
		{"Cached", NewCache(256 << 20), true},
		{"PageCache", nil, true},
		{"Absent", NewCache(256 << 20), false},
	} {
		b.Run(bench.name, func(b *testing.B) {
			r := benchTable(b, bench.cache)
			it := r.NewIterator(IterOptions{FillCache: true})
			for ok := it.First(); ok; ok = it.Next() {
			}
			qs := benchQueries(bench.present)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				q := &qs[i%len(qs)]
				q.Done = false
				r.Get(q)
				if q.Done != bench.present || q.Err != nil {
					b.Fatal(q)
				}
			}
		})
	}
}

// BenchmarkColdGet counts what the kernel reads from the disk for a Get whose block is in
// no cache. The time includes dropping the file from the page cache.
func BenchmarkColdGet(b *testing.B) {
	const keys, together = 100_000, 64 // entries, and gets between two drops
	rng := rand.New(rand.NewPCG(4, 4))
	for _, bench := range []struct {
		name       string
		valueBytes func() int
	}{
		{"100B", func() int { return benchValueBytes }},
		{"20-180B", func() int { return 20 + rng.IntN(161) }},
		{"255B", func() int { return 255 }}, // the longest beside their keys by default
	} {
		b.Run(bench.name, func(b *testing.B) {
			entries := slices.Clone(benchEntries()[:keys])
			name := filepath.Join(b.TempDir(), "000013.sst")
			f, err := vfs.OS.Create(name)
			require.NoError(b, err)
			w := NewWriter(f, testID, WriterOptions{})
			for i := range entries {
				entries[i].Value = bytes.Repeat([]byte{byte(i)}, bench.valueBytes())
				require.NoError(b, w.Add(&entries[i]))
			}
			meta, err := w.Finish()
			require.NoError(b, err)
			r, err := Open(f, testID, nil)
			require.NoError(b, err)
			defer func() { require.NoError(b, r.Close()) }()
			before := diskReads(b)
			for i := 0; b.Loop(); i++ {
				if i%together == 0 {
					require.NoError(b, vfs.Evict(name))
				}
				at := rng.IntN(keys)
				q := query(entries[at].Key, kv.MaxSeqNum)
				if r.Get(&q); q.Err != nil || !bytes.Equal(q.Value, entries[at].Value) {
					b.Fatal(q)
				}
			}
			read := diskReads(b) - before
			if read == 0 {
				b.Skip("the directory for temporary files is on no disk")
			}
			b.ReportMetric(float64(read)/float64(b.N), "disk-B/get")
			b.ReportMetric(float64(meta.Size)/keys, "bytes/entry")
			b.ReportMetric(float64(r.index.blocks())*(4<<10)/float64(r.footer.data), "blocks/page")
		})
	}
}

// diskReads returns how many bytes this process has read from disks.
func diskReads(b *testing.B) int64 {
	text, err := os.ReadFile("/proc/self/io")
	if err != nil {
		b.Skip("the kernel does not count what a process reads: ", err)
	}
	_, text, _ = bytes.Cut(text, []byte("\nread_bytes: "))
	text, _, _ = bytes.Cut(text, []byte("\n"))
	n, err := strconv.ParseInt(string(text), 10, 64)
	require.NoError(b, err)
	return n
}

func BenchmarkGetBatch16(b *testing.B) {
	const size = 16
	for _, bench := range []struct {
		name    string
		cache   *Cache
		present bool
	}{
		{"Cached", NewCache(256 << 20), true},
		{"PageCache", nil, true},
		{"Absent", NewCache(256 << 20), false},
	} {
		b.Run(bench.name, func(b *testing.B) {
			r := benchTable(b, bench.cache)
			it := r.NewIterator(IterOptions{FillCache: true})
			for ok := it.First(); ok; ok = it.Next() {
			}
			qs := benchQueries(bench.present)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				batch := qs[i*size%len(qs):][:size]
				for j := range batch {
					batch[j].Done = false
				}
				getBatch(r, batch)
				if batch[0].Done != bench.present || batch[0].Err != nil {
					b.Fatal(batch[0])
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/size, "ns/key")
		})
	}
}

func BenchmarkIterate(b *testing.B) {
	for _, bench := range []struct {
		name  string
		cache *Cache
		back  bool
	}{
		{"Cached/Forward", NewCache(256 << 20), false},
		{"Cached/Backward", NewCache(256 << 20), true},
		{"PageCache/Forward", nil, false},
		{"PageCache/Backward", nil, true},
	} {
		b.Run(bench.name, func(b *testing.B) {
			r := benchTable(b, bench.cache)
			it := r.NewIterator(IterOptions{FillCache: bench.cache != nil})
			n := 0
			walk := func() {
				if bench.back {
					for ok := it.Last(); ok; ok = it.Prev() {
						n++
					}
				} else {
					for ok := it.First(); ok; ok = it.Next() {
						n++
					}
				}
				require.NoError(b, it.Err())
			}
			walk() // fills the cache
			n = 0
			for b.Loop() {
				walk()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/entry")
		})
	}
}

func BenchmarkScan50(b *testing.B) {
	r := benchTable(b, NewCache(256<<20))
	qs := benchQueries(true)
	it := r.NewIterator(IterOptions{FillCache: true})
	n := 0
	for i := 0; b.Loop(); i++ {
		ok := it.SeekGE(qs[i%len(qs)].Key)
		for range 50 {
			if !ok {
				break
			}
			n++
			ok = it.Next()
		}
		require.NoError(b, it.Err())
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds()/1e6, "Mentries/s")
}

// BenchmarkWrite measures processor time only: the file is in memory.
func BenchmarkWrite(b *testing.B) {
	entries := benchEntries()
	f := &bytesFile{data: make([]byte, 0, 80<<20)}
	size := uint64(0)
	for b.Loop() {
		f.data = f.data[:0]
		w := NewWriter(f, testID, WriterOptions{})
		for i := range entries {
			if err := w.Add(&entries[i]); err != nil {
				b.Fatal(err)
			}
		}
		meta, err := w.Finish()
		require.NoError(b, err)
		size = meta.Size
	}
	b.SetBytes(int64(size))
	b.ReportMetric(float64(size)/float64(len(entries)), "bytes/entry")
}
