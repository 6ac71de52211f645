package engine

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// mixedStore returns a store with everything that a scan has to tell apart: several
// runs of a partition and memtables, versions, tombstones of keys and of ranges, large
// values; a snapshot of it; and what the snapshot holds, in order. Afterwards much is
// overwritten.
func mixedStore(t *testing.T, rng *rand.Rand, partitions, keys int) (e *Engine, s kv.Snapshot, want []kv.Item) {
	e = open(t, Options{
		FS: vfs.NewMem(), Partitions: partitions, MemtableBytes: 8 << 20, CacheBytes: 256 << 10, LowDiskBytes: 1,
		maxLease: longLease, maxSnapshotAge: longLease,
	})
	holds := map[string]kv.Item{}
	name := func(i int) string { return fmt.Sprintf("%s%05d", []string{"", "a/", "a/long/common/prefix/"}[i%3], i) }
	round := func(share float64) {
		var b kv.WriteBatch
		var written []kv.Item
		flush := func() {
			if b.Len() == 0 {
				return
			}
			version, err := e.Apply(t.Context(), &b, memory)
			require.NoError(t, err)
			for _, item := range written {
				item.Version = version
				holds[string(item.Key)] = item
			}
			b, written = kv.WriteBatch{}, nil
		}
		for i := range keys {
			if rng.Float64() >= share {
				continue
			}
			key := []byte(name(i))
			if rng.IntN(8) == 0 {
				b.Delete(key)
				flush()
				delete(holds, string(key))
				continue
			}
			value := fmt.Appendf(nil, "%d", rng.Uint64())
			if rng.IntN(100) == 0 {
				value = bytes.Repeat(value, 1+rng.IntN(200))
			}
			b.Put(key, value)
			written = append(written, kv.Item{Key: key, Value: value})
			if b.Len() > 100 {
				flush()
			}
		}
		flush()
		from, to := name(rng.IntN(keys)), name(rng.IntN(keys))
		if from > to {
			from, to = to, from
		}
		if from < to && rng.IntN(2) == 0 {
			to = min(to, name(rng.IntN(keys)))
		}
		if from < to && from[0] != 'a' == (to[0] != 'a') {
			b.DeleteRange([]byte(from), []byte(to))
			flush()
			for key := range holds {
				if from <= key && key < to {
					delete(holds, key)
				}
			}
		}
	}
	round(1)
	require.NoError(t, e.CompactAll(t.Context()))
	for range 3 {
		round(0.1)
		require.NoError(t, e.Flush(t.Context()))
	}
	round(0.02)
	s = begin(t, e, longLease)
	for _, item := range holds {
		want = append(want, item)
	}
	slices.SortFunc(want, func(a, b kv.Item) int { return cmp.Compare(string(a.Key), string(b.Key)) })
	round(0.3)
	return e, s, want
}

// Long scans, whose batches are read in the background, and short ones give what a
// sorted copy holds.
func TestScansGiveWhatASortedCopyHolds(t *testing.T) {
	t.Parallel()
	keys := 6_000
	if testsize.Reduced() {
		keys = 2_000
	}
	for seed, partitions := range []int{1, 3, 16} {
		rng := rand.New(rand.NewPCG(uint64(seed), 1))
		e, snapshot, all := mixedStore(t, rng, partitions, keys)
		for n := range 40 {
			o := kv.ScanOptions{At: snapshot.Version, Reverse: n%2 == 0, KeysOnly: n%5 == 0}
			var r kv.Range
			if n > 3 {
				r.Start, r.End = all[rng.IntN(len(all))].Key, all[rng.IntN(len(all))].Key
				if bytes.Compare(r.Start, r.End) > 0 && n%4 != 0 {
					r.Start, r.End = r.End, r.Start
				}
				o.Limit = []uint64{0, 0, 1, 50, 1000}[rng.IntN(5)]
			}
			var want []kv.Item
			for _, item := range all {
				if r.Contains(item.Key) {
					want = append(want, item)
				}
			}
			if o.Reverse {
				slices.Reverse(want)
			}
			if o.Limit > 0 {
				want = want[:min(uint64(len(want)), o.Limit)]
			}
			s, err := e.Scan(t.Context(), r, o)
			require.NoError(t, err)
			got := 0
			for ; s.Next(); got++ {
				require.Less(t, got, len(want))
				item, value := s.Item(), want[got].Value
				if o.KeysOnly {
					value = nil
				}
				if !bytes.Equal(want[got].Key, item.Key) || want[got].Version != item.Version ||
					!bytes.Equal(value, item.Value) || o.KeysOnly != (item.Value == nil) {
					t.Fatalf("item %d is %q version %d %q, want %q version %d %q", got, item.Key, item.Version, item.Value, want[got].Key, want[got].Version, value)
				}
			}
			require.NoError(t, s.Err())
			require.NoError(t, s.Close())
			require.Len(t, want, got)
		}
	}
}

// longStore returns a store of one run, on a disk of its own, and scans of which
// are long and find nothing in the cache.
func longStore(t *testing.T, items int) (*Engine, *vfs.Mem, Options) {
	disk := vfs.NewMem()
	o := Options{FS: disk, Partitions: 2, MemtableBytes: 8 << 20, CacheBytes: 1, LowDiskBytes: 1}
	e := open(t, o)
	writeLong(t, e, items)
	return e, disk, o
}

func writeLong(t *testing.T, e *Engine, items int) {
	var b kv.WriteBatch
	for i := range items {
		b.Put([]byte(key(i)), []byte(strings.Repeat("v", 50)))
	}
	_, err := e.Apply(t.Context(), &b, buffered)
	require.NoError(t, err)
	require.NoError(t, e.CompactAll(t.Context()))
}

// Damage far into a long scan is found in the background. The scan returns every item
// before it, then the error, and never the end.
func TestDamageThatIsReadAheadComesInItsPlace(t *testing.T) {
	const items = 4_000
	e, disk, o := longStore(t, items)
	require.NoError(t, e.Close())
	for name, content := range files(t, disk) {
		if path.Ext(name) != ".sst" || !strings.Contains(name, "p-0001") {
			continue
		}
		content[len(content)/2] ^= 1
		require.NoError(t, disk.Remove(name))
		f, err := disk.Create(name)
		require.NoError(t, err)
		_, err = f.WriteAt(content, 0)
		require.NoError(t, errors.Join(err, f.Close()))
	}
	o.FS = disk
	e = open(t, o)
	for _, reverse := range []bool{false, true} {
		s, err := e.Scan(t.Context(), kv.Range{}, kv.ScanOptions{Reverse: reverse})
		require.NoError(t, err)
		n := 0
		for ; s.Next(); n++ {
			at := n
			if reverse {
				at = items - 1 - n
			}
			require.Equal(t, key(at), string(s.Item().Key))
		}
		require.ErrorIs(t, s.Err(), kv.ErrCorrupt)
		require.Greater(t, n, items/3)
		require.Less(t, n, items)
		require.False(t, s.Next(), "for good")
		require.ErrorIs(t, errors.Join(s.Close(), s.Err()), kv.ErrCorrupt)
	}
}

// holdsNothing requires that a scan has no files, no memtables and no goroutines.
func holdsNothing(t *testing.T, s *Scanner) {
	s.helpers.Wait()
	s.shared.Lock()
	defer s.shared.Unlock()
	if s.shared.feed == nil {
		return
	}
	for i := range s.shared.feed.sources {
		c := &s.shared.feed.sources[i]
		c.mu.Lock()
		require.False(t, c.open)
		c.mu.Unlock()
	}
}

// However far a scan has come, and whatever is being read ahead, Close releases
// everything.
func TestCloseWhileItemsAreReadAhead(t *testing.T) {
	e, _, _ := longStore(t, 3_000)
	for n := range 60 {
		s, err := e.Scan(t.Context(), kv.Range{}, kv.ScanOptions{Reverse: n%2 == 0})
		require.NoError(t, err)
		for range n * 50 {
			require.True(t, s.Next())
		}
		require.NoError(t, s.Close())
		require.False(t, s.Next())
		holdsNothing(t, s)
	}
	require.Zero(t, e.Stats().Pins)
}

func TestEngineCloseWhileItemsAreReadAhead(t *testing.T) {
	for n := range 6 {
		e, _, _ := longStore(t, 3_000)
		s, err := e.Scan(t.Context(), kv.Range{}, kv.ScanOptions{})
		require.NoError(t, err)
		for range n * 300 {
			require.True(t, s.Next())
		}
		var closing sync.WaitGroup
		closing.Go(func() { require.NoError(t, e.Close()) })
		got := n * 300
		for ; s.Next(); got++ {
			require.Equal(t, key(got), string(s.Item().Key))
		}
		if got < 3_000 {
			require.ErrorIs(t, s.Err(), kv.ErrClosed)
		}
		closing.Wait()
		holdsNothing(t, s)
		require.NoError(t, s.Close())
	}
}

// A lease that ends while items are read ahead ends the scan, which never returns items of
// another version.
func TestLeaseThatEndsWhileItemsAreReadAhead(t *testing.T) {
	const items = 3_000
	e, _, _ := longStore(t, items)
	for n := range 10 {
		snapshot := begin(t, e, 0)
		s, err := e.Scan(t.Context(), kv.Range{}, kv.ScanOptions{At: snapshot.Version})
		require.NoError(t, err)
		for range n*200 + 1 {
			require.True(t, s.Next())
		}
		e.ReleaseSnapshot(snapshot.ID)
		growOld(s)
		_, err = e.Put(context.Background(), []byte(key(items-1)), fmt.Append(nil, n), memory)
		require.NoError(t, err)
		require.NoError(t, e.CompactAll(t.Context()))
		for s.Next() {
			require.LessOrEqual(t, s.Item().Version, snapshot.Version)
		}
		require.ErrorIs(t, s.Err(), kv.ErrVersionGone)
		require.NoError(t, s.Close())
		holdsNothing(t, s)
	}
}

// A short scan is read by its caller alone.
func TestAShortScanStartsNoGoroutine(t *testing.T) {
	e, _, _ := longStore(t, 3_000)
	for _, o := range []kv.ScanOptions{{}, {Limit: 50}} {
		s, err := e.Scan(t.Context(), kv.Range{}, o)
		require.NoError(t, err)
		for range 50 {
			require.True(t, s.Next())
		}
		for i := range s.feed.sources {
			require.False(t, s.feed.sources[i].helped)
		}
		require.NoError(t, s.Close())
	}
}

// Cached blocks are read by the caller alone, however long the scan.
func TestAScanOfCachedBlocksStartsNoGoroutine(t *testing.T) {
	const items = 3_000
	e := open(t, Options{FS: vfs.NewMem(), Partitions: 2, MemtableBytes: 8 << 20, CacheBytes: 8 << 20, LowDiskBytes: 1})
	writeLong(t, e, items)
	for _, reverse := range []bool{false, true} {
		helped := [2]bool{}
		for n := range helped {
			s, err := e.Scan(t.Context(), kv.Range{}, kv.ScanOptions{Reverse: reverse})
			require.NoError(t, err)
			got := 0
			for ; s.Next(); got++ {
				for i := range s.feed.sources {
					c := &s.feed.sources[i]
					c.mu.Lock()
					helped[n] = helped[n] || c.helped
					c.mu.Unlock()
				}
			}
			require.Equal(t, items, got)
			require.NoError(t, s.Close())
		}
		require.Equal(t, !reverse, helped[0], "reverse: %t", reverse) // the first of all reads the disk
		require.False(t, helped[1], "reverse: %t", reverse)
	}
}

// A walk over many deleted keys may take longer than a scan holds its files. It reaches its
// end nevertheless.
func TestAScanGetsOverWhatWasDeletedOnASlowDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := faultfs.Wrap(vfs.NewMem(), nil)
		e := open(t, Options{
			FS: slow, Partitions: 1, MemtableBytes: 8 << 20, CacheBytes: 1, LowDiskBytes: 1,
			maxLease: 1000 * time.Hour, maxSnapshotAge: 1000 * time.Hour,
		})
		const keys = 8_000
		for _, write := range []func(*kv.WriteBatch, []byte){
			func(b *kv.WriteBatch, key []byte) { b.Put(key, bytes.Repeat([]byte("v"), 100)) },
			func(b *kv.WriteBatch, key []byte) { b.Delete(key) },
		} {
			for i := 0; i < keys; i += 4_000 {
				var b kv.WriteBatch
				for j := i; j < i+4_000; j++ {
					write(&b, []byte(key(j)))
				}
				_, err := e.Apply(t.Context(), &b, memory)
				require.NoError(t, err)
			}
			begin(t, e, 1000*time.Hour) // keeps the versions
		}
		put(t, e, key(keys), "v", memory)
		require.NoError(t, e.Flush(t.Context()))
		onTables := faultfs.OnName("*.sst")
		slow.SetInjector(faultfs.InjectorFunc(func(op faultfs.Op) (f faultfs.Fault) {
			if op.Kind == faultfs.Read && onTables(op) {
				f.Delay = func() { time.Sleep(2 * refreshAfter) }
			}
			return f
		}))
		s, err := e.Scan(t.Context(), kv.Range{Start: []byte(key(1))}, kv.ScanOptions{})
		require.NoError(t, err)
		require.True(t, s.Next(), "%v", s.Err())
		require.Equal(t, key(keys), string(s.Item().Key))
		require.False(t, s.Next())
		require.NoError(t, s.Err())
		require.NoError(t, s.Close())
	})
}
