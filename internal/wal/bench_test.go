package wal

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// BenchmarkAppendSync: each writer waits until its record is on the disk before it
// appends the next one.
func BenchmarkAppendSync(b *testing.B) {
	for _, writers := range []int{1, 16, 64, 256} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) { benchmarkAppend(b, writers, kv.DurabilitySync, awaitWaker) })
	}
}

// BenchmarkFlushOrSync: the same, with writers that sync on their own goroutine.
func BenchmarkFlushOrSync(b *testing.B) {
	for _, writers := range []int{1, 2, 4, 16} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			benchmarkAppend(b, writers, kv.DurabilitySync, func(l *Log, pos Pos, _ kv.Durability, w signal) {
				l.FlushOrSync()
				for !reached(l, pos, kv.DurabilitySync) && l.Err() == nil {
					<-w
				}
			})
		})
	}
}

func BenchmarkAppendBuffered(b *testing.B) {
	for _, writers := range []int{1, 16, 64} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) { benchmarkAppend(b, writers, kv.DurabilityBuffered, awaitWaker) })
	}
}

func awaitWaker(l *Log, pos Pos, level kv.Durability, w signal) {
	l.Flush()
	for !reached(l, pos, level) && l.Err() == nil {
		<-w
	}
}

func benchmarkAppend(b *testing.B, writers int, level kv.Durability, await func(*Log, Pos, kv.Durability, signal)) {
	dir := b.TempDir()
	l, _, err := Open(Options{FS: vfs.OS, Dir: dir, StoreID: 1, Fresh: true}, nil)
	require.NoError(b, err)
	record := make([]byte, 160)
	b.SetBytes(int64(len(record)))
	b.ResetTimer()
	var wg sync.WaitGroup
	for i := range writers {
		n := b.N / writers
		if i < b.N%writers {
			n++
		}
		wg.Go(func() {
			w := make(signal, 1)
			for range n {
				_, pos, err := appendTo(l, record, 1, level, w, nil)
				if err != nil {
					b.Error(err)
					return
				}
				await(l, pos, level, w)
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	s := l.Stats()
	b.ReportMetric(float64(s.Records)/b.Elapsed().Seconds(), "records/s")
	b.ReportMetric(s.RecordsPerSync(), "records/sync")
	b.ReportMetric(float64(s.Frames)/float64(max(1, s.Syncs)), "writes/sync")
	if s.Syncs > 0 {
		b.ReportMetric(float64(s.SyncTime.Microseconds())/float64(s.Syncs), "us/sync")
	}
	require.NoError(b, l.Close())
}
