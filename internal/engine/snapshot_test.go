package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

func begin(t testing.TB, e *Engine, lease time.Duration) kv.Snapshot {
	t.Helper()
	s, err := e.BeginSnapshot(context.Background(), lease)
	require.NoError(t, err)
	return s
}

// getAt returns what a snapshot holds; kv.ErrNotFound if it has no such key.
func getAt(e *Engine, at kv.SeqNum, key string) (string, error) {
	l := kv.Lookup{Key: []byte(key)}
	_, err := e.LookupAt(context.Background(), []*kv.Lookup{&l}, at)
	switch {
	case err != nil:
		return "", err
	case l.Err != nil:
		return "", l.Err
	case !l.Found:
		return "", kv.ErrNotFound
	}
	return string(l.Value), nil
}

func requireAt(t testing.TB, e *Engine, s kv.Snapshot, key, want string) {
	t.Helper()
	got, err := getAt(e, s.Version, key)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// entries returns how many versions of keys the tables hold.
func entries(e *Engine) (n uint64) {
	for _, p := range e.Stats().Partitions {
		n += p.Entries
	}
	return n
}

func TestSnapshotReadsItsVersionUntilItsLeaseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, small(vfs.NewMem()))
		put(t, e, "a", "old", memory)
		version := put(t, e, "gone", "there", memory)
		s := begin(t, e, 5*time.Second)
		assert.GreaterOrEqual(t, s.Version, version, "what was acknowledged before is in it")
		assert.Equal(t, 5*time.Second, s.Lease)
		assert.NotZero(t, s.ID)
		put(t, e, "a", "new", memory)
		put(t, e, "born", "later", memory)
		del(t, e, "gone", memory)
		require.NoError(t, e.CompactAll(t.Context()))

		requireAt(t, e, s, "a", "old")
		requireAt(t, e, s, "gone", "there")
		_, err := getAt(e, s.Version, "born")
		require.ErrorIs(t, err, kv.ErrNotFound)
		time.Sleep(5*time.Second - time.Nanosecond)
		requireAt(t, e, s, "a", "old")
		time.Sleep(time.Nanosecond)
		_, err = getAt(e, s.Version, "a")
		require.ErrorIs(t, err, kv.ErrVersionGone, "at once, before the next tick of the maintenance loop")
		_, err = e.Scan(t.Context(), kv.Range{}, kv.ScanOptions{At: s.Version})
		require.ErrorIs(t, err, kv.ErrVersionGone)
		_, err = e.KeepSnapshot(s.ID, time.Second)
		require.ErrorIs(t, err, kv.ErrVersionGone)
		requireValue(t, e, "a", "new")

		time.Sleep(2 * housekeepingEvery)
		stats := e.Stats()
		assert.Zero(t, stats.Snapshots)
		assert.Zero(t, stats.Pins, "the maintenance loop released the version")
		put(t, e, "a", "newer", memory)
		del(t, e, "gone", memory)
		require.NoError(t, e.CompactAll(t.Context()))
		assert.EqualValues(t, 2, entries(e), "nothing is kept for it")
	})
}

func TestLeaseIsRenewedUpToTheAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := small(vfs.NewMem())
		o.maxLease, o.maxSnapshotAge = 20*time.Second, time.Minute
		e := open(t, o)
		put(t, e, "a", "1", memory)
		s := begin(t, e, time.Hour)
		assert.Equal(t, 20*time.Second, s.Lease, "no longer than the longest")
		put(t, e, "a", "2", memory)
		for range 4 {
			time.Sleep(14 * time.Second)
			granted, err := e.KeepSnapshot(s.ID, 15*time.Second)
			require.NoError(t, err)
			requireAt(t, e, s, "a", "1")
			assert.LessOrEqual(t, granted, 15*time.Second)
		}
		granted, err := e.KeepSnapshot(s.ID, 0)
		require.NoError(t, err)
		assert.Equal(t, 4*time.Second, granted, "what is left of a minute")
		time.Sleep(4 * time.Second)
		_, err = e.KeepSnapshot(s.ID, time.Second)
		require.ErrorIs(t, err, kv.ErrVersionGone)
		_, err = getAt(e, s.Version, "a")
		require.ErrorIs(t, err, kv.ErrVersionGone)

		s = begin(t, e, 0)
		assert.Equal(t, defaultLease, s.Lease)
		_, err = e.BeginSnapshot(t.Context(), -time.Second)
		assert.ErrorIs(t, err, kv.ErrInvalidArgument)
		_, err = e.KeepSnapshot(s.ID, -time.Second)
		assert.ErrorIs(t, err, kv.ErrInvalidArgument)
		_, err = e.KeepSnapshot(s.ID+1, time.Second)
		assert.ErrorIs(t, err, kv.ErrVersionGone)
	})
}

func TestTooManySnapshotsAreShed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := small(vfs.NewMem())
		o.maxSnapshots = 3
		e := open(t, o)
		for range 3 {
			begin(t, e, 3*time.Second)
		}
		_, err := e.BeginSnapshot(t.Context(), time.Second)
		var overload *kv.OverloadError
		require.ErrorAs(t, err, &overload)
		assert.Equal(t, "snapshots", overload.Reason)
		assert.Positive(t, overload.RetryAfter)
		stats := e.Stats()
		assert.Equal(t, 3, stats.Snapshots)
		assert.Equal(t, 3, stats.Pins, "a refused caller holds no pin")
		_, err = e.LookupAt(t.Context(), nil, 0)
		require.NoError(t, err, "reads without a snapshot are not counted")

		time.Sleep(2500 * time.Millisecond)
		assert.Equal(t, 2500*time.Millisecond, e.Stats().PinAge)
		time.Sleep(500 * time.Millisecond)
		for range 3 {
			begin(t, e, time.Second) // in place of those that have ended in this moment
		}
	})
}

func TestSnapshotsMayShareAVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, small(vfs.NewMem()))
		put(t, e, "a", "1", memory)
		first := begin(t, e, 0)
		time.Sleep(time.Second)
		second := begin(t, e, 0)
		assert.Equal(t, first.Version, second.Version)
		assert.NotEqual(t, first.ID, second.ID)
		put(t, e, "a", "2", memory)
		e.ReleaseSnapshot(first.ID)
		e.ReleaseSnapshot(first.ID)
		require.NoError(t, e.CompactAll(t.Context()))
		requireAt(t, e, second, "a", "1")
		e.ReleaseSnapshot(second.ID)
		_, err := getAt(e, second.Version, "a")
		require.ErrorIs(t, err, kv.ErrVersionGone)
		assert.Zero(t, e.Stats().Pins)
		e.ReleaseSnapshot(4711)
	})
}

// Version zero would mean the newest.
func TestSnapshotOfAnEmptyStoreStaysEmpty(t *testing.T) {
	e := open(t, small(vfs.NewMem()))
	s := begin(t, e, 0)
	require.NotZero(t, s.Version)
	put(t, e, "a", "1", memory)
	_, err := getAt(e, s.Version, "a")
	require.ErrorIs(t, err, kv.ErrNotFound)
}

// A snapshot sees expiry by its own time, so where keys expire two snapshots of
// different moments need different versions.
func TestSnapshotsOfDifferentMomentsHaveDifferentVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewMem()
		e := open(t, small(disk))
		require.NoError(t, e.clock.use())
		put(t, e, "a", "1", synced)
		first := begin(t, e, time.Minute)
		same := begin(t, e, time.Minute)
		assert.Equal(t, first.Version, same.Version, "at the same moment")
		time.Sleep(10 * time.Millisecond)
		later := begin(t, e, time.Minute)
		assert.Greater(t, later.Version, first.Version)
		for _, s := range []kv.Snapshot{first, same, later} {
			requireAt(t, e, s, "a", "1")
		}
		early, err := e.snapshots.find(first.Version)
		require.NoError(t, err)
		late, err := e.snapshots.find(later.Version)
		require.NoError(t, err)
		assert.Equal(t, early+10, late)

		e.readOnly.Store(true) // then a snapshot writes nothing
		time.Sleep(10 * time.Millisecond)
		shared := begin(t, e, time.Minute)
		assert.Equal(t, later.Version, shared.Version)
		e.ReleaseSnapshot(later.ID)
		now, err := e.snapshots.find(shared.Version)
		require.NoError(t, err)
		assert.Equal(t, late, now, "what it sees does not change")
		_, now = e.sequencer.Horizon()
		assert.Equal(t, early, now)
		e.readOnly.Store(false)

		next := put(t, e, "b", "1", synced)
		assert.Greater(t, next, later.Version)
		for _, disk := range []*vfs.Mem{disk.KillImage(), disk.CrashImage(vfs.DropAll, nil)} {
			e := open(t, small(disk))
			requireValue(t, e, "a", "1")
			requireValue(t, e, "b", "1")
			assert.Greater(t, put(t, e, "c", "1", synced), next)
		}
	})
}

// A read finds its snapshot alive; then the lease ends, and a compaction runs before the
// read acquires its files. Without the second call of find it would return a wrong answer.
func TestReadThatLosesItsLeaseSaysSo(t *testing.T) {
	e := open(t, small(vfs.NewMem()))
	put(t, e, "a", "old", memory)
	s := begin(t, e, 0)
	now, err := e.snapshots.find(s.Version)
	require.NoError(t, err)

	e.ReleaseSnapshot(s.ID)
	put(t, e, "a", "new", memory)
	require.NoError(t, e.CompactAll(t.Context()))

	l := kv.Lookup{Key: []byte("a")}
	err = e.lookupLeased([]*kv.Lookup{&l}, s.Version, now)
	require.ErrorIs(t, err, kv.ErrVersionGone)
	require.False(t, l.Found, "the test is idle: what the snapshot needs is still there")
}

func TestScanThatLosesItsLeaseSaysSo(t *testing.T) {
	e := open(t, unhurried(vfs.NewMem()))
	for i := range 100 {
		put(t, e, key(i), "old", memory)
	}
	lose := func(s kv.Snapshot) {
		e.ReleaseSnapshot(s.ID)
		for i := range 100 {
			put(t, e, key(i), "new", memory)
		}
		require.NoError(t, e.CompactAll(t.Context()))
	}
	snapshot := begin(t, e, 0)
	s, err := e.Scan(t.Context(), kv.Range{}, kv.ScanOptions{At: snapshot.Version})
	require.NoError(t, err)
	lose(snapshot) // before the iterators are opened
	require.False(t, s.Next())
	require.ErrorIs(t, s.Err(), kv.ErrVersionGone)
	require.NoError(t, s.Close())

	snapshot = begin(t, e, 0)
	s, err = e.Scan(t.Context(), kv.Range{}, kv.ScanOptions{At: snapshot.Version})
	require.NoError(t, err)
	require.True(t, s.Next())
	lose(snapshot) // on the way
	n := 1
	for ; s.Next(); n++ {
		require.Equal(t, "new", string(s.Item().Value), "of its version")
	}
	require.ErrorIs(t, s.Err(), kv.ErrVersionGone)
	require.Less(t, n, 100)
	require.NoError(t, s.Close())
}

func TestScanWithoutASnapshotEndsWithItsAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := small(vfs.NewMem())
		o.maxSnapshotAge = 30 * time.Second
		e := open(t, o)
		for i := range 1000 {
			put(t, e, key(i), "v", memory)
		}
		s, err := e.Scan(t.Context(), kv.Range{}, kv.ScanOptions{})
		require.NoError(t, err)
		require.True(t, s.Next())
		assert.Equal(t, 1, e.Stats().Pins)
		time.Sleep(29 * time.Second)
		for range 100 {
			require.True(t, s.Next())
		}
		time.Sleep(3 * time.Second)
		assert.Zero(t, e.Stats().Pins, "nothing is kept for it")
		for s.Next() {
		}
		require.ErrorIs(t, s.Err(), kv.ErrVersionGone)
		require.NoError(t, s.Close())
	})
}

// Snapshots stay what they are while everything moves: pairs of keys in different
// partitions are written together, and every reader finds them equal, twice.
func TestSnapshotsAreConsistentUnderLoad(t *testing.T) {
	e := open(t, unhurried(vfs.NewMem()))
	const pairs = 8
	write := func(n int) error {
		var b kv.WriteBatch
		for i := range pairs {
			value := []byte(fmt.Sprint(n, strings.Repeat("x", 50)))
			b.Put([]byte(fmt.Sprint("left", i)), value)
			b.Put([]byte(fmt.Sprint("right", i)), value)
		}
		_, err := e.Apply(context.Background(), &b, memory)
		return err
	}
	require.NoError(t, write(0))
	stop := make(chan struct{})
	var writers, readers sync.WaitGroup
	writers.Go(func() {
		for n := 1; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			if !assert.NoError(t, write(n)) {
				return
			}
			if n%50 == 0 {
				assert.NoError(t, e.CompactAll(context.Background()))
			}
		}
	})
	read := func() error {
		s, err := e.BeginSnapshot(context.Background(), longLease)
		if err != nil {
			return err
		}
		defer e.ReleaseSnapshot(s.ID)
		first := ""
		for range 20 {
			for i := range pairs {
				for _, side := range []string{"left", "right"} {
					got, err := getAt(e, s.Version, fmt.Sprint(side, i))
					if err != nil {
						return err
					}
					if first == "" {
						first = got
					}
					if got != first {
						return fmt.Errorf("%s%d is %.20s, but another key was %.20s", side, i, got, first)
					}
				}
			}
		}
		scan, err := e.Scan(context.Background(), kv.Range{}, kv.ScanOptions{At: s.Version})
		if err != nil {
			return err
		}
		n := 0
		for ; scan.Next(); n++ {
			if got := string(scan.Item().Value); got != first {
				return fmt.Errorf("a scan has %.20s, reads had %.20s", got, first)
			}
		}
		if n != 2*pairs {
			err = fmt.Errorf("a scan has %d keys", n)
		}
		return errors.Join(err, scan.Err(), scan.Close())
	}
	for range 3 {
		readers.Go(func() {
			for range 20 {
				if !assert.NoError(t, read()) {
					return
				}
			}
		})
	}
	readers.Wait()
	close(stop)
	writers.Wait()
	assert.Zero(t, e.Stats().Pins)
}
