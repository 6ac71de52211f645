package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/event"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// freezingLife is clients of a store whose file system becomes read-only, and what they
// know of their keys.
type freezingLife struct {
	t    *testing.T
	e    *Engine
	keys []*frozenKey
	stop atomic.Bool // the writers end
	told struct {    // since the last opening
		sync.Mutex
		begun, ended int
	}
}

// frozenKey is a key with one writer, which writes ever larger numbers to it.
type frozenKey struct {
	name    string
	level   kv.WriteOptions
	history []string // what was asked for, in order; "" is a delete, and what was there before
	acked   int      // the place in history of the last that was acknowledged
}

func (l *freezingLife) options(fs vfs.FS) Options {
	o := small(fs)
	o.LowDiskBytes = 64 << 10
	o.Events = &event.Listener{ReadOnly: func(r event.ReadOnly) {
		l.told.Lock()
		defer l.told.Unlock()
		if r.Begin {
			l.told.begun++
		} else {
			l.told.ended++
		}
	}}
	return o
}

func (l *freezingLife) open(fs vfs.FS) {
	l.t.Helper()
	l.told.Lock()
	l.told.begun, l.told.ended = 0, 0
	l.told.Unlock()
	var err error
	l.e, err = Open("data", l.options(fs))
	require.NoError(l.t, err)
}

// write has all writers write n times, at the same time.
func (l *freezingLife) write(n int) {
	if l.keys == nil {
		for i, level := range []kv.WriteOptions{synced, buffered, memory, synced, buffered, memory} {
			l.keys = append(l.keys, &frozenKey{name: fmt.Sprintf("key-%d", i), level: level, history: []string{""}})
		}
	}
	var all sync.WaitGroup
	for _, k := range l.keys {
		all.Go(func() {
			for i := 0; i < n && !l.stop.Load(); i++ {
				l.writeOne(k)
			}
		})
	}
	all.Go(func() { l.writeBatches(n) })
	all.Wait()
}

func (l *freezingLife) writeOne(k *frozenKey) {
	next := len(k.history)
	value, err := "", error(nil)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if next%7 == 6 {
		_, err = l.e.Delete(ctx, []byte(k.name), k.level)
	} else {
		value = fmt.Sprintf("%d-%s", next, strings.Repeat("v", next*337%1500))
		_, err = l.e.Put(ctx, []byte(k.name), []byte(value), k.level)
	}
	switch {
	case err == nil:
		k.history, k.acked = append(k.history, value), next
	case errors.Is(err, kv.ErrUncertain), errors.Is(err, context.DeadlineExceeded):
		k.history = append(k.history, value)
	case errors.Is(err, kv.ErrReadOnly), errors.Is(err, kv.ErrFailed), errors.Is(err, kv.ErrOverloaded):
		time.Sleep(time.Millisecond) // nothing was done
	default:
		l.t.Errorf("a read-only file system must not answer: %v", err)
	}
}

// writeBatches writes batches that lie in all partitions.
func (l *freezingLife) writeBatches(n int) {
	for i := 0; i < n && !l.stop.Load(); i++ {
		var b kv.WriteBatch
		for j := range 5 {
			b.Put(fmt.Appendf(nil, "batch-%d", j), fmt.Append(nil, i))
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_, err := l.e.Apply(ctx, &b, []kv.WriteOptions{synced, buffered}[i%2])
		cancel()
		if err != nil {
			time.Sleep(time.Millisecond)
		}
	}
}

// crashed says that what only memory or only the kernel had may be lost.
func (l *freezingLife) crashed(powerCut bool) {
	for _, k := range l.keys {
		if k.level == memory || powerCut && k.level == buffered {
			k.acked = 0
		}
	}
}

func cloneKeys(keys []*frozenKey) (all []*frozenKey) {
	for _, k := range keys {
		c := *k
		c.history = slices.Clone(k.history)
		all = append(all, &c)
	}
	return all
}

// check reads everything: one by one, at one version, and by a scan.
func (l *freezingLife) check() {
	l.t.Helper()
	// By the fake clock: a read that waits for what never comes.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s, err := l.e.BeginSnapshot(ctx, 0)
	require.NoError(l.t, err)
	defer l.e.ReleaseSnapshot(s.ID)
	seen := contents(l.t, l.e)
	for _, k := range l.keys {
		single, _ := get(l.t, l.e, k.name)
		look := kv.Lookup{Key: []byte(k.name)}
		_, err := l.e.LookupAt(ctx, []*kv.Lookup{&look}, s.Version)
		require.NoError(l.t, err)
		require.NoError(l.t, look.Err)
		for _, got := range []string{single, seen[k.name], string(look.Value)} {
			require.Equal(l.t, single, got, "one by one, in a scan and in a snapshot: %s", k.name)
			require.True(l.t, slices.Contains(k.history[k.acked:], got), "%s: acknowledged %.20q, found %.20q", k.name, k.history[k.acked], got)
		}
	}
	for j := range 5 {
		require.Equal(l.t, seen["batch-0"], seen[fmt.Sprintf("batch-%d", j)], "a batch is seen whole")
	}
}

// requireReadOnly expects that the store takes neither puts nor deletes, and says why.
func (l *freezingLife) requireReadOnly() {
	l.t.Helper()
	require.NoError(l.t, l.e.Err())
	require.ErrorContains(l.t, l.e.ReadOnly(), "file system of the data directory")
	var deletes kv.WriteBatch
	deletes.DeleteRange([]byte("a"), nil)
	_, putErr := l.e.Put(l.t.Context(), []byte("key-0"), nil, memory)
	_, delErr := l.e.Delete(l.t.Context(), []byte("key-0"), memory)
	_, rangeErr := l.e.Apply(l.t.Context(), &deletes, synced)
	for _, err := range []error{putErr, delErr, rangeErr} {
		var why *kv.ReadOnlyError
		require.ErrorAs(l.t, err, &why)
		require.Contains(l.t, why.Reason, "mount it read-write")
		require.Zero(l.t, why.Resume, "free space does not help")
	}
}

// requireTold expects how often the listener was told since the last opening.
func (l *freezingLife) requireTold(begun, ended int) {
	l.t.Helper()
	l.told.Lock()
	defer l.told.Unlock()
	require.Equal(l.t, begun, l.told.begun)
	require.Equal(l.t, ended, l.told.ended)
}

// writable waits until writes go on by themselves.
func (l *freezingLife) writable() {
	l.t.Helper()
	for range 600 {
		if l.e.ReadOnly() == nil {
			synctest.Wait() // the listener is told
			return
		}
		time.Sleep(time.Second)
	}
	l.t.Fatal("ten minutes after the file system became writable no write is taken")
}

// freezeAt lives until the file system becomes read-only before operation at, and then
// stops writing or not. It reports whether the file system did, and whether the store
// failed of it.
func freezeAt(t *testing.T, at int64, stops bool) (froze, failed bool) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		l := &freezingLife{t: t}
		l.open(mem)
		putFor(t, l.e, "lease", "v", time.Hour, kv.DurabilitySync) // the clock is saved from here on
		var steps atomic.Int64
		var frozen atomic.Bool
		mem.SetHook(func(vfs.Step) {
			if steps.Add(1) == at {
				frozen.Store(true)
				l.stop.Store(stops)
				mem.SetReadOnly(true)
			}
		})
		l.write(40)
		time.Sleep(5 * time.Second) // marks, the clock
		l.write(10)
		time.Sleep(5 * time.Second)
		froze = frozen.Load()
		l.stop.Store(false)
		now := l.e.Now()
		if !froze {
			err := l.e.Close()
			if froze = frozen.Load(); !froze {
				require.NoError(t, err)
				return
			}
			require.True(t, err == nil || vfs.IsReadOnly(err), "%v", err)
			l.open(mem)
		}
		time.Sleep(3 * housekeepingEvery) // the listener is told at the second tick
		power := mem.CrashImage(vfs.Torn, rand.New(rand.NewPCG(uint64(at), 1)))
		killed := mem.KillImage()
		if failed = l.e.Err() != nil; failed {
			require.True(t, vfs.IsReadOnly(l.e.Err()), "%v", l.e.Err())
			require.Error(t, l.e.Close())
			l.crashed(false)
			l.open(mem)
		}
		l.requireReadOnly()
		l.check()
		l.requireTold(1, 0)
		require.GreaterOrEqual(t, l.e.Now(), now)

		if l.e.unwritable == nil && at%3 > 0 { // it becomes writable under the running store
			mem.SetReadOnly(false)
			l.writable()
			l.requireTold(1, 1)
			l.check()
			l.write(20)
			l.check()
			require.NoError(t, l.e.Close())
			l.open(mem)
			l.check()
			require.NoError(t, l.e.Close())
			return
		}
		if failed {
			before := mem.Steps()
			time.Sleep(3 * restAfter)
			require.Equal(t, before, mem.Steps(), "a store that was opened read-only tries nothing")
		}
		if err := l.e.Close(); err != nil {
			require.True(t, vfs.IsReadOnly(err), "%v", err)
			require.False(t, failed, "there was nothing to write")
		}
		keys := l.keys
		for _, image := range []*vfs.Mem{mem, killed, power} {
			l.keys = cloneKeys(keys)
			l.crashed(image == power)
			for _, readOnly := range []bool{true, false} {
				image.SetReadOnly(readOnly)
				l.open(image)
				l.check()
				require.GreaterOrEqual(t, l.e.Now(), now, "the clock does not go back")
				if readOnly {
					l.requireReadOnly()
				} else {
					l.write(5)
					l.check()
				}
				require.NoError(t, l.e.Close())
			}
		}
	})
	return froze, failed
}

// TestAFileSystemThatBecomesReadOnly makes the file system read-only before an operation
// of a life, for each of a sample of operations. Nothing that was acknowledged is lost;
// reads, scans and snapshots continue, in the same opening or, if the log or a manifest met
// it first, in the next; writes and deletes are refused with the reason; and a store that
// did not fail takes writes again once the file system does.
func TestAFileSystemThatBecomesReadOnly(t *testing.T) {
	failures := 0
	for _, stops := range []bool{false, true} {
		t.Run(fmt.Sprintf("writers stop=%v", stops), func(t *testing.T) {
			runs, before := 0, failures
			for at := int64(1); ; at += fillStep(37) {
				froze, failed := freezeAt(t, at, stops)
				if !froze || t.Failed() {
					break
				}
				runs++
				if failed {
					failures++
				}
			}
			t.Logf("%d runs, each with a file system that becomes read-only at another operation; in %d the store had to be opened again", runs, failures-before)
			require.Greater(t, runs, 2, "the sweep has steps")
		})
	}
	require.Positive(t, failures, "a write met the read-only file system")
}

// TestAnIdleStoreOnAReadOnlyFileSystem: the maintenance loop detects it although nothing is
// written, no write is attempted from then on, and writes resume by themselves.
func TestAnIdleStoreOnAReadOnlyFileSystem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		l := &freezingLife{t: t}
		l.open(mem)
		l.write(30)
		time.Sleep(5 * time.Second)
		for round := range 2 {
			mem.SetReadOnly(true)
			time.Sleep(2 * housekeepingEvery)
			steps := mem.Steps()
			l.requireReadOnly()
			l.check()
			time.Sleep(5 * time.Minute)
			require.Equal(t, steps, mem.Steps(), "nothing is tried")
			l.requireReadOnly()
			l.check()
			mem.SetReadOnly(false)
			l.writable()
			l.write(10)
			l.check()
			l.requireTold(round+1, round+1)
			time.Sleep(5 * time.Second)
		}
		mem.SetReadOnly(true)
		time.Sleep(2 * housekeepingEvery)
		require.NoError(t, l.e.Close(), "a store without anything to write stops in order")
		mem.SetReadOnly(false)
		l.open(mem)
		l.check()
		require.NoError(t, l.e.Close())
	})
}

// TestAStoreOnAReadOnlyFileSystemOpens after an orderly stop and after crashes, and shows
// what it would show on a writable one.
func TestAStoreOnAReadOnlyFileSystemOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := vfs.NewMem()
		l := &freezingLife{t: t}
		l.open(mem)
		var images []*vfs.Mem
		for range 5 {
			putFor(t, l.e, "lease", "v", time.Hour, kv.DurabilitySync)
			l.write(20)
			images = append(images, mem.KillImage(), mem.CrashImage(vfs.DropAll, nil), mem.CrashImage(vfs.KeepAll, nil))
		}
		require.NoError(t, l.e.Close())
		images = append(images, mem)
		for i, image := range images {
			before := image.Steps()
			image.SetReadOnly(true)
			l.open(image)
			l.requireReadOnly()
			seen, now := contents(t, l.e), l.e.Now()
			require.Equal(t, "v", seen["lease"])
			time.Sleep(time.Minute)
			require.NoError(t, l.e.Close())
			l.requireTold(1, 0)
			require.Equal(t, before, image.Steps(), "image %d: nothing is tried", i)

			image.SetReadOnly(false)
			e, err := Open("data", small(image))
			require.NoError(t, err)
			require.Equal(t, seen, contents(t, e), "image %d", i)
			require.GreaterOrEqual(t, e.Now(), now)
			require.NoError(t, e.Close())
		}
	})
}

// TestNoStoreIsMadeOnAReadOnlyFileSystem says that the file system is read-only.
func TestNoStoreIsMadeOnAReadOnlyFileSystem(t *testing.T) {
	mem := vfs.NewMem()
	mem.SetReadOnly(true)
	_, err := Open("data", small(mem))
	require.True(t, vfs.IsReadOnly(err), "%v", err)
	mem.SetReadOnly(false)
	require.NoError(t, mem.MkdirAll("data"))
	mem.SetReadOnly(true)
	_, err = Open("data", small(mem))
	require.True(t, vfs.IsReadOnly(err), "%v", err)
}
