//go:build unix

package kvd

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/pkg/kvd/internal/servertest"
)

// BenchmarkCallers measures the client: callers that each wait for their answer,
// over loopback TCP, from a server that is next to nothing.
func BenchmarkCallers(b *testing.B) {
	for _, what := range []string{"get", "put"} {
		for _, callers := range []int{1, 64, 256, 1024} {
			b.Run(fmt.Sprintf("%s/callers=%d", what, callers), func(b *testing.B) {
				var s servertest.Map
				db, err := Open(s.Listen(b))
				require.NoError(b, err)
				defer func() { require.NoError(b, db.Close()) }()
				callersOf(b, db, what, callers)
				b.ReportMetric(float64(b.N)/float64(s.Frames()), "ops/frame")
			})
		}
	}
}

// BenchmarkUpdate is BenchmarkCallers of transactions that read and write one key, on a server with
// its store on disk in the same process.
func BenchmarkUpdate(b *testing.B) {
	for _, callers := range []int{1, 64, 256} {
		b.Run(fmt.Sprintf("callers=%d", callers), func(b *testing.B) { callersOf(b, startTCP(b), "update", callers) })
	}
}

// callersOf makes b.N calls, shared out among callers.
func callersOf(b *testing.B, db *Client, what string, callers int) {
	ctx := context.Background()
	const keys = 1024
	names := make([][]byte, keys)
	value := make([]byte, 128)
	for i := range names {
		names[i] = fmt.Appendf(nil, "key-%012d", i)
		require.NoError(b, db.Put(ctx, names[i], value))
	}
	call := func(key []byte) error { return db.Put(ctx, key, value) }
	if what == "get" {
		call = func(key []byte) error {
			_, err := db.Get(ctx, key)
			return err
		}
	}
	if what == "update" {
		call = func(key []byte) error {
			return db.Update(ctx, func(tx *Txn) error {
				if _, err := tx.Get(ctx, key); err != nil {
					return err
				}
				return tx.Put(ctx, key, value)
			})
		}
	}
	runtime.GC()
	b.ReportAllocs()
	b.ResetTimer()
	spent := cpu()
	var next atomic.Int64
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for {
				n := next.Add(1)
				if n > int64(b.N) {
					return
				}
				if err := call(names[n%keys]); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds()/1000, "kops/s")
	b.ReportMetric(float64((cpu()-spent).Nanoseconds())/float64(b.N), "cpu-ns/op")
}

// cpu is the processor time of the process so far, which other processes disturb
// less than they do the time that passes.
func cpu() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
