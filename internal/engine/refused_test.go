package engine

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// A write that was refused has certainly not happened. If its context ends while the write that it
// lost to waits for a sync, it has the error of ctx, and a transaction the conflict.
func TestARefusedWriteIsNotUncertain(t *testing.T) {
	present := kv.Condition{Kind: kv.IfPresent}
	batch := func() *kv.WriteBatch {
		b := &kv.WriteBatch{}
		b.Put([]byte("a"), []byte("2"))
		return b
	}
	for name, c := range map[string]struct {
		write func(context.Context, *Engine, *txn) error
		want  error
	}{
		"a write": {func(ctx context.Context, e *Engine, _ *txn) error {
			w := kv.Write{Op: kv.Op{Kind: kv.KindPut, Key: []byte("a"), Value: []byte("2")}, Durability: kv.DurabilityMemory, If: &present}
			if err := e.Write(ctx, []*kv.Write{&w}); err != nil {
				return err
			}
			return w.Err
		}, context.DeadlineExceeded},
		"a write beside one that is appended": {func(ctx context.Context, e *Engine, _ *txn) error {
			w := kv.Write{Op: kv.Op{Kind: kv.KindPut, Key: []byte("a"), Value: []byte("2")}, Durability: kv.DurabilitySync, If: &present}
			other := kv.Write{Op: kv.Op{Kind: kv.KindPut, Key: []byte("z"), Value: []byte("2")}, Durability: kv.DurabilitySync, If: &kv.Condition{Kind: kv.IfAbsent}}
			if err := e.Write(ctx, []*kv.Write{&w, &other}); err != nil {
				return err
			}
			assert.ErrorIs(t, other.Err, kv.ErrUncertain, "its record waits for the sync")
			return w.Err
		}, context.DeadlineExceeded},
		"a batch": {func(ctx context.Context, e *Engine, _ *txn) error {
			b := batch()
			b.Require(kv.Guard{Key: []byte("a"), Condition: present})
			_, err := e.Apply(ctx, b, memory)
			return err
		}, context.DeadlineExceeded},
		"an execution": {func(ctx context.Context, e *Engine, _ *txn) error {
			_, _, err := e.Execute(ctx, []kv.Guard{{Key: []byte("a"), Condition: present}}, batch(), nil, memory)
			return err
		}, context.DeadlineExceeded},
		"a transaction": {func(ctx context.Context, e *Engine, x *txn) error {
			_, err := e.Commit(ctx, &x.Transaction, memory)
			return err
		}, kv.ErrConflict},
	} {
		t.Run(name, func(t *testing.T) {
			withHeldSync(t, 1, func(t *testing.T, e *Engine) { put(t, e, "a", "0", synced) }, func(t *testing.T, e *Engine, release func()) {
				x := beginTxn(t, e)
				x.get("a")
				x.put("a", "x")
				var all sync.WaitGroup
				all.Go(func() { put(t, e, "a", "1", synced) }) // is in line until released
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				err := c.write(ctx, e, x)
				require.ErrorIs(t, err, c.want)
				require.NotErrorIs(t, err, kv.ErrUncertain)
				release()
				all.Wait()
				requireValue(t, e, "a", "1")
			})
		})
	}
}

// A transaction of one key that is refused does not wait for the sync of another write of its
// partition: neither if it lost to a write that is visible, nor if a flush came between, after which
// it commits.
func TestARefusalWaitsForNoSyncOfOthers(t *testing.T) {
	for name, c := range map[string]struct {
		between func(t *testing.T, e *Engine)
		want    error
	}{
		"a conflict": {func(t *testing.T, e *Engine) { put(t, e, "a", "1", synced) }, kv.ErrConflict},
		"a flush": {func(t *testing.T, e *Engine) {
			put(t, e, "b", "1", synced)
			require.NoError(t, e.Flush(t.Context()))
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := faultfs.Wrap(vfs.NewMem(), nil)
				o := small(disk)
				o.Partitions = 1
				e := open(t, o)
				put(t, e, "a", "0", synced)
				x := beginTxn(t, e)
				x.get("a")
				x.put("a", "x")
				c.between(t, e)
				g := newGate(faultfs.Sync, "*.wal")
				defer g.open()
				disk.SetInjector(g)
				var other sync.WaitGroup
				other.Go(func() { put(t, e, "z", "1", synced) })
				synctest.Wait()
				var ended atomic.Bool
				var err error
				other.Go(func() {
					_, err = e.Commit(t.Context(), &x.Transaction, memory)
					ended.Store(true)
				})
				synctest.Wait()
				assert.True(t, ended.Load(), "it waits for the sync of another write")
				g.open()
				other.Wait()
				require.ErrorIs(t, err, c.want)
			})
		})
	}
}
