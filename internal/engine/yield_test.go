package engine

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// While a call waits, readers that find everything in memory yield long before the runtime preempts
// them.
func TestReadersLetOthersRun(t *testing.T) {
	e := open(t, small(vfs.NewMem()))
	put(t, e, "key", "value", memory)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	e.waiters.begin()
	defer e.waiters.end()
	var ran atomic.Bool
	go ran.Store(true)
	reads := 0
	for ; !ran.Load(); reads++ {
		_, err := e.Get(t.Context(), []byte("key"))
		require.NoError(t, err)
	}
	// At one yield in 16 the odds of 400 reads without any are below 1 in 10^11.
	require.Less(t, reads, 400)
}

// A call that may wait counts while it is in progress, and no longer, however it ends.
func TestCallsThatMayWaitAreCounted(t *testing.T) {
	e := open(t, unhurried(vfs.NewMem()))
	ctx := context.Background()
	ended, cancel := context.WithCancel(ctx)
	cancel()
	large := make([]byte, smallWrite+1)
	lookup := func(key string) []*kv.Lookup {
		return []*kv.Lookup{{Key: []byte(key), Hash: keyhash.Sum([]byte(key))}}
	}
	var batch kv.WriteBatch
	batch.Put([]byte("a"), []byte("1"))
	batch.Put([]byte("b"), []byte("1"))
	stale := &kv.Transaction{ReadVersion: put(t, e, "a", "0", buffered), Epoch: e.Epoch(), Keys: [][]byte{[]byte("a")}, Batch: &batch}
	put(t, e, "a", "1", buffered)
	for _, call := range []struct {
		name string
		do   func() error
		fail bool
	}{
		{"Put", func() error { _, err := e.Put(ctx, []byte("k"), nil, buffered); return err }, false},
		{"Put, large", func() error { _, err := e.Put(ctx, []byte("k"), large, buffered); return err }, false},
		{"Put, without a key", func() error { _, err := e.Put(ctx, nil, nil, buffered); return err }, true},
		{"Put, given up", func() error {
			if _, err := e.Put(ended, []byte("k"), nil, buffered); err != nil { // it may be written before
				require.ErrorIs(t, err, context.Canceled)
			}
			return nil
		}, false},
		{"Delete", func() error { _, err := e.Delete(ctx, []byte("k"), buffered); return err }, false},
		{"DeleteRange", func() error { _, err := e.DeleteRange(ctx, kv.Range{Start: []byte("x")}, buffered); return err }, false},
		{"Write", func() error {
			return e.Write(ctx, []*kv.Write{{Op: kv.Op{Kind: kv.KindPut, Key: []byte("k")}}})
		}, false},
		{"Apply", func() error { _, err := e.Apply(ctx, &batch, buffered); return err }, false},
		{"Commit, in conflict", func() error { _, err := e.Commit(ctx, stale, buffered); return err }, true},
		{"Execute", func() error { _, _, err := e.Execute(ctx, nil, &batch, nil, buffered); return err }, false},
		{"LookupAt", func() error { _, err := e.LookupAt(ctx, lookup("k"), 0); return err }, false},
		{"LookupAt, of no snapshot", func() error { _, err := e.LookupAt(ctx, lookup("k"), 1<<40); return err }, true},
		{"BeginSnapshot", func() error { _, err := e.BeginSnapshot(ctx, longLease); return err }, false},
		{"Scan", func() error {
			s, err := e.Scan(ctx, kv.Range{}, kv.ScanOptions{})
			require.NoError(t, err)
			for s.Next() {
				require.False(t, e.hasWaiters(), "between two calls of a scan")
			}
			return s.Close()
		}, false},
		{"Get, from a table", func() error {
			require.NoError(t, e.CompactAll(ctx))
			_, err := e.Get(ctx, []byte("a"))
			return err
		}, false},
	} {
		err := call.do()
		require.Equal(t, call.fail, err != nil, "%s: %v", call.name, err)
		require.False(t, e.hasWaiters(), call.name)
	}
	require.NoError(t, e.admit(ctx, 1))
	require.True(t, e.hasWaiters(), "a write is in progress")
	e.leave(1)
	require.False(t, e.hasWaiters())
}
