package engine

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// A condition was evaluated while its key was present, and the key expires before the
// write is appended to the log: the write must not happen.
func TestAConditionHoldsByTheClockToo(t *testing.T) {
	type outcome struct {
		err       error
		succeeded bool
	}
	version := func(t *testing.T, e *Engine) kv.SeqNum {
		item, err := e.Get(t.Context(), []byte("lease"))
		require.NoError(t, err)
		return item.Version
	}
	apply := func(condition func(kv.SeqNum) kv.Condition) func(context.Context, *Engine, kv.SeqNum) outcome {
		return func(ctx context.Context, e *Engine, at kv.SeqNum) outcome {
			var b kv.WriteBatch
			b.Put([]byte("work"), []byte("done"))
			b.Require(kv.Guard{Key: []byte("lease"), Condition: condition(at)})
			_, err := e.Apply(ctx, &b, memory)
			return outcome{err: err}
		}
	}
	present := kv.Condition{Kind: kv.IfPresent}
	for name, test := range map[string]struct {
		write func(context.Context, *Engine, kv.SeqNum) outcome
		want  error
	}{
		"a batch, if present":   {apply(func(kv.SeqNum) kv.Condition { return present }), kv.ErrConditionFailed},
		"a batch, by version":   {apply(func(at kv.SeqNum) kv.Condition { return kv.Condition{Kind: kv.IfVersion, Version: at} }), kv.ErrConditionFailed},
		"a batch, by its value": {apply(func(kv.SeqNum) kv.Condition { return kv.Condition{Kind: kv.IfValue, Value: []byte("mine")} }), kv.ErrConditionFailed},
		"a write": {func(ctx context.Context, e *Engine, _ kv.SeqNum) outcome {
			w := kv.Write{Op: kv.Op{Kind: kv.KindPut, Key: []byte("lease"), Value: []byte("forever")}, If: &present, Durability: kv.DurabilityMemory}
			if err := e.Write(ctx, []*kv.Write{&w}); err != nil {
				return outcome{err: err}
			}
			return outcome{err: w.Err}
		}, kv.ErrConditionFailed},
		"a transaction with a condition": {func(ctx context.Context, e *Engine, _ kv.SeqNum) outcome {
			s, err := e.BeginSnapshot(ctx, 0)
			if err != nil {
				return outcome{err: err}
			}
			defer e.ReleaseSnapshot(s.ID)
			tx := kv.Transaction{ReadVersion: s.Version, Epoch: s.Epoch, Keys: [][]byte{[]byte("work")}, Batch: putAll([]string{"work"})}
			tx.Batch.Require(kv.Guard{Key: []byte("lease"), Condition: present})
			_, err = e.Commit(ctx, &tx, memory)
			return outcome{err: err}
		}, kv.ErrConflict},
		"an execution": {func(ctx context.Context, e *Engine, _ kv.SeqNum) outcome {
			guards := []kv.Guard{{Key: []byte("lease"), Condition: present}}
			succeeded, _, err := e.Execute(ctx, guards, putAll([]string{"work"}), putAll([]string{"instead"}), memory)
			return outcome{err, succeeded}
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tt := newTestTime()
				disk := faultfs.Wrap(vfs.NewMem(), nil)
				o := small(disk)
				o.time, o.Partitions = tt.source(), 1
				e := open(t, o)
				const ttl = time.Second
				putFor(t, e, "lease", "mine", ttl, kv.DurabilitySync)
				at := version(t, e)
				// What waits between the judgement and the log: proposals, for which there is no room,
				// and writes, while the leader is in a write of the log.
				require.NoError(t, e.across.take(t.Context(), e.across.limit))
				g := newGate(faultfs.Write, "*.wal")
				defer g.open()
				disk.SetInjector(g)
				var leader sync.WaitGroup
				leader.Go(func() { put(t, e, "another key", "v", buffered) })
				synctest.Wait()
				outcomes := make(chan outcome, 1)
				go func() { outcomes <- test.write(t.Context(), e, at) }()
				synctest.Wait()
				require.Empty(t, outcomes)
				tt.pass(2 * ttl)
				e.across.release(e.across.limit)
				g.open()
				leader.Wait()
				got := <-outcomes
				require.ErrorIs(t, got.err, test.want)
				require.False(t, got.succeeded)
				requireAbsent(t, e, "lease")
				requireAbsent(t, e, "work")
				if test.want == nil {
					requireValue(t, e, "instead", "v")
				}
			})
		})
	}
}

// Before the expiry the condition holds: the passage of time alone is no conflict.
func TestAConditionOnAKeyThatExpiresLater(t *testing.T) {
	tt := newTestTime()
	o := small(vfs.NewMem())
	o.time = tt.source()
	e := open(t, o)
	putFor(t, e, "lease", "mine", time.Minute, kv.DurabilitySync)
	for range 3 {
		tt.pass(time.Second)
		var b kv.WriteBatch
		b.Put([]byte("work"), []byte("done"))
		b.Require(kv.Guard{Key: []byte("lease"), Condition: kv.Condition{Kind: kv.IfPresent}})
		_, err := e.Apply(t.Context(), &b, memory)
		require.NoError(t, err)
	}
}

// A transaction conflicts if a key that it found has expired when it commits, also if the
// key is in tables or a compaction has dropped it. A transaction that does not name such
// keys, as those of older clients, does not conflict.
func TestATransactionConflictsWithTheExpiryOfWhatItRead(t *testing.T) {
	for name, maintain := range map[string]func(*testing.T, *Engine){
		"in memory":  func(*testing.T, *Engine) {},
		"in a table": func(t *testing.T, e *Engine) { require.NoError(t, e.Flush(t.Context())) },
		"dropped":    func(t *testing.T, e *Engine) { require.NoError(t, e.CompactAll(t.Context())) },
	} {
		t.Run(name, func(t *testing.T) {
			tt := newTestTime()
			o := small(vfs.NewMem())
			o.time = tt.source()
			e := open(t, o)
			putFor(t, e, "soon", "v", time.Second, kv.DurabilitySync)
			putFor(t, e, "late", "v", time.Hour, kv.DurabilitySync)
			begin := func(expiring ...string) *kv.Transaction {
				s, err := e.BeginSnapshot(t.Context(), 0)
				require.NoError(t, err)
				e.ReleaseSnapshot(s.ID) // a transaction may outlive it
				tx := &kv.Transaction{ReadVersion: s.Version, Epoch: s.Epoch, Ranges: []kv.Range{{Start: []byte("a"), End: []byte("z")}}, Batch: putAll([]string{"~"})}
				for _, key := range expiring {
					tx.Expiring = append(tx.Expiring, []byte(key))
				}
				return tx
			}
			both, late, unsaid := begin("late", "soon"), begin("late"), begin()
			_, err := e.Commit(t.Context(), begin("soon", "late"), memory)
			require.NoError(t, err, "neither has expired")
			tt.pass(time.Minute)
			maintain(t, e)
			requireAbsent(t, e, "soon")
			_, err = e.Commit(t.Context(), both, memory)
			require.ErrorIs(t, err, kv.ErrConflict)
			require.ErrorContains(t, err, "soon")
			for _, tx := range []*kv.Transaction{late, unsaid} {
				_, err = e.Commit(t.Context(), tx, memory)
				if name == "in memory" {
					require.NoError(t, err)
				} else { // what was written in the range cannot be told any more
					require.ErrorIs(t, err, kv.ErrVersionGone)
				}
			}
		})
	}
}
