package engine

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// withHeldSync runs a test of a store whose log does not sync until it is released.
func withHeldSync(t *testing.T, partitions int, prepare func(t *testing.T, e *Engine), test func(t *testing.T, e *Engine, release func())) {
	synctest.Test(t, func(t *testing.T) {
		disk := faultfs.Wrap(vfs.NewMem(), nil)
		o := small(disk)
		o.Partitions = partitions
		e := open(t, o)
		prepare(t, e)
		g := newGate(faultfs.Sync, "*.wal")
		defer g.open()
		disk.SetInjector(g)
		test(t, e, g.open)
	})
}

// In a store of one partition a range delete lies in one partition too, so it may be
// acknowledged before a stronger write that precedes it in the log. Then it is seen.
func TestARangeDeletedBeforeTheSyncOfAnotherIsGone(t *testing.T) {
	for _, level := range []kv.WriteOptions{buffered, memory} {
		t.Run(level.Durability.String(), func(t *testing.T) {
			before := func(t *testing.T, e *Engine) {
				put(t, e, "b", "old", synced)
				require.NoError(t, e.Flush(t.Context()))
				put(t, e, "c", "old", synced)
			}
			withHeldSync(t, 1, before, func(t *testing.T, e *Engine, release func()) {
				var all sync.WaitGroup
				all.Go(func() { put(t, e, "a", "strong", synced) })
				synctest.Wait()
				put(t, e, "d", "weak", level)
				requireValue(t, e, "d", "weak")
				var deleted atomic.Bool
				all.Go(func() {
					var b kv.WriteBatch
					b.DeleteRange([]byte("b"), []byte("x"))
					_, err := e.Apply(context.Background(), &b, level)
					require.NoError(t, err)
					deleted.Store(true)
				})
				synctest.Wait()
				if deleted.Load() {
					for _, k := range []string{"b", "c", "d"} {
						requireAbsent(t, e, k)
					}
				}
				all.Go(func() {
					put(t, e, "c", "new", level)
					requireValue(t, e, "c", "new")
				})
				synctest.Wait()
				release()
				all.Wait()
				requireAbsent(t, e, "b")
				requireAbsent(t, e, "d")
				requireValue(t, e, "a", "strong")
				requireValue(t, e, "c", "new")
			})
		})
	}
}

// A write is sent again with a lower durability than before, in one call with another
// write of that durability: it is answered once it can be read.
func TestAWriteSentAgainIsAnsweredOnceItIsSeen(t *testing.T) {
	withHeldSync(t, 1, func(*testing.T, *Engine) {}, func(t *testing.T, e *Engine, release func()) {
		id := kv.RequestID{ClientID: 7, Sequence: 1}
		var all sync.WaitGroup
		all.Go(func() { put(t, e, "a", "1", kv.WriteOptions{Durability: kv.DurabilitySync, RequestID: id}) })
		synctest.Wait()
		id.Retried = true
		var answered atomic.Bool
		all.Go(func() {
			again := kv.Write{Op: kv.Op{Kind: kv.KindPut, Key: []byte("a"), Value: []byte("1")}, Durability: kv.DurabilityMemory, RequestID: id}
			other := kv.Write{Op: kv.Op{Kind: kv.KindPut, Key: []byte("b"), Value: []byte("1")}, Durability: kv.DurabilityMemory}
			require.NoError(t, e.Write(context.Background(), []*kv.Write{&again, &other}))
			require.NoError(t, again.Err)
			require.True(t, again.Deduplicated)
			require.NoError(t, other.Err)
			answered.Store(true)
		})
		synctest.Wait()
		if answered.Load() {
			requireValue(t, e, "a", "1")
		}
		release()
		all.Wait()
		requireValue(t, e, "a", "1")
	})
}

// A write that is sent again with a higher durability is answered once it has that.
func TestAWriteSentAgainHasTheDurabilityThatItAsksFor(t *testing.T) {
	for name, partitions := range map[string]int{"within": 1, "across": 4} {
		for _, what := range []string{"put", "conditional put", "batch", "conditional batch"} {
			t.Run(what+" "+name, func(t *testing.T) {
				withHeldSync(t, partitions, func(*testing.T, *Engine) {}, func(t *testing.T, e *Engine, release func()) {
					send := func(level kv.Durability, retried bool) error {
						o := kv.RequestID{ClientID: 7, Sequence: 1, Retried: retried}
						absent := kv.Condition{Kind: kv.IfAbsent}
						switch what {
						case "put", "conditional put":
							w := kv.Write{Op: kv.Op{Kind: kv.KindPut, Key: []byte("a"), Value: []byte("1")}, Durability: level, RequestID: o}
							if what == "conditional put" {
								w.If = &absent
							}
							if err := e.Write(context.Background(), []*kv.Write{&w}); err != nil {
								return err
							}
							return w.Err
						}
						var b kv.WriteBatch
						for i := range 8 {
							b.Put([]byte(key(i)), []byte("1"))
						}
						if what == "conditional batch" {
							b.Require(kv.Guard{Key: []byte(key(0)), Condition: absent})
						}
						_, err := e.Apply(context.Background(), &b, kv.WriteOptions{Durability: level, RequestID: o})
						return err
					}
					require.NoError(t, send(kv.DurabilityMemory, false))
					var answered atomic.Bool
					var all sync.WaitGroup
					all.Go(func() {
						require.NoError(t, send(kv.DurabilitySync, true))
						answered.Store(true)
					})
					synctest.Wait()
					require.False(t, answered.Load(), "acknowledged as synced, and nothing was")
					release()
					all.Wait()
				})
			})
		}
	}
}

// A weaker write overtakes a stronger batch or transaction only if that has not read or
// written its key, also where the batch has read in one partition and written in another:
// else a reader could find the write that comes after the batch, and then, in another key,
// that the batch has not happened.
func TestNoWriteIsSeenBeforeTheBatchThatItFollows(t *testing.T) {
	fill := func(t *testing.T, e *Engine) {
		for i := range 20 {
			put(t, e, key(i), "old", synced)
		}
	}
	// Each writes w, and depends on x or writes it.
	strong := map[string]func(t *testing.T, e *Engine, x, w string) error{
		"batch": func(t *testing.T, e *Engine, x, w string) error {
			_, err := e.Apply(t.Context(), putAll([]string{x, w}), synced)
			return err
		},
		"range delete": func(t *testing.T, e *Engine, x, w string) error {
			b := putAll([]string{w})
			b.DeleteRange([]byte(x), []byte(x+"!"))
			_, err := e.Apply(t.Context(), b, synced)
			return err
		},
		"conditional batch": func(t *testing.T, e *Engine, x, w string) error {
			b := putAll([]string{w})
			b.Require(kv.Guard{Key: []byte(x), Condition: kv.Condition{Kind: kv.IfPresent}})
			_, err := e.Apply(t.Context(), b, synced)
			return err
		},
		"transaction": func(t *testing.T, e *Engine, x, w string) error {
			_, err := e.Commit(t.Context(), &kv.Transaction{
				ReadVersion: e.sequencer.Visible(), Keys: [][]byte{[]byte(x)}, Batch: putAll([]string{w}),
			}, synced)
			return err
		},
		"scan": func(t *testing.T, e *Engine, x, w string) error {
			_, err := e.Commit(t.Context(), &kv.Transaction{
				ReadVersion: e.sequencer.Visible(), Ranges: []kv.Range{{Start: []byte(x), End: []byte(x + "!")}}, Batch: putAll([]string{w}),
			}, synced)
			return err
		},
	}
	for name, write := range strong {
		for layout, home := range map[string]int{"one partition": 0, "two partitions": 1} {
			t.Run(name+"/"+layout, func(t *testing.T) {
				withHeldSync(t, 4, fill, func(t *testing.T, e *Engine, release func()) {
					keys := keysIn(e, 0, 3)
					x, other, rest, w := keys[0], keys[1], keys[2], keysIn(e, home, 4)[3]
					var all sync.WaitGroup
					all.Go(func() { require.NoError(t, write(t, e, x, w)) })
					synctest.Wait()
					all.Go(func() { put(t, e, x, "new", buffered) })
					synctest.Wait()
					if got := valueOf(t, e, x); got == "new" {
						assert.NotEqual(t, "old", valueOf(t, e, w), "the write after it is there, and it is not")
					}
					var passed atomic.Bool
					all.Go(func() {
						put(t, e, other, "new", buffered)
						passed.Store(true)
					})
					synctest.Wait()
					assert.Equal(t, name != "range delete", passed.Load(), "whether a write to another key waits")
					// What waits is a batch itself.
					all.Go(func() {
						_, err := e.Apply(t.Context(), putAll([]string{x, rest}), buffered)
						require.NoError(t, err)
					})
					synctest.Wait()
					all.Go(func() { put(t, e, rest, "newest", buffered) })
					synctest.Wait()
					if got := valueOf(t, e, rest); got == "newest" {
						assert.Equal(t, "v", valueOf(t, e, x), "the write after the batch is there, and the batch is not")
					}
					release()
					all.Wait()
					requireValue(t, e, x, "v")
					requireValue(t, e, rest, "newest")
				})
			})
		}
	}
}

func valueOf(t *testing.T, e *Engine, key string) string {
	item, err := e.Get(t.Context(), []byte(key))
	if errors.Is(err, kv.ErrNotFound) {
		return ""
	}
	require.NoError(t, err)
	return string(item.Value)
}

// A batch over two partitions waits in one of them for the sync of another caller. Writes
// of other keys that follow it in the other partition do not wait.
func TestAWeakBatchThatWaitsHoldsBackNoOther(t *testing.T) {
	withHeldSync(t, 4, func(*testing.T, *Engine) {}, func(t *testing.T, e *Engine, release func()) {
		here, there := keysIn(e, 0, 3), keysIn(e, 1, 2)
		var all sync.WaitGroup
		all.Go(func() { put(t, e, there[0], "strong", synced) })
		synctest.Wait()
		all.Go(func() {
			_, err := e.Apply(t.Context(), putAll([]string{here[0], there[1]}), buffered)
			require.NoError(t, err)
		})
		synctest.Wait()
		var answered atomic.Bool
		all.Go(func() {
			put(t, e, here[1], "weak", buffered)
			answered.Store(true)
		})
		synctest.Wait()
		require.True(t, answered.Load(), "it waits for the sync of another")
		requireValue(t, e, here[1], "weak")
		release()
		all.Wait()
		requireValue(t, e, here[0], "v")
		requireValue(t, e, here[1], "weak")
	})
}
