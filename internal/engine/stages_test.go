package engine

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/trace"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// Time in a bubble passes only while all goroutines wait, so each stage is exact, and
// stages that should take no time take none.
const slow = 3 * time.Second

// slowly holds each operation of a kind, on files that match, up for a while.
func slowly(kind faultfs.Kind, pattern string) faultfs.Injector {
	return faultfs.InjectorFunc(func(op faultfs.Op) faultfs.Fault {
		if op.Kind != kind || !faultfs.OnName(pattern)(op) {
			return faultfs.Fault{}
		}
		return faultfs.Fault{Delay: func() { time.Sleep(slow) }}
	})
}

// timedWrites are all the ways to write. Each does so once and fills the stages in.
var timedWrites = map[string]func(ctx context.Context, e *Engine, o kv.WriteOptions) error{
	"put": func(ctx context.Context, e *Engine, o kv.WriteOptions) error {
		_, err := e.Put(ctx, []byte("a"), nil, o)
		return err
	},
	"put that serves itself": func(_ context.Context, e *Engine, o kv.WriteOptions) error {
		_, err := e.Put(context.Background(), []byte("a"), nil, o)
		return err
	},
	"write": func(ctx context.Context, e *Engine, o kv.WriteOptions) error {
		w := timedWrite("a", o)
		return e.Write(ctx, []*kv.Write{&w})
	},
	"conditional write": func(ctx context.Context, e *Engine, o kv.WriteOptions) error {
		w := timedWrite("a", o)
		w.If = &kv.Condition{Kind: kv.IfAbsent}
		return e.Write(ctx, []*kv.Write{&w})
	},
	"batch in one partition": func(ctx context.Context, e *Engine, o kv.WriteOptions) error {
		return applyAll(ctx, e, o, keysIn(e, 1, 3))
	},
	"batch over all partitions": func(ctx context.Context, e *Engine, o kv.WriteOptions) error {
		return applyAll(ctx, e, o, acrossKeys(e))
	},
	"guarded batch": func(ctx context.Context, e *Engine, o kv.WriteOptions) error {
		var b kv.WriteBatch
		b.Put([]byte("a"), nil)
		b.Require(kv.Guard{Key: []byte("b"), Condition: kv.Condition{Kind: kv.IfAbsent}})
		_, err := e.Apply(ctx, &b, o)
		return err
	},
	"transaction": func(ctx context.Context, e *Engine, o kv.WriteOptions) error {
		var b kv.WriteBatch
		b.Put([]byte("a"), nil)
		_, err := e.Commit(ctx, &kv.Transaction{ReadVersion: e.sequencer.Visible(), Keys: [][]byte{[]byte("b")}, Batch: &b}, o)
		return err
	},
	"execution": func(ctx context.Context, e *Engine, o kv.WriteOptions) error {
		var b kv.WriteBatch
		b.Put([]byte("a"), nil)
		_, _, err := e.Execute(ctx, nil, &b, nil, o)
		return err
	},
}

func timedWrite(key string, o kv.WriteOptions) kv.Write {
	return kv.Write{Op: kv.Op{Kind: kv.KindPut, Key: []byte(key)}, Durability: o.Durability, Stages: o.Stages}
}

func applyAll(ctx context.Context, e *Engine, o kv.WriteOptions, keys []string) error {
	var b kv.WriteBatch
	for _, k := range keys {
		b.Put([]byte(k), nil)
	}
	_, err := e.Apply(ctx, &b, o)
	return err
}

// acrossKeys returns a key of each partition.
func acrossKeys(e *Engine) (keys []string) {
	for p := range e.partitions {
		keys = append(keys, keysIn(e, p, 1)...)
	}
	return keys
}

func TestASlowLogIsTheStageOfEveryWrite(t *testing.T) {
	for name, write := range timedWrites {
		for _, c := range []struct {
			kind  faultfs.Kind
			level kv.Durability
			want  trace.Stages
		}{
			{faultfs.Sync, kv.DurabilitySync, trace.Stages{Sync: slow}},
			{faultfs.Write, kv.DurabilitySync, trace.Stages{LogWrite: slow}},
			{faultfs.Write, kv.DurabilityBuffered, trace.Stages{LogWrite: slow}},
			{faultfs.Sync, kv.DurabilityBuffered, trace.Stages{}},
			{faultfs.Sync, kv.DurabilityMemory, trace.Stages{}},
		} {
			t.Run(fmt.Sprintf("%s/%s/%s", name, c.level, c.kind), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					disk := faultfs.Wrap(vfs.NewMem(), nil)
					e := open(t, small(disk))
					put(t, e, "0", "zeroes the first segment", synced)
					synctest.Wait()
					disk.SetInjector(slowly(c.kind, "*.wal"))
					defer disk.SetInjector(nil)
					got := trace.Stages{Inbox: time.Hour} // of an earlier call
					begin := time.Now()
					require.NoError(t, write(t.Context(), e, kv.WriteOptions{Durability: c.level, Stages: &got}))
					require.Equal(t, time.Since(begin), got.Sum())
					require.Equal(t, c.want, got)
				})
			})
		}
	}
}

// A write that comes while a sync is under way is not written before it ends: that is
// the sync's time, too.
func TestTheSyncUnderWayIsTheStageOfWhoComesThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := faultfs.Wrap(vfs.NewMem(), nil)
		e := open(t, small(disk))
		put(t, e, "0", "zeroes the first segment", synced)
		synctest.Wait()
		disk.SetInjector(slowly(faultfs.Sync, "*.wal"))
		defer disk.SetInjector(nil)
		var all sync.WaitGroup
		for i, ctx := range []context.Context{context.Background(), t.Context(), context.Background()} {
			all.Go(func() {
				var s trace.Stages
				begin := time.Now()
				_, err := e.Put(ctx, []byte(key(i)), nil, kv.WriteOptions{Stages: &s})
				assert.NoError(t, err)
				assert.Equal(t, trace.Stages{Sync: time.Since(begin)}, s)
			})
			time.Sleep(slow / 3)
		}
		all.Wait()
	})
}

func TestAWriteThatWasHeldForASyncIsWrittenInItsOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := faultfs.Wrap(vfs.NewMem(), nil)
		e := open(t, small(disk))
		put(t, e, "0", "zeroes the first segment", synced)
		synctest.Wait()
		disk.SetInjector(faultfs.InjectorFunc(func(op faultfs.Op) faultfs.Fault {
			if op.Kind != faultfs.Sync && op.Kind != faultfs.Write {
				return faultfs.Fault{}
			}
			return faultfs.Fault{Delay: func() { time.Sleep(slow) }}
		}))
		defer disk.SetInjector(nil)
		var all sync.WaitGroup
		var first, second trace.Stages
		all.Go(func() {
			_, err := e.Put(t.Context(), []byte("a"), nil, kv.WriteOptions{Stages: &first})
			assert.NoError(t, err)
		})
		time.Sleep(slow + slow/3) // it is written, and being synced
		all.Go(func() {
			_, err := e.Put(t.Context(), []byte("b"), nil, kv.WriteOptions{Stages: &second})
			assert.NoError(t, err)
		})
		all.Wait()
		assert.Equal(t, trace.Stages{LogWrite: slow, Sync: slow}, first)
		assert.Equal(t, trace.Stages{LogWrite: slow, Sync: second.Sync}, second)
		assert.GreaterOrEqual(t, second.Sync, slow-slow/3+slow, "what was left of the sync under way, and its own")
	})
}

// What waits for what is before it in the partition waits in the inbox.
func TestABusyPartitionIsTheStageOfWhoComesThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := faultfs.Wrap(vfs.NewMem(), nil)
		o := small(disk)
		o.MemtableBytes, o.SegmentBytes = 64<<20, 8<<20
		e := open(t, o)
		put(t, e, "0", "zeroes the first segment", synced)
		keys := keysIn(e, 0, 2)
		synctest.Wait()
		disk.SetInjector(slowly(faultfs.Sync, "*.wal"))
		defer disk.SetInjector(nil)
		var all sync.WaitGroup
		var free time.Time
		all.Go(func() {
			// As much as a partition may have under way.
			put(t, e, keys[0], strings.Repeat("x", 2<<20), synced)
			free = time.Now()
		})
		synctest.Wait()

		short, cancel := context.WithTimeout(t.Context(), slow/3)
		defer cancel()
		var late trace.Stages
		_, err := e.Put(short, []byte(keys[1]), nil, kv.WriteOptions{Stages: &late})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, trace.Stages{Inbox: slow / 3}, late, "it was given up in the inbox")

		begin := time.Now()
		var one, many trace.Stages
		all.Go(func() {
			_, err := e.Put(t.Context(), []byte(keys[1]), nil, kv.WriteOptions{Stages: &one})
			assert.NoError(t, err)
			assert.Equal(t, time.Since(begin), one.Sum())
		})
		all.Go(func() {
			var writes []*kv.Write
			for _, k := range acrossKeys(e) {
				w := timedWrite(k, synced)
				writes = append(writes, &w)
			}
			writes[0].Stages = &many
			assert.NoError(t, e.Write(t.Context(), writes))
			assert.Equal(t, time.Since(begin), many.Sum())
		})
		all.Wait()
		waited := free.Sub(begin)
		assert.Equal(t, slow-slow/3, waited)
		assert.Equal(t, trace.Stages{Inbox: waited, Sync: one.Sync}, one)
		assert.Equal(t, trace.Stages{Inbox: waited, Sync: many.Sync}, many, "of the slowest partition")
		assert.GreaterOrEqual(t, min(one.Sync, many.Sync), slow)
	})
}

// A caller whose own goroutine writes the log gives up when it is written.
func TestAWriteThatIsGivenUpSaysWhereItWas(t *testing.T) {
	for name, write := range timedWrites {
		if name == "put that serves itself" {
			continue // it cannot be given up
		}
		for _, c := range []struct {
			kind faultfs.Kind
			want func(took time.Duration) trace.Stages
		}{
			{faultfs.Sync, func(took time.Duration) trace.Stages { return trace.Stages{Sync: took} }},
			{faultfs.Write, func(took time.Duration) trace.Stages { return trace.Stages{LogWrite: took} }},
		} {
			t.Run(fmt.Sprintf("%s/%s", name, c.kind), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					disk := faultfs.Wrap(vfs.NewMem(), nil)
					e := open(t, small(disk))
					put(t, e, "0", "zeroes the first segment", synced)
					synctest.Wait()
					disk.SetInjector(slowly(c.kind, "*.wal"))
					defer disk.SetInjector(nil)
					ctx, cancel := context.WithTimeout(t.Context(), slow/3)
					defer cancel()
					var got trace.Stages
					begin := time.Now()
					_ = write(ctx, e, kv.WriteOptions{Stages: &got}) // of unknown outcome, or done by then
					require.GreaterOrEqual(t, time.Since(begin), slow/3)
					require.Equal(t, c.want(time.Since(begin)), got)
				})
			})
		}
	}
}

// lookupKeys reads keys and returns the stages.
func lookupKeys(ctx context.Context, e *Engine, keys ...string) (trace.Stages, error) {
	var s trace.Stages
	reads := make([]*kv.Lookup, len(keys))
	for i, k := range keys {
		reads[i] = &kv.Lookup{Key: []byte(k)}
	}
	reads[0].Stages = &s
	err := e.Lookup(ctx, reads)
	return s, err
}

func TestStagesOfReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := faultfs.Wrap(vfs.NewMem(), nil)
		o := small(disk)
		o.ValueThreshold, o.CacheBytes = 1, 1 // values are apart and not cached
		o.Reads.Runners = 2                   // or reads of a slow disk would not wait for each other
		e := open(t, o)
		keys := keysIn(e, 0, 3)
		across := append(acrossKeys(e), keys...)
		for _, k := range across {
			put(t, e, k, "v", memory)
		}
		got, err := lookupKeys(t.Context(), e, across...)
		require.NoError(t, err)
		require.Equal(t, trace.Stages{}, got, "memory takes no time")
		require.NoError(t, e.Flush(t.Context()))
		synctest.Wait()
		disk.SetInjector(slowly(faultfs.Read, "*.val"))

		begin := time.Now()
		got, err = lookupKeys(t.Context(), e, keys[0])
		require.NoError(t, err)
		require.Equal(t, trace.Stages{Engine: time.Since(begin)}, got)
		require.Positive(t, got.Engine)

		begin = time.Now()
		got, err = lookupKeys(t.Context(), e, across...)
		require.NoError(t, err)
		require.Equal(t, trace.Stages{Engine: time.Since(begin)}, got)
		require.Positive(t, got.Engine)

		var at trace.Stages
		begin = time.Now()
		_, err = e.LookupAt(t.Context(), []*kv.Lookup{{Key: []byte(keys[0]), Stages: &at}}, 0)
		require.NoError(t, err)
		require.Equal(t, trace.Stages{Engine: time.Since(begin)}, at)
		require.Positive(t, at.Engine)

		// Two batches are read at a time; the third waits for one of them.
		var all sync.WaitGroup
		stages := make([]trace.Stages, 4)
		for i := range stages {
			all.Go(func() {
				ctx := t.Context()
				if i == 3 {
					short, cancel := context.WithTimeout(ctx, slow/3)
					defer cancel()
					ctx = short
				}
				var err error
				stages[i], err = lookupKeys(ctx, e, keys[0])
				assert.Equal(t, i == 3, err != nil)
			})
			synctest.Wait()
		}
		all.Wait()
		assert.Equal(t, []trace.Stages{{Engine: slow}, {Engine: slow}, {Inbox: slow, Engine: slow}, {Inbox: slow / 3}}, stages)
	})
}

// A write that waits in a micro-batch that lingers is in the stage Inbox.
func TestLingerIsTheStageOfWhoComesThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := small(vfs.NewMem())
		o.Writes.Linger, o.Reads.Linger = slow, 2*slow
		e := open(t, o)
		for name, write := range timedWrites {
			if name == "put" || name == "put that serves itself" || name == "write" || name == "batch in one partition" {
				var s trace.Stages
				require.NoError(t, write(t.Context(), e, kv.WriteOptions{Stages: &s}))
				require.Equal(t, trace.Stages{Inbox: slow}, s, name)
			}
		}
		s, err := lookupKeys(t.Context(), e, "a")
		require.NoError(t, err)
		require.Equal(t, trace.Stages{Inbox: 2 * slow}, s)
		keys := keysIn(e, 0, 2)
		s, err = lookupKeys(t.Context(), e, keys...)
		require.NoError(t, err)
		require.Equal(t, trace.Stages{Inbox: 2 * slow}, s, "memory is not asked before")
	})
}

// Writes with conditions and others of one call go side by side.
func TestStagesOfWritesOfBothKinds(t *testing.T) {
	for _, conditional := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			disk := faultfs.Wrap(vfs.NewMem(), nil)
			e := open(t, small(disk))
			put(t, e, "0", "zeroes the first segment", synced)
			synctest.Wait()
			disk.SetInjector(slowly(faultfs.Sync, "*.wal"))
			defer disk.SetInjector(nil)
			var s trace.Stages
			// One waits for the disk, the other does not.
			writes := []*kv.Write{
				{Op: kv.Op{Kind: kv.KindPut, Key: []byte("a")}, Durability: kv.DurabilitySync, Stages: &s},
				{Op: kv.Op{Kind: kv.KindPut, Key: []byte("b")}, Durability: kv.DurabilityMemory},
			}
			writes[conditional].If = &kv.Condition{Kind: kv.IfAbsent}
			begin := time.Now()
			require.NoError(t, e.Write(t.Context(), writes))
			require.Equal(t, trace.Stages{Sync: time.Since(begin)}, s)
			require.GreaterOrEqual(t, s.Sync, slow)
		})
	}
}

// Of writes with conditions the last one in the log is the slowest.
func TestStagesOfConditionalWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := faultfs.Wrap(vfs.NewMem(), nil)
		e := open(t, small(disk))
		put(t, e, "0", "zeroes the first segment", synced)
		synctest.Wait()
		disk.SetInjector(slowly(faultfs.Sync, "*.wal"))
		defer disk.SetInjector(nil)
		var writes []*kv.Write
		for _, k := range acrossKeys(e) {
			w := timedWrite(k, synced)
			w.If = &kv.Condition{Kind: kv.IfAbsent}
			writes = append(writes, &w)
		}
		var s trace.Stages
		writes[0].Stages = &s
		begin := time.Now()
		require.NoError(t, e.Write(t.Context(), writes))
		require.Equal(t, trace.Stages{Sync: time.Since(begin)}, s)
		require.GreaterOrEqual(t, s.Sync, slow)
	})
}

// BenchmarkStages is what it costs to be told.
func BenchmarkStages(b *testing.B) {
	for _, timed := range []bool{false, true} {
		var s *trace.Stages
		if timed {
			s = new(trace.Stages)
		}
		b.Run(fmt.Sprintf("put/timed=%t", timed), func(b *testing.B) {
			e := benchEngine(b, 4)
			b.ReportAllocs()
			for i := range b.N {
				_, err := e.Put(context.Background(), []byte(key(i%1000)), nil, kv.WriteOptions{Durability: kv.DurabilityMemory, Stages: s})
				require.NoError(b, err)
			}
		})
		for _, keys := range []int{1, 16} {
			b.Run(fmt.Sprintf("lookup=%d/timed=%t", keys, timed), func(b *testing.B) {
				e := benchEngine(b, 4)
				reads := make([]*kv.Lookup, keys)
				for i := range reads {
					put(b, e, key(i), "v", memory)
					reads[i] = &kv.Lookup{Key: []byte(key(i)), Stages: s}
				}
				b.ReportAllocs()
				for range b.N {
					require.NoError(b, e.Lookup(context.Background(), reads))
				}
			})
		}
	}
}
