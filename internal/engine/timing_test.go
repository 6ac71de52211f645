package engine

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/commit"
	"github.com/kvd-db/kvd/internal/event"
	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// gate holds operations of a faultfs back until it is opened.
type gate struct {
	chosen faultfs.Predicate
	wait   chan struct{}
	open   func()
	fault  faultfs.Fault // of the operations once it is open
}

func newGate(kind faultfs.Kind, pattern string) *gate {
	g := &gate{wait: make(chan struct{})}
	g.chosen = func(op faultfs.Op) bool { return op.Kind == kind && faultfs.OnName(pattern)(op) }
	g.open = sync.OnceFunc(func() { close(g.wait) })
	return g
}

func (g *gate) Inject(op faultfs.Op) faultfs.Fault {
	if !g.chosen(op) {
		return faultfs.Fault{}
	}
	fault := g.fault
	fault.Delay = func() { <-g.wait }
	return fault
}

// keysIn returns keys that lie in a partition.
func keysIn(e *Engine, partition, n int) []string {
	var keys []string
	for i := 0; len(keys) < n; i++ {
		if k := key(i); e.route(keyhash.Sum([]byte(k))) == partition {
			keys = append(keys, k)
		}
	}
	return keys
}

func TestBlockedSyncHoldsBackItsOwnGroupAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := faultfs.Wrap(vfs.NewMem(), nil)
		e := open(t, small(disk))
		g := newGate(faultfs.Sync, "*.wal")
		defer g.open()
		disk.SetInjector(g)
		var answered atomic.Int64
		waiting := keysIn(e, 0, 10)
		var all sync.WaitGroup
		for _, k := range waiting {
			all.Go(func() { put(t, e, k, "v", synced); answered.Add(1) })
		}
		synctest.Wait()
		for partition := 1; partition < 4; partition++ {
			k := keysIn(e, partition, 1)[0]
			begin := time.Now()
			put(t, e, k, "v", buffered)
			requireValue(t, e, k, "v")
			require.Zero(t, time.Since(begin))
		}
		time.Sleep(5 * time.Second)
		require.Zero(t, answered.Load(), "no answer before the sync")
		for _, k := range waiting {
			requireAbsent(t, e, k) // a crash could still take it back
		}
		g.open()
		all.Wait()
		for _, k := range waiting {
			requireValue(t, e, k, "v")
		}
	})
}

// A write that asks for no sync does not wait for that of another, which is before it in
// the log of the same partition: it is acknowledged and read by its key. What reads
// several keys at one version waits for the sync instead.
func TestWeakerWriteDoesNotWaitForTheSyncOfAnother(t *testing.T) {
	for _, level := range []kv.WriteOptions{buffered, {Durability: kv.DurabilityMemory}} {
		t.Run(level.Durability.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := faultfs.Wrap(vfs.NewMem(), nil)
				e := open(t, small(disk))
				g := newGate(faultfs.Sync, "*.wal")
				defer g.open()
				disk.SetInjector(g)
				keys := keysIn(e, 0, 30)
				strong, weak, both := keys[:10], keys[10:20], keys[20:]
				var all sync.WaitGroup
				for _, k := range slices.Concat(strong, both) {
					all.Go(func() { put(t, e, k, "strong", synced) })
				}
				synctest.Wait()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				for _, k := range slices.Concat(weak, both) {
					_, err := e.Put(ctx, []byte(k), []byte("weak"), level)
					require.NoError(t, err)
					requireValue(t, e, k, "weak")
				}
				var b kv.WriteBatch
				b.Put([]byte(weak[0]), []byte("batch"))
				b.Put([]byte(weak[1]), []byte("batch"))
				_, err := e.Apply(ctx, &b, level)
				require.NoError(t, err)
				one := kv.Write{Op: kv.Op{Kind: kv.KindPut, Key: []byte(weak[2]), Value: []byte("weak")}, Durability: level.Durability}
				require.NoError(t, e.Write(ctx, []*kv.Write{&one}))
				require.NoError(t, one.Err)
				for _, k := range strong {
					requireAbsent(t, e, k) // a crash could still take it back
				}
				for _, k := range weak[:2] {
					requireValue(t, e, k, "batch")
				}
				var snapshot atomic.Bool
				all.Go(func() {
					items := scanPairs(t, e, kv.ScanOptions{})
					snapshot.Store(true)
					require.Len(t, items, len(keys))
				})
				synctest.Wait()
				require.False(t, snapshot.Load(), "a scan reads one version, of which all must be there")

				g.open()
				all.Wait()
				for _, k := range strong {
					requireValue(t, e, k, "strong")
				}
				for _, k := range slices.Concat(weak[2:], both) {
					requireValue(t, e, k, "weak")
				}
			})
		})
	}
}

// After callers have given up, a later put waits for its own sync: none is answered by the
// sync of another.
func TestPutAfterOthersGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := faultfs.Wrap(vfs.NewMem(), nil)
		e := open(t, small(disk))
		for i := range 10 {
			put(t, e, key(i), "before", synced)
		}
		first, second := newGate(faultfs.Sync, "*.wal"), newGate(faultfs.Sync, "*.wal")
		defer first.open()
		defer second.open()
		disk.SetInjector(first)
		ctx, giveUp := context.WithCancel(t.Context())
		var gone, all sync.WaitGroup
		for i := range 10 {
			gone.Go(func() {
				_, err := e.Put(ctx, []byte(key(i)), []byte("given up"), synced)
				assert.ErrorIs(t, err, kv.ErrUncertain)
			})
		}
		synctest.Wait()
		giveUp()
		gone.Wait()
		disk.SetInjector(second)
		var answered atomic.Int64
		for i := range 10 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, err := e.Put(ctx, []byte(key(i)), []byte("after"), synced)
				assert.NoError(t, err)
				answered.Add(1)
			})
		}
		synctest.Wait()
		first.open() // answers some writes whose callers gave up
		synctest.Wait()
		require.Zero(t, answered.Load())
		second.open()
		all.Wait()
		for i := range 10 {
			requireValue(t, e, key(i), "after")
		}
	})
}

func TestCloseAnswersEveryWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		disk := faultfs.Wrap(mem, nil)
		e := open(t, small(disk))
		g := newGate(faultfs.Sync, "*.wal")
		defer g.open()
		disk.SetInjector(g)
		errs := make([]error, 100)
		var all sync.WaitGroup
		for i := range errs {
			all.Go(func() {
				var b kv.WriteBatch
				b.Put([]byte(fmt.Sprint("a", i)), []byte("v"))
				if i%2 == 0 {
					b.Put([]byte(fmt.Sprint("b", i)), []byte("v"))
				}
				_, errs[i] = e.Apply(t.Context(), &b, synced)
			})
			if i == 70 {
				synctest.Wait() // the others race with Close
			}
		}
		all.Go(func() { assert.NoError(t, e.Close()) })
		synctest.Wait()
		g.open()
		all.Wait()
		after := open(t, small(mem.CrashImage(vfs.DropAll, nil)))
		for i, err := range errs {
			if err == nil {
				requireValue(t, after, fmt.Sprint("a", i), "v")
				continue
			}
			require.ErrorIs(t, err, kv.ErrClosed)
			requireAbsent(t, after, fmt.Sprint("a", i))
		}
	})
}

// A batch that comes while the partitions are being closed must not wait for an
// orchestrator that is gone.
func TestBatchMeetsClosedPartitions(t *testing.T) {
	e := open(t, small(vfs.NewMem()))
	e.scheduler.close()
	for i, p := range e.partitions {
		e.own.coordinators[i].Close()
		require.NoError(t, p.Close())
	}
	ctx, cancel := context.WithDeadline(t.Context(), testwait.Deadline())
	defer cancel()
	var b kv.WriteBatch
	for partition := range e.partitions {
		b.Put([]byte(keysIn(e, partition, 1)[0]), []byte("v"))
	}
	_, err := e.Apply(ctx, &b, memory)
	require.ErrorIs(t, err, kv.ErrClosed)
	require.Zero(t, e.across.inUse())
}

// The goroutine that answers must never wait for the caller, which may have given up, or be
// that goroutine itself.
func TestAnswersDoNotWaitForTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		call := commit.NewCall(2)
		decided := make(chan struct{})
		go func() {
			call.Decided(nil, nil)
			call.Decided(nil, nil)
			close(decided)
		}()
		synctest.Wait()
		select {
		case <-decided:
		default:
			t.Error("the answer waits for its caller")
		}
		<-call.Done()
	})
}

func TestDeadlineOfAQueuedWriteAndOfATakenOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		disk := faultfs.Wrap(mem, nil)
		o := small(disk)
		o.MemtableBytes = 64 << 20
		e := open(t, o)
		keys := keysIn(e, 0, 3)
		g := newGate(faultfs.Sync, "*.wal")
		defer g.open()
		disk.SetInjector(g)
		var all sync.WaitGroup
		// A record larger than what a partition may have under way, so that what
		// comes next stays in the inbox.
		all.Go(func() { put(t, e, keys[0], strings.Repeat("x", 2<<20), synced) })
		synctest.Wait()
		short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := e.Put(short, []byte(keys[1]), []byte("queued"), synced)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, kv.ErrUncertain, "it never left the queue")

		other := keysIn(e, 1, 1)[0]
		short, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err = e.Put(short, []byte(other), []byte("taken"), synced)
		require.ErrorIs(t, err, kv.ErrUncertain)
		require.ErrorIs(t, err, context.DeadlineExceeded)

		g.open()
		all.Wait()
		put(t, e, other+"x", "later", synced)
		synctest.Wait() // no caller waits for what was taken
		requireAbsent(t, e, keys[1])
		requireValue(t, e, other, "taken")
		requireAbsent(t, open(t, small(mem.CrashImage(vfs.DropAll, nil))), keys[1])
	})
}

// While flushes hang, writers are slowed more and more, then shed; memory stays
// bounded, reads go on, and all is well again once flushes are.
func TestStalledFlushSlowsThenSheds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := faultfs.Wrap(vfs.NewMem(), nil)
		var stalls, resumed atomic.Int64
		o := small(disk)
		o.MemtableBytes = 8 << 20
		o.Events = &event.Listener{Stall: func(s event.Stall) {
			if s.Begin {
				stalls.Add(1)
			} else {
				resumed.Add(1)
			}
		}}
		e := open(t, o)
		g := newGate(faultfs.Sync, "*.sst")
		defer g.open()
		disk.SetInjector(g)
		var (
			slowed, shed atomic.Int64
			largest      atomic.Int64
			all          sync.WaitGroup
			value        = make([]byte, 2<<10)
		)
		for writer := range 8 {
			all.Go(func() {
				for i := 0; shed.Load() < 16; i++ {
					begin := time.Now()
					_, err := e.Put(t.Context(), fmt.Appendf(nil, "%d-%d", writer, i), value, memory)
					took := time.Since(begin)
					assert.LessOrEqual(t, took, patience+time.Second, "no caller waits for long")
					switch {
					case err != nil:
						shed.Add(1)
						var overload *kv.OverloadError
						assert.ErrorAs(t, err, &overload)
						assert.ErrorIs(t, err, kv.ErrOverloaded)
					case took > 0:
						slowed.Add(1)
					}
					largest.Store(max(largest.Load(), e.Stats().MemtableBytes))
				}
			})
		}
		all.Wait()
		assert.Greater(t, slowed.Load(), int64(100), "writers were slowed before the first was shed")
		assert.Less(t, largest.Load(), o.MemtableBytes*3/2)
		assert.Positive(t, stalls.Load())
		assert.Positive(t, e.Stats().Shed)
		requireValue(t, e, "0-0", string(value))

		g.open()
		time.Sleep(time.Second)
		begin := time.Now()
		put(t, e, "after", "v", memory)
		assert.Less(t, time.Since(begin), 100*time.Millisecond)
		require.NoError(t, e.Flush(t.Context()))
		put(t, e, "after", "v", memory)
		assert.Equal(t, stalls.Load(), resumed.Load())
	})
}

// The log is given back when what it holds is in tables that a durable manifest
// names, not before: hold the flush up at each of its steps.
func TestLogIsKeptUntilTheManifestIsDurable(t *testing.T) {
	for _, step := range []struct {
		kind    faultfs.Kind
		pattern string
	}{
		{faultfs.Create, "*.sst"}, {faultfs.Sync, "*.sst"}, {faultfs.Rename, "MANIFEST-*"}, {faultfs.Rename, "CURRENT"},
	} {
		synctest.Test(t, func(t *testing.T) {
			mem := vfs.NewMem()
			disk := faultfs.Wrap(mem, nil)
			o := small(disk)
			o.Partitions = 1 // a second flush would wait for the first one's mutex, which stops the bubble's clock
			o.SegmentBytes = 1 << 10
			e := open(t, o)
			for i := range 60 {
				put(t, e, key(i), strings.Repeat("v", 100), synced)
			}
			g := newGate(step.kind, step.pattern)
			defer g.open()
			disk.SetInjector(g)
			for _, p := range e.partitions {
				p.Seal()
			}
			time.Sleep(3 * housekeepingEvery)
			synctest.Wait()
			o.FS = mem.CrashImage(vfs.DropAll, nil)
			after := open(t, o)
			for i := range 60 {
				requireValue(t, after, key(i), strings.Repeat("v", 100))
			}
			g.open()
			require.NoError(t, e.Flush(t.Context()))
			time.Sleep(housekeepingEvery)
			require.Positive(t, e.Stats().Log.LiveBytes)
			require.Less(t, e.Stats().Log.LiveBytes, int64(4<<10), "then it is")
		})
	}
}

// After a crash everything of the log is in active memtables, and that may be more
// than the present options allow. They must be flushed although no caller writes.
func TestRecoveredMemtablesDoNotShutWritersOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		o := small(mem)
		o.MemtableBytes = 16 << 20
		e := open(t, o)
		for i := range 200 {
			put(t, e, key(i), strings.Repeat("v", 4<<10), buffered)
		}
		o = small(mem.KillImage())
		o.logBytes = 64 << 20 // or the log's length would do it
		again := open(t, o)
		time.Sleep(time.Second)
		require.Less(t, again.Stats().MemtableBytes, small(mem).MemtableBytes)
		put(t, again, "after", "v", buffered)
	})
}

func TestNearlyFullDiskMakesTheStoreReadOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		mem.SetCapacity(64 << 20)
		o := small(mem)
		o.LowDiskBytes = 4 << 20
		e := open(t, o)
		put(t, e, "a", "1", synced)
		setFree := func(free uint64) {
			usage, err := mem.Usage("data")
			require.NoError(t, err)
			mem.SetCapacity(int64(usage.Total - usage.Free + free))
			time.Sleep(housekeepingEvery + time.Millisecond)
			synctest.Wait()
		}
		setFree(3 << 20)
		_, err := e.Put(t.Context(), []byte("a"), []byte("2"), synced)
		require.ErrorIs(t, err, kv.ErrReadOnly)
		requireValue(t, e, "a", "1")
		require.True(t, e.Stats().ReadOnly)
		require.NoError(t, e.CompactAll(t.Context()), "what frees space goes on")
		setFree(4<<20 + 1<<10)
		_, err = e.Put(t.Context(), []byte("a"), []byte("2"), synced)
		require.ErrorIs(t, err, kv.ErrReadOnly, "not before there is some more")
		setFree(6 << 20)
		put(t, e, "a", "3", synced)
		require.NoError(t, e.Err())
		requireValue(t, e, "a", "3")
	})
}

// A flush or compaction that fails leaves everything as it was and succeeds once
// the disk works again, without intervention.
func TestFailedFlushesAreRetried(t *testing.T) {
	for _, fault := range []*faultfs.Rule{
		faultfs.FailAt(0, syscall.EIO, true, faultfs.OnKind(faultfs.Create), faultfs.OnName("*.sst")),
		faultfs.FailAt(0, syscall.ENOSPC, true, faultfs.OnKind(faultfs.Write), faultfs.OnName("*.sst")),
		faultfs.FailAt(0, syscall.EIO, true, faultfs.OnKind(faultfs.Sync), faultfs.OnName("*.sst")),
	} {
		synctest.Test(t, func(t *testing.T) {
			disk := faultfs.Wrap(vfs.NewMem(), nil)
			var failures atomic.Int64
			o := small(disk)
			o.Events = &event.Listener{
				BackgroundError: func(error) { failures.Add(1) },
				ReadOnly:        func(event.ReadOnly) { failures.Add(1) }, // of ENOSPC
			}
			e := open(t, o)
			disk.SetInjector(fault)
			put(t, e, "a", "1", memory)
			require.Error(t, e.Flush(t.Context()))
			time.Sleep(time.Minute)
			require.Positive(t, failures.Load())
			require.Less(t, failures.Load(), int64(20), "with pauses in between")
			requireValue(t, e, "a", "1")
			require.NoError(t, e.Err())
			disk.SetInjector(nil)
			time.Sleep(2 * longPause)
			var flushes uint64
			for _, p := range e.Stats().Partitions {
				flushes += p.Flushes
			}
			require.Positive(t, flushes)
			requireValue(t, e, "a", "1")
		})
	}
}

// Every reader sees all of a batch over several partitions or nothing of it: by a read of
// many keys, by a scan, and by one get after another.
func TestBatchesAreSeenWhole(t *testing.T) {
	e := open(t, unhurried(vfs.NewMem()))
	var keys []string
	for partition := range 4 {
		keys = append(keys, keysIn(e, partition, 1)[0])
	}
	long := time.Second
	if testsize.Reduced() {
		long /= 4
	}
	stop := make(chan struct{})
	var all sync.WaitGroup
	reader := func(read func() error) {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					runtime.Gosched()
				}
				if !assert.NoError(t, read()) {
					return
				}
			}
		})
	}
	one := func(v []byte) int { n, _ := strconv.Atoi(string(v)); return n } // absent is round 0
	get := func(k string) (int, error) {
		i, err := e.Get(context.Background(), []byte(k))
		if errors.Is(err, kv.ErrNotFound) {
			err = nil
		}
		return one(i.Value), err
	}
	for i := range keys {
		x, y := keys[i], keys[(i+1)%len(keys)]
		reader(func() error { // what a get saw, a later one elsewhere sees
			first, err := get(x)
			if err != nil {
				return err
			}
			second, err := get(y)
			if err == nil && second < first {
				err = fmt.Errorf("%s is of round %d, %s later of round %d", x, first, y, second)
			}
			return err
		})
	}
	reader(func() error {
		var reads []*kv.Lookup
		for _, k := range keys {
			reads = append(reads, &kv.Lookup{Key: []byte(k)})
		}
		if _, err := e.LookupAt(context.Background(), reads, 0); err != nil {
			return err
		}
		for _, r := range reads {
			if one(r.Value) != one(reads[0].Value) || r.Err != nil {
				return errors.Join(r.Err, fmt.Errorf("one read saw rounds %s and %s", r.Value, reads[0].Value))
			}
		}
		return nil
	})
	reader(func() error {
		s, err := e.Scan(context.Background(), kv.Range{}, kv.ScanOptions{})
		if err != nil {
			return err
		}
		rounds := map[string]int{}
		for s.Next() {
			rounds[string(s.Item().Value)]++
		}
		if len(rounds) > 1 {
			err = fmt.Errorf("one scan saw %v", rounds)
		}
		return errors.Join(err, s.Err(), s.Close())
	})
	const enough = 10 // however slow the machine
	rounds := 0
	for begin := time.Now(); (time.Since(begin) < long || rounds <= enough) && !t.Failed(); rounds++ {
		var b kv.WriteBatch
		for _, k := range keys {
			b.Put([]byte(k), strconv.AppendInt(nil, int64(rounds+1), 10))
		}
		_, err := e.Apply(t.Context(), &b, []kv.WriteOptions{memory, buffered, synced}[rounds%3])
		require.NoError(t, err)
		if rounds%50 == 49 {
			require.NoError(t, e.Flush(t.Context()))
		}
	}
	close(stop)
	all.Wait()
	t.Logf("%d batches", rounds)
}
