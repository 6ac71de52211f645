package engine

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

func benchEngine(b *testing.B, partitions int) *Engine {
	b.Helper()
	e, err := Open(b.TempDir(), Options{FS: vfs.OS, Partitions: partitions, MemtableBytes: 256 << 20, CacheBytes: 256 << 20})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, e.Close()) })
	return e
}

// spread runs f b.N times over so many goroutines.
func spread(b *testing.B, goroutines int, f func(rng *rand.Rand) error) {
	b.Helper()
	var left atomic.Int64
	left.Store(int64(b.N))
	var group sync.WaitGroup
	b.ResetTimer()
	for g := range goroutines {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(g)))
			for left.Add(-1) >= 0 {
				if err := f(rng); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
}

// BenchmarkPut: writers that each wait for their put before they bring the next.
// The disk counts: TMPDIR says which.
func BenchmarkPut(b *testing.B) {
	for _, o := range []kv.WriteOptions{memory, buffered, synced} {
		for _, size := range []int{128, 1024} {
			for _, partitions := range []int{1, 4, 16} {
				for _, writers := range []int{1, 16, 64, 256} {
					name := fmt.Sprintf("%s/bytes=%d/partitions=%d/writers=%d", o.Durability, size, partitions, writers)
					b.Run(name, func(b *testing.B) { benchmarkPut(b, o, size, partitions, writers) })
				}
			}
		}
	}
}

func benchmarkPut(b *testing.B, o kv.WriteOptions, size, partitions, writers int) {
	e := benchEngine(b, partitions)
	value := make([]byte, size)
	b.ReportAllocs()
	spread(b, writers, func(rng *rand.Rand) error {
		var key [16]byte
		binary.BigEndian.PutUint64(key[:], rng.Uint64())
		_, err := e.Put(context.Background(), key[:], value, o)
		return err
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "puts/s")
	if s := e.Stats().Log; s.Syncs > 0 {
		b.ReportMetric(float64(b.N)/float64(s.Syncs), "puts/sync")
		b.ReportMetric(float64(s.SyncTime.Microseconds())/float64(s.Syncs), "us/sync")
	}
}

// BenchmarkPutLittleMemory has so little memory that flushes, and what each of them costs beside its
// bytes, limit the puts.
func BenchmarkPutLittleMemory(b *testing.B) {
	for _, partitions := range []int{1, 4, 16} {
		b.Run(fmt.Sprintf("partitions=%d", partitions), func(b *testing.B) {
			e, err := Open(b.TempDir(), Options{FS: vfs.OS, Partitions: partitions, MemtableBytes: 16 << 20, CacheBytes: 16 << 20})
			require.NoError(b, err)
			b.Cleanup(func() { require.NoError(b, e.Close()) })
			value := make([]byte, 1024)
			spread(b, 32, func(rng *rand.Rand) error {
				var key [16]byte
				binary.BigEndian.PutUint64(key[:], rng.Uint64N(10_000))
				_, err := e.Put(context.Background(), key[:], value, buffered)
				return err
			})
			flushes := uint64(0)
			for _, p := range e.partitions {
				flushes += p.Stats().Flushes
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "puts/s")
			b.ReportMetric(float64(flushes), "flushes")
		})
	}
}

func BenchmarkGet(b *testing.B) {
	const keys = 200_000
	for _, where := range []string{"memtable", "base"} {
		e := benchEngine(b, 4)
		value := make([]byte, 128)
		for i := range keys {
			_, err := e.Put(context.Background(), fmt.Appendf(nil, "%016d", i), value, memory)
			require.NoError(b, err)
		}
		if where == "base" {
			require.NoError(b, e.CompactAll(context.Background()))
		}
		for _, readers := range []int{1, 4, 64} {
			b.Run(fmt.Sprintf("%s/readers=%d", where, readers), func(b *testing.B) {
				spread(b, readers, func(rng *rand.Rand) error {
					_, err := e.Get(context.Background(), fmt.Appendf(nil, "%016d", rng.IntN(keys)))
					return err
				})
			})
		}
	}
}

// BenchmarkGetAll reads keys of a base that is all in the block cache and many times
// larger than the caches of the processor, whose misses are what a read costs then.
func BenchmarkGetAll(b *testing.B) {
	const keys, load = 2_000_000, 1_000
	ctx := context.Background()
	e, err := Open(b.TempDir(), Options{FS: vfs.OS, Partitions: 4, MemtableBytes: 256 << 20, CacheBytes: 768 << 20})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, e.Close()) })
	value := make([]byte, 100)
	for first := uint64(0); first < keys; first += load {
		batch := make([]*kv.Write, load)
		for i := range batch {
			key := scatteredKey(nil, first+uint64(i))
			op := kv.Op{Kind: kv.KindPut, Key: key, Value: value}
			batch[i] = &kv.Write{Op: op, Durability: kv.DurabilityMemory, Hash: keyhash.Sum(key)}
		}
		require.NoError(b, e.Write(ctx, batch))
	}
	require.NoError(b, e.CompactAll(ctx))
	for i := range uint64(keys) { // fills the cache
		_, err := e.Get(ctx, scatteredKey(nil, i))
		require.NoError(b, err)
	}
	for _, readers := range []int{1, 2, 4} {
		b.Run(fmt.Sprintf("readers=%d", readers), func(b *testing.B) {
			b.ReportAllocs()
			spread(b, readers, func(rng *rand.Rand) error {
				var key [16]byte
				_, err := e.Get(ctx, scatteredKey(key[:0], rng.Uint64N(keys)))
				return err
			})
		})
	}
	type batchOf16 struct {
		keys    [16][16]byte
		lookups [16]kv.Lookup
		reads   [16]*kv.Lookup
	}
	batches := sync.Pool{New: func() any { return new(batchOf16) }}
	for _, readers := range []int{1, 2} {
		b.Run(fmt.Sprintf("batch=16/readers=%d", readers), func(b *testing.B) {
			b.ReportAllocs()
			spread(b, readers, func(rng *rand.Rand) error {
				batch := batches.Get().(*batchOf16)
				defer batches.Put(batch)
				for i := range batch.reads {
					batch.lookups[i] = kv.Lookup{Key: scatteredKey(batch.keys[i][:0], rng.Uint64N(keys))}
					batch.reads[i] = &batch.lookups[i]
				}
				return e.Lookup(ctx, batch.reads[:])
			})
		})
	}
}

// scatteredKey appends key i of 16 bytes, which lie in no order of i.
func scatteredKey(dst []byte, i uint64) []byte {
	x := i * 0x9e3779b97f4a7c15
	x = (x ^ x>>29) * 0xbf58476d1ce4e5b9
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(dst, x), i)
}

func BenchmarkScan(b *testing.B) {
	const keys = 1 << 20
	for _, where := range []string{"memtable", "base"} {
		e := benchEngine(b, 4)
		value := make([]byte, 128)
		for i := range keys {
			_, err := e.Put(context.Background(), fmt.Appendf(nil, "%016d", i*7919%keys), value, memory)
			require.NoError(b, err)
		}
		if where == "base" {
			require.NoError(b, e.CompactAll(context.Background()))
		}
		for _, o := range []kv.ScanOptions{{}, {KeysOnly: true}, {Reverse: true}, {Limit: 10}} {
			b.Run(fmt.Sprintf("%s/reverse=%t/keysonly=%t/limit=%d", where, o.Reverse, o.KeysOnly, o.Limit), func(b *testing.B) {
				items := 0
				for b.Loop() {
					s, err := e.Scan(context.Background(), kv.Range{}, o)
					require.NoError(b, err)
					for s.Next() {
						items++
					}
					require.NoError(b, s.Err())
					require.NoError(b, s.Close())
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(items), "ns/item")
			})
		}
	}
}

// BenchmarkValuesApart compares values that are apart with values beside their keys:
// random reads one by one and in batches of 16, and a walk over all, of 100,000 keys
// in the base, with a block cache that holds a tenth of them.
func BenchmarkValuesApart(b *testing.B) {
	const keys = 100_000
	for _, size := range []int{256, 1024, 4096} {
		for _, threshold := range []int{1, 1 << 30} {
			e, err := Open(b.TempDir(), Options{
				Partitions: 1, MemtableBytes: 64 << 20, CacheBytes: int64(keys * size / 10), ValueThreshold: threshold,
			})
			require.NoError(b, err)
			value := make([]byte, size)
			for i := range keys {
				_, err := e.Put(b.Context(), fmt.Appendf(nil, "%016d", i*7919%keys), value, memory)
				require.NoError(b, err)
			}
			require.NoError(b, e.CompactAll(b.Context()))
			name := fmt.Sprintf("%d/apart=%t/", size, threshold == 1)
			rng := rand.New(rand.NewPCG(1, 1))
			for _, batch := range []int{1, 16} {
				b.Run(fmt.Sprint(name, "get=", batch), func(b *testing.B) {
					reads := make([]*kv.Lookup, batch)
					for range b.N {
						for i := range reads {
							key := fmt.Appendf(nil, "%016d", rng.IntN(keys))
							reads[i] = &kv.Lookup{Key: key}
						}
						require.NoError(b, e.Lookup(context.Background(), reads))
						for _, r := range reads {
							require.NoError(b, r.Err)
							require.Len(b, r.Value, size)
						}
					}
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/key")
				})
			}
			b.Run(name+"scan", func(b *testing.B) {
				for n := 0; n < b.N; {
					s, err := e.Scan(context.Background(), kv.Range{}, kv.ScanOptions{})
					require.NoError(b, err)
					for ; n < b.N && s.Next(); n++ {
						require.Len(b, s.Item().Value, size)
					}
					require.NoError(b, s.Close())
				}
			})
			require.NoError(b, e.Close())
		}
	}
}
