package embed

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/pkg/kvd"
)

// sideBySide are calls of the embedded store and the same of its engine.
func sideBySide(t testing.TB) map[string][2]func(ctx context.Context) error {
	db, err := Memory(WithDurability(kvd.Memory), WithMemory(256<<20))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	e := db.engine
	value := make([]byte, 100)
	keys := make([][]byte, 1000)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "key%013d", i)
		require.NoError(t, db.Put(t.Context(), keys[i], value))
	}
	next := 0
	key := func() []byte {
		next = (next + 1) % len(keys)
		return keys[next]
	}
	embedded, below := new(kvd.Batch), new(kv.WriteBatch)
	for i := range 10 {
		embedded.Put(keys[i], value)
	}
	return map[string][2]func(context.Context) error{
		"get": {
			func(ctx context.Context) error { _, err := e.Get(ctx, key()); return err },
			func(ctx context.Context) error { _, err := db.Get(ctx, key()); return err },
		},
		"put": {
			func(ctx context.Context) error { _, err := e.Put(ctx, key(), value, kv.WriteOptions{}); return err },
			func(ctx context.Context) error { return db.Put(ctx, key(), value) },
		},
		"batch": {
			func(ctx context.Context) error {
				below.Reset()
				for i := range 10 {
					below.Put(keys[i], value)
				}
				_, err := e.Apply(ctx, below, kv.WriteOptions{})
				return err
			},
			func(ctx context.Context) error { _, err := db.Apply(ctx, embedded); return err },
		},
	}
}

// A call costs no allocation beyond those of the engine's own. What runs in the background
// allocates too, and puts do more while a memtable grows, so the test looks at the median of
// several differences.
func TestACallAllocatesWhatTheEngineDoes(t *testing.T) {
	testsize.OneGoroutine(t) // with the race detector a sync.Pool forgets at random
	for name, call := range sideBySide(t) {
		allocations := func(i int) float64 {
			return testing.AllocsPerRun(100, func() { require.NoError(t, call[i](t.Context())) })
		}
		more := make([]float64, 11)
		for i := range more {
			more[i] = -allocations(0)
			more[i] += allocations(1)
		}
		slices.Sort(more)
		assert.LessOrEqual(t, more[len(more)/2], 0.0, "%s: %v", name, more)
	}
}

// BenchmarkCalls compares the two.
func BenchmarkCalls(b *testing.B) {
	calls := sideBySide(b)
	for _, name := range []string{"get", "put", "batch"} {
		for i, layer := range []string{"engine", "embedded"} {
			b.Run(name+"/"+layer, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := calls[name][i](b.Context()); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkGetMany compares batches of 16 keys.
func BenchmarkGetMany(b *testing.B) {
	const batch = 16
	db, err := Memory(WithDurability(kvd.Memory), WithMemory(256<<20))
	require.NoError(b, err)
	b.Cleanup(func() { assert.NoError(b, db.Close()) })
	keys := make([][]byte, 100*batch)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "%016d", i*7919%len(keys))
		require.NoError(b, db.Put(b.Context(), keys[i], make([]byte, 100)))
	}
	lookups, list := make([]kv.Lookup, batch), make([]*kv.Lookup, batch)
	for name, get := range map[string]func(ctx context.Context, keys [][]byte) error{
		"engine": func(ctx context.Context, keys [][]byte) error {
			for i, key := range keys {
				lookups[i], list[i] = kv.Lookup{Key: key}, &lookups[i]
			}
			_, err := db.engine.LookupAt(ctx, list, 0)
			return err
		},
		"embedded": func(ctx context.Context, keys [][]byte) error {
			_, err := db.GetMany(ctx, keys)
			return err
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i = (i + batch) % len(keys) {
				require.NoError(b, get(b.Context(), keys[i:i+batch]))
			}
		})
	}
}

// BenchmarkScan compares scans of everything, in a store whose tables are in memory.
func BenchmarkScan(b *testing.B) {
	const items, batch = 1 << 18, 1 << 10
	db, err := Memory(WithDurability(kvd.Memory), WithMemory(1<<30))
	require.NoError(b, err)
	b.Cleanup(func() { assert.NoError(b, db.Close()) })
	writes, value := new(kvd.Batch), make([]byte, 100)
	for i := range items {
		writes.Put(fmt.Appendf(nil, "%016d", i*7919%items), value)
		if writes.Len() == batch {
			_, err := db.Apply(b.Context(), writes)
			require.NoError(b, err)
			writes.Reset()
		}
	}
	require.NoError(b, db.engine.CompactAll(b.Context()))
	measure := func(name string, scan func(ctx context.Context) int) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				require.Equal(b, items, scan(b.Context()))
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/items, "ns/item")
		})
	}
	measure("engine", func(ctx context.Context) (n int) {
		s, err := db.engine.Scan(ctx, kv.Range{}, kv.ScanOptions{})
		require.NoError(b, err)
		for s.Next() {
			n += 1
		}
		require.NoError(b, s.Err())
		require.NoError(b, s.Close())
		return n
	})
	for name, opts := range map[string][]kvd.ScanOption{"owned": nil, "borrowed": {kvd.Borrow()}} {
		measure(name, func(ctx context.Context) (n int) {
			for _, err := range db.Scan(ctx, kvd.All(), opts...) {
				if err != nil {
					b.Fatal(err)
				}
				n++
			}
			return n
		})
	}
}

// BenchmarkLoad compares calls of many writes.
func BenchmarkLoad(b *testing.B) {
	const call = 1000
	db, err := Memory(WithMemory(256 << 20))
	require.NoError(b, err)
	b.Cleanup(func() { assert.NoError(b, db.Close()) })
	keys, value := make([][]byte, 200*call), make([]byte, 100)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "%016d", i*7919%len(keys))
	}
	writes, pipeline := make([]kv.Write, call), db.Pipeline()
	list := make([]*kv.Write, call)
	for name, load := range map[string]func(ctx context.Context, keys [][]byte) error{
		"engine": func(ctx context.Context, keys [][]byte) error {
			for i, key := range keys {
				writes[i] = kv.Write{Op: kv.Op{Kind: kv.KindPut, Key: key, Value: value}}
				list[i] = &writes[i]
			}
			return db.engine.Write(ctx, list)
		},
		"pipeline": func(ctx context.Context, keys [][]byte) error {
			for _, key := range keys {
				pipeline.Put(key, value)
			}
			return pipeline.Do(ctx)
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i = (i + call) % len(keys) {
				require.NoError(b, load(b.Context(), keys[i:i+call]))
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/call, "ns/item")
		})
	}
}
