package engine

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// A batch with two guards in one partition, of which memory has one key and the disk
// the other, waits for the disk while another write changes the first key. The batch
// must see that write: both guards are read at one version.
func TestGuardsOfOnePartitionAreReadAtOneVersion(t *testing.T) {
	for name, size := range map[string]int{"values inline": 10, "values in value files": 2000} {
		for _, order := range []string{"memory first", "disk first"} {
			t.Run(name+", "+order, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testGuardsAtOneVersion(t, size, order == "disk first") })
			})
		}
	}
}

func testGuardsAtOneVersion(t *testing.T, size int, diskFirst bool) {
	disk := faultfs.Wrap(vfs.NewMem(), nil)
	o := small(disk)
	o.Partitions, o.MemtableBytes, o.CacheBytes = 1, 4<<20, 1
	e := open(t, o)
	value := func(n int) string { return fmt.Sprintf("%0*d", size, n) }
	guards := map[string]kv.Guard{}
	guard := func(key string) {
		item, err := e.Get(t.Context(), []byte(key))
		require.NoError(t, err)
		guards[key] = kv.Guard{Key: []byte(key), Condition: kv.Condition{Kind: kv.IfVersion, Version: item.Version}}
	}
	for _, k := range []string{"in memory", "on disk", "other 1", "other 2"} {
		put(t, e, k, value(0), memory)
	}
	require.NoError(t, e.Flush(t.Context()))
	put(t, e, "in memory", value(1), memory)
	guard("in memory")
	guard("on disk")

	// Two reads of the disk are as many as a partition has under way: a third waits.
	g := newGate(faultfs.Read, "*.sst")
	defer g.open()
	disk.SetInjector(g)
	var others sync.WaitGroup
	for _, k := range []string{"other 1", "other 2"} {
		others.Go(func() { requireValue(t, e, k, value(0)) })
	}
	synctest.Wait()
	keys := []string{"in memory", "on disk"}
	if diskFirst {
		keys[0], keys[1] = keys[1], keys[0]
	}
	outcome := make(chan error, 1)
	go func() {
		var b kv.WriteBatch
		for _, k := range keys {
			b.Require(guards[k])
			b.Put([]byte(k), []byte(value(3)))
		}
		_, err := e.Apply(t.Context(), &b, memory)
		outcome <- err
	}()
	synctest.Wait()
	require.Empty(t, outcome, "the batch waits for the disk")
	put(t, e, "in memory", value(2), memory)
	g.open()
	require.ErrorIs(t, <-outcome, kv.ErrConditionFailed, "the batch has overwritten a write that it did not see")
	others.Wait()
	requireValue(t, e, "in memory", value(2))
	requireValue(t, e, "on disk", value(0))
}

// Concurrent batches that increment counters under conditions on what they read lose no
// increment, wherever the counters lie.
func TestConditionalBatchesLoseNoIncrement(t *testing.T) {
	for name, size := range map[string]int{"values inline": 10, "values in value files": 300} {
		t.Run(name, func(t *testing.T) { testIncrements(t, size) })
	}
}

func testIncrements(t *testing.T, size int) {
	const clients, counters = 16, 4
	increments := int64(4000)
	if testsize.Reduced() {
		increments = 1000
	}
	o := small(vfs.NewMem())
	o.Partitions, o.MemtableBytes, o.CacheBytes, o.FlushKeys = 1, 4<<20, 1, 40
	e := open(t, o)
	value := func(n int) []byte { return fmt.Appendf(nil, "%0*d", size, n) }
	for i := range counters {
		put(t, e, key(i), string(value(0)), memory)
	}
	var all sync.WaitGroup
	var tried, lost atomic.Int64
	var done [counters]atomic.Int64
	for client := range clients {
		all.Go(func() {
			for n := client; tried.Add(1) <= increments && !t.Failed(); n++ {
				// One counter is written all the time. The others are written seldom, so
				// that they are on disk most of the time.
				cold, also := 1+n%(counters-1), n%20 == 0
				err := incrementUnderGuards(t.Context(), e, key(0), key(cold), also, value)
				switch {
				case errors.Is(err, kv.ErrConditionFailed):
					lost.Add(1)
				case !assert.NoError(t, err):
					return
				default:
					done[0].Add(1)
					if also {
						done[cold].Add(1)
					}
				}
			}
		})
	}
	all.Wait()
	for i := range counters {
		got, _ := get(t, e, key(i))
		n, err := strconv.ParseInt(got, 10, 64)
		require.NoError(t, err)
		require.Equal(t, done[i].Load(), n, "counter %d: acknowledged increments, and those that are there", i)
	}
	require.Positive(t, lost.Load(), "no batch met another: the test shows nothing")
}

// incrementUnderGuards adds one to a counter, and to a second one if also is set,
// under a condition on the value of the first and on the version of the second.
func incrementUnderGuards(ctx context.Context, e *Engine, hot, cold string, also bool, value func(int) []byte) error {
	var batch kv.WriteBatch
	for _, k := range []string{hot, cold} {
		item, err := e.Get(ctx, []byte(k))
		if err != nil {
			return err
		}
		c := kv.Condition{Kind: kv.IfValue, Value: item.Value}
		if k == cold {
			c = kv.Condition{Kind: kv.IfVersion, Version: item.Version}
		}
		batch.Require(kv.Guard{Key: []byte(k), Condition: c})
		n, err := strconv.Atoi(string(item.Value))
		if err != nil {
			return err
		}
		if k == hot || also {
			batch.Put([]byte(k), value(n+1))
		}
	}
	_, err := e.Apply(ctx, &batch, memory)
	return err
}

func ifAbsent(key, value string, id kv.RequestID) *kv.Write {
	op := kv.Op{Kind: kv.KindPut, Key: []byte(key), Value: []byte(value)}
	return &kv.Write{Op: op, If: &kv.Condition{Kind: kv.IfAbsent}, Durability: kv.DurabilitySync, RequestID: id}
}

// Conditional writes of one call and partition become one record. (Those of several partitions are
// written together as long as one orchestrator leads them all, which depends on the processors.)
func TestConditionalWritesOfACallShareASync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := small(vfs.NewMem())
		o.Partitions = 1
		e := open(t, o)
		var writes []*kv.Write
		for i := range 100 {
			writes = append(writes, ifAbsent(key(i), "v", kv.RequestID{}))
		}
		before := e.Stats().Log
		require.NoError(t, e.Write(t.Context(), writes))
		after := e.Stats().Log
		for _, w := range writes {
			require.NoError(t, w.Err)
		}
		assert.EqualValues(t, 1, after.Records-before.Records)
		assert.EqualValues(t, 1, after.Frames-before.Frames)
		assert.EqualValues(t, 1, after.Syncs-before.Syncs)
	})
}

// Conditional writes of one call do not wait for each other: neither large ones, nor others for
// one that was applied before.
func TestConditionalWritesDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, small(vfs.NewMem()))
		var large []*kv.Write
		for i := range 3 {
			large = append(large, ifAbsent(key(i), string(make([]byte, e.across.limit/2)), kv.RequestID{}))
		}
		require.NoError(t, e.Write(t.Context(), large))
		for _, w := range large {
			require.NoError(t, w.Err)
		}

		id := kv.RequestID{ClientID: 1, Sequence: 1}
		first := ifAbsent("k", "v", id)
		require.NoError(t, e.Write(t.Context(), []*kv.Write{first}))
		require.NoError(t, first.Err)
		id.Retried = true
		other, again := ifAbsent("other", "v", kv.RequestID{}), ifAbsent("k", "v", id)
		require.NoError(t, e.Write(t.Context(), []*kv.Write{other, again}))
		require.NoError(t, other.Err)
		require.NoError(t, again.Err)
		assert.True(t, again.Deduplicated)
		assert.Equal(t, first.Version, again.Version)
	})
}

// meterFunc is a kv.Meter that calls a function for each value before it is copied, and counts the
// bytes that it has taken.
type meterFunc struct {
	call  func()
	taken int64
}

func (m *meterFunc) Take(bytes int64) bool {
	m.call()
	m.taken += bytes
	return true
}

func (m *meterFunc) Give(bytes int64) { m.taken -= bytes }

// A write that returns what the key held reads it again after each conflict. The call is charged for
// what it returns alone: a budget of one value suffices, and so does memory for one.
func TestAConflictGivesBackWhatTheWriteHasRead(t *testing.T) {
	const size, conflicts = 64 << 10, 5
	places := map[string]func(e *Engine) error{
		"memtable": func(*Engine) error { return nil },
		"table":    func(e *Engine) error { return e.Flush(t.Context()) },
	}
	for place, settle := range places {
		for name, threshold := range map[string]int{"inline": 1 << 20, "apart": 1 << 10} {
			t.Run(place+", "+name, func(t *testing.T) {
				o := small(vfs.NewMem())
				o.MemtableBytes, o.ValueThreshold = 16<<20, threshold
				e := open(t, o)
				value := func(n int) string { return strings.Repeat(strconv.Itoa(n), size) }
				put(t, e, "k", value(0), memory)
				require.NoError(t, settle(e))

				n := 0
				meter := &meterFunc{call: func() { // the write has found a version, and not appended
					if n < conflicts {
						n++
						put(t, e, "k", value(n), memory)
						assert.NoError(t, settle(e))
					}
				}}
				account := &countedMemory{limit: kv.ValueCopies * size}
				budget := kv.NewReadBudget(0)
				budget.ResetExact(size)
				budget.Charge(account)
				budget.Meter(meter)
				w := &kv.Write{Op: kv.Op{Kind: kv.KindPut, Key: []byte("k"), Value: []byte("new")}, Previous: &kv.Lookup{Budget: budget}}
				require.NoError(t, e.Write(t.Context(), []*kv.Write{w}))
				require.NoError(t, w.Err)
				require.Equal(t, conflicts, n)
				assert.Equal(t, value(conflicts), string(w.Previous.Value))
				requireValue(t, e, "k", "new")

				assert.False(t, budget.Spent())
				assert.EqualValues(t, size, meter.taken, "of the value that is returned")
				assert.EqualValues(t, size, budget.Settle())
				budget.Trim()
				assert.EqualValues(t, kv.ValueCopies*size, budget.Held())
				account.Give(budget.Part(size))
				assert.Zero(t, account.used, "it holds nothing else")
				assert.Zero(t, budget.Held())
			})
		}
	}
}
