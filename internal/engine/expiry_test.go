package engine

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// putFor puts a key that lives for so long.
func putFor(t require.TestingT, e *Engine, key, value string, ttl time.Duration, d kv.Durability) (expiry uint64) {
	op := kv.Op{Kind: kv.KindPut, Key: []byte(key), Value: []byte(value), Expiry: e.Now() + uint64(ttl.Milliseconds())}
	w := kv.Write{Op: op, Durability: d}
	require.NoError(t, e.Write(context.Background(), []*kv.Write{&w}))
	require.NoError(t, w.Err)
	return op.Expiry
}

// A key that a reader saw expired never comes back, and a key that has time left by the
// store's clock is present: across writes, flushes, compactions, restarts, crashes, and
// jumps of the wall clock by years. A snapshot always sees the same.
func TestNoExpiredKeyComesBack(t *testing.T) {
	jumps := []time.Duration{-10 * year, -time.Minute, time.Minute, 10 * year}
	keys := []string{"a", "b", "c", "d"}
	type written struct {
		value  string
		expiry uint64 // 0: never
	}
	rapid.Check(t, func(t *rapid.T) {
		tt, mem := newTestTime(), vfs.NewMem()
		o := unhurried(mem)
		o.time, o.Partitions = tt.source(), 2
		var e *Engine
		reopen := func() {
			o.FS = mem
			var err error
			e, err = Open("data", o)
			require.NoError(t, err)
		}
		reopen()
		defer func() { require.NoError(t, e.Close()) }()
		want := map[string]written{}
		seenAt := uint64(0) // what the clock has said, once a key was to expire
		used := false
		var snapshot kv.Snapshot
		frozen := map[string]string{}
		for n := range rapid.IntRange(5, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 11).Draw(t, "step") {
			case 0, 1, 2:
				key := rapid.SampledFrom(keys).Draw(t, "key")
				w := written{value: fmt.Sprint(n)}
				if rapid.IntRange(0, 3).Draw(t, "without expiry") == 0 {
					_, err := e.Put(context.Background(), []byte(key), []byte(w.value), synced)
					require.NoError(t, err)
				} else {
					ttl := rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, time.Minute}).Draw(t, "for")
					used = true
					w.expiry = putFor(t, e, key, w.value, ttl, kv.DurabilitySync)
				}
				want[key] = w
			case 3, 4:
				tt.pass(rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, 4 * time.Second}).Draw(t, "time"))
				require.NoError(t, e.clock.keep()) // the maintenance loop runs by another clock
			case 5:
				tt.jump(rapid.SampledFrom(jumps).Draw(t, "jump"))
			case 6:
				require.NoError(t, e.Flush(context.Background()))
			case 7:
				require.NoError(t, e.CompactAll(context.Background()))
			case 8, 9:
				old := e
				if rapid.Bool().Draw(t, "crash") {
					mem = mem.CrashImage(vfs.DropAll, nil)
				}
				require.NoError(t, old.Close())
				reopen()
				snapshot = kv.Snapshot{}
			case 10:
				var err error
				snapshot, err = e.BeginSnapshot(context.Background(), longLease)
				require.NoError(t, err)
				now, err := e.snapshots.find(snapshot.Version)
				require.NoError(t, err)
				clear(frozen)
				for key, w := range want {
					if w.expiry == 0 || w.expiry > now {
						frozen[key] = w.value
					}
				}
			case 11:
				e.ReleaseSnapshot(snapshot.ID)
				snapshot = kv.Snapshot{}
			}
			before := e.Now()
			require.GreaterOrEqual(t, before, seenAt)
			got := map[string]string{}
			for _, item := range scanPairs(t, e, kv.ScanOptions{Reverse: n%2 == 0}) {
				got[item[0]] = item[1]
			}
			after := e.Now()
			if used {
				seenAt = after
			}
			require.Equal(t, before, after, "only the test moves time")
			for _, key := range keys {
				w, ok := want[key]
				alive := ok && (w.expiry == 0 || w.expiry > after)
				value, there := got[key]
				require.Equal(t, alive, there, "scan: key %s, %+v, at %d", key, w, after)
				item, err := e.Get(context.Background(), []byte(key))
				if !alive {
					require.ErrorIs(t, err, kv.ErrNotFound, "key %s, %+v, at %d", key, w, after)
					continue
				}
				require.NoError(t, err, "key %s, %+v, at %d", key, w, after)
				require.Equal(t, w, written{string(item.Value), item.Expiry})
				require.Equal(t, w.value, value)
			}
			if snapshot.ID != 0 {
				got := map[string]string{}
				for _, item := range scanPairs(t, e, kv.ScanOptions{At: snapshot.Version, Reverse: n%3 == 0}) {
					got[item[0]] = item[1]
				}
				require.Equal(t, frozen, got, "what a snapshot sees never changes")
				for _, key := range keys {
					value, err := getAt(e, snapshot.Version, key)
					if want, ok := frozen[key]; ok {
						require.NoError(t, err)
						require.Equal(t, want, value)
					} else {
						require.ErrorIs(t, err, kv.ErrNotFound)
					}
				}
			}
		}
	})
}

func scanPairs(t require.TestingT, e *Engine, o kv.ScanOptions) (pairs [][2]string) {
	s, err := e.Scan(context.Background(), kv.Range{}, o)
	require.NoError(t, err)
	for s.Next() {
		pairs = append(pairs, [2]string{string(s.Item().Key), string(s.Item().Value)})
	}
	require.NoError(t, s.Err())
	require.NoError(t, s.Close())
	return pairs
}

// The space of expired keys comes back, but not while a snapshot from before can
// see them.
func TestExpiredKeysGiveTheirSpaceBack(t *testing.T) {
	tt := newTestTime()
	o := unhurried(vfs.NewMem())
	o.time = tt.source()
	e := open(t, o)
	for i := range 100 {
		putFor(t, e, key(i), "v", time.Second, kv.DurabilityMemory)
	}
	require.NoError(t, e.CompactAll(t.Context()))
	require.EqualValues(t, 100, entries(e))
	s := begin(t, e, longLease)
	tt.pass(2 * time.Second)
	require.Empty(t, contents(t, e))
	overwrite := func() {
		for i := range 50 { // so that there is something to merge in every partition
			put(t, e, key(2*i)+"+", "v", memory)
		}
		require.NoError(t, e.CompactAll(t.Context()))
	}
	overwrite()
	require.Len(t, scanPairs(t, e, kv.ScanOptions{At: s.Version}), 100)
	e.ReleaseSnapshot(s.ID)
	overwrite()
	require.EqualValues(t, 50, entries(e))
}
