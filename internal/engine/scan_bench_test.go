package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
)

// processTime is what the process has used of all processors.
func processTime(b *testing.B) time.Duration {
	var r syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &r))
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// BenchmarkScanPartitions scans everything, and 50 entries from random keys on. CPU
// is that of all goroutines, those that read ahead among them.
func BenchmarkScanPartitions(b *testing.B) {
	const keys, short = 1 << 20, 50
	for _, partitions := range []int{1, 4, 16} {
		e := benchEngine(b, partitions)
		value := make([]byte, 100)
		writes := make([]*kv.Write, 1<<10)
		for i := 0; i < keys; i += len(writes) {
			for j := range writes {
				key := fmt.Appendf(nil, "%016d", (i+j)*7919%keys)
				writes[j] = &kv.Write{Op: kv.Op{Kind: kv.KindPut, Key: key, Value: value}, Durability: kv.DurabilityMemory}
			}
			require.NoError(b, e.Write(context.Background(), writes))
		}
		require.NoError(b, e.CompactAll(context.Background()))
		scan := func(b *testing.B, r kv.Range, o kv.ScanOptions, most int) {
			s, err := e.Scan(context.Background(), r, o)
			require.NoError(b, err)
			n := 0
			for n < most && s.Next() {
				n++
			}
			require.NoError(b, s.Err())
			require.NoError(b, s.Close())
			if n != most {
				b.Fatalf("%d items, want %d", n, most)
			}
		}
		scan(b, kv.Range{}, kv.ScanOptions{}, keys) // fills the cache
		measure := func(name string, unit string, units float64, f func(b *testing.B)) {
			b.Run(fmt.Sprintf("partitions=%d/%s", partitions, name), func(b *testing.B) {
				from := processTime(b)
				for b.Loop() {
					f(b)
				}
				n := units * float64(b.N)
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/n, "ns/"+unit)
				b.ReportMetric(float64((processTime(b)-from).Nanoseconds())/n, "cpu-ns/"+unit)
			})
		}
		measure("forward", "item", keys, func(b *testing.B) { scan(b, kv.Range{}, kv.ScanOptions{}, keys) })
		measure("backward", "item", keys, func(b *testing.B) { scan(b, kv.Range{}, kv.ScanOptions{Reverse: true}, keys) })
		rng := rand.New(rand.NewPCG(1, 1))
		var from []byte
		measure("short", "scan", 1, func(b *testing.B) {
			from = fmt.Appendf(from[:0], "%016d", rng.IntN(keys-short))
			scan(b, kv.Range{Start: from}, kv.ScanOptions{}, short)
		})
	}
}
