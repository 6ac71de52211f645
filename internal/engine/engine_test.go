package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

func TestPutGetDeleteAtEveryDurability(t *testing.T) {
	for _, o := range []kv.WriteOptions{memory, buffered, synced, {}} {
		t.Run(o.Durability.String(), func(t *testing.T) {
			e := open(t, small(vfs.NewMem()))
			requireAbsent(t, e, "a")
			first := put(t, e, "a", "1", o)
			requireValue(t, e, "a", "1")
			second := put(t, e, "a", "2", o)
			assert.Greater(t, second, first, "versions grow")
			requireValue(t, e, "a", "2")
			item, err := e.Get(t.Context(), []byte("a"))
			require.NoError(t, err)
			assert.Equal(t, second, item.Version)
			del(t, e, "a", o)
			requireAbsent(t, e, "a")
			del(t, e, "never was", o)
		})
	}
}

// W3: the source took one value for a delete. W2: it reported for every delete that the
// key was present; kvd reports nothing.
func TestAnyValueIsAValueW3(t *testing.T) {
	marker := string([]byte{83, 76, 69, 7, 95, 21, 81, 27, 2, 104, 8, 100, 45, 109, 110, 1})
	values := []string{"", "\x00", marker, strings.Repeat("v", 200<<10)}
	e := open(t, small(vfs.NewMem()))
	check := func() {
		for i, v := range values {
			requireValue(t, e, fmt.Sprint("k", i), v)
		}
	}
	for i, v := range values {
		put(t, e, fmt.Sprint("k", i), v, buffered)
	}
	check()
	require.NoError(t, e.Flush(t.Context()))
	check()
	require.NoError(t, e.CompactAll(t.Context()))
	check()
}

func TestLimitsAreCheckedBeforeAnythingIsQueued(t *testing.T) {
	e := open(t, small(vfs.NewMem()))
	l := e.Limits()
	_, err := e.Put(t.Context(), nil, nil, buffered)
	assert.ErrorIs(t, err, kv.ErrInvalidArgument)
	_, err = e.Put(t.Context(), make([]byte, l.KeyBytes+1), nil, buffered)
	assert.ErrorIs(t, err, kv.ErrTooLarge)
	_, err = e.Put(t.Context(), []byte("k"), make([]byte, l.ValueBytes+1), buffered)
	assert.ErrorIs(t, err, kv.ErrTooLarge)
	_, err = e.Put(t.Context(), make([]byte, l.KeyBytes), make([]byte, l.ValueBytes), buffered)
	assert.NoError(t, err)
	_, err = e.Get(t.Context(), nil)
	assert.ErrorIs(t, err, kv.ErrInvalidArgument)
	_, err = e.Apply(t.Context(), &kv.WriteBatch{}, buffered)
	assert.ErrorIs(t, err, kv.ErrInvalidArgument)
	_, err = e.Put(t.Context(), []byte("k"), nil, kv.WriteOptions{Durability: 9})
	assert.ErrorIs(t, err, kv.ErrInvalidArgument)
}

// One bad write in a call does not harm its neighbours.
func TestIndependentWritesSucceedAndFailEachForItself(t *testing.T) {
	e := open(t, small(vfs.NewMem()))
	writes := []*kv.Write{
		{Op: kv.Op{Kind: kv.KindPut, Key: []byte("a"), Value: []byte("1")}},
		{Op: kv.Op{Kind: kv.KindPut, Key: nil, Value: []byte("1")}},
		{Op: kv.Op{Kind: kv.KindPut, Key: []byte("a"), Value: []byte("2")}},
		{Op: kv.Op{Kind: kv.KindDelete, Key: []byte("b")}, Durability: kv.DurabilityMemory},
	}
	require.NoError(t, e.Write(t.Context(), writes))
	assert.NoError(t, writes[0].Err)
	assert.ErrorIs(t, writes[1].Err, kv.ErrInvalidArgument)
	assert.NoError(t, writes[2].Err)
	assert.NoError(t, writes[3].Err)
	assert.Greater(t, writes[2].Version, writes[0].Version, "writes of one call on one key keep their order")
	requireValue(t, e, "a", "2")
	require.NoError(t, e.Write(t.Context(), nil))
}

func TestReopenKeepsEverything(t *testing.T) {
	fs := vfs.NewMem()
	want := map[string]string{}
	var last kv.SeqNum
	for round := range 4 {
		e := open(t, unhurried(fs))
		assert.Equal(t, round == 0, e.Recovery().Created)
		require.Equal(t, want, contents(t, e))
		for i := range 200 {
			k, v := key(i*(round+1)), fmt.Sprint(round, strings.Repeat("x", 100))
			version := put(t, e, k, v, buffered)
			require.Greater(t, version, last, "versions grow across restarts")
			last, want[k] = version, v
		}
		for i := range 50 {
			del(t, e, key(i*7), buffered)
			delete(want, key(i*7))
		}
		if round == 2 {
			require.NoError(t, e.Flush(t.Context()))
		}
		require.Equal(t, want, contents(t, e))
		require.NoError(t, e.Close())
	}
	e := open(t, unhurried(fs))
	require.Equal(t, want, contents(t, e))
	require.NoError(t, e.CompactAll(t.Context()))
	require.Equal(t, want, contents(t, e))
	for i, p := range e.Stats().Partitions {
		assert.Zero(t, p.Deltas, "partition %d", i)
	}
	var entries uint64
	for _, p := range e.Stats().Partitions {
		entries += p.Entries
	}
	assert.EqualValues(t, len(want), entries, "one version of each key, no tombstone")
}

func TestKilledProcessLosesOnlyWhatWasInMemory(t *testing.T) {
	fs := vfs.NewMem()
	e := open(t, small(fs))
	put(t, e, "b", "buffered", buffered)
	put(t, e, "s", "synced", synced)
	after := open(t, small(fs.KillImage()))
	requireValue(t, after, "b", "buffered")
	requireValue(t, after, "s", "synced")
	power := open(t, small(fs.CrashImage(vfs.DropAll, nil)))
	requireValue(t, power, "s", "synced")
}

func TestPartitionCountIsFixed(t *testing.T) {
	fs := vfs.NewMem()
	e := open(t, small(fs))
	put(t, e, "a", "1", synced)
	require.NoError(t, e.Close())
	o := small(fs)
	o.Partitions = 5
	_, err := Open("data", o)
	assert.ErrorIs(t, err, kv.ErrInvalidArgument)
	assert.ErrorContains(t, err, "created with 4 partitions")
	o.Partitions = 0
	requireValue(t, open(t, o), "a", "1")
}

func TestSecondOpenIsRefused(t *testing.T) {
	fs := vfs.NewMem()
	open(t, small(fs))
	_, err := Open("data", small(fs))
	assert.ErrorIs(t, err, vfs.ErrLocked)
}

func TestLostDescriptorIsDamage(t *testing.T) {
	fs := vfs.NewMem()
	e := open(t, small(fs))
	put(t, e, "a", "1", synced)
	require.NoError(t, e.Close())
	require.NoError(t, fs.Remove("data/STORE"))
	_, err := Open("data", small(fs))
	assert.ErrorIs(t, err, kv.ErrCorrupt)
}

func TestClosedEngineRefuses(t *testing.T) {
	e := open(t, small(vfs.NewMem()))
	put(t, e, "a", "1", buffered)
	require.NoError(t, e.Close())
	require.NoError(t, e.Close())
	_, err := e.Put(t.Context(), []byte("a"), nil, buffered)
	assert.ErrorIs(t, err, kv.ErrClosed)
	_, err = e.Get(t.Context(), []byte("a"))
	assert.ErrorIs(t, err, kv.ErrClosed)
	_, err = e.LookupAt(t.Context(), nil, 0)
	assert.ErrorIs(t, err, kv.ErrClosed)
	_, err = e.LookupCached(nil)
	assert.ErrorIs(t, err, kv.ErrClosed)
	_, err = e.Scan(t.Context(), kv.Range{}, kv.ScanOptions{})
	assert.ErrorIs(t, err, kv.ErrClosed)
	_, err = e.Apply(t.Context(), &kv.WriteBatch{}, buffered)
	assert.ErrorIs(t, err, kv.ErrClosed)
}

func TestScanBoundsAndLimits(t *testing.T) {
	e := open(t, unhurried(vfs.NewMem()))
	for i := range 600 {
		put(t, e, key(i), fmt.Sprint(i), memory)
		if i == 300 {
			require.NoError(t, e.Flush(t.Context()))
		}
	}
	scan := func(r kv.Range, o kv.ScanOptions) (keys []string) {
		s, err := e.Scan(t.Context(), r, o)
		require.NoError(t, err)
		for s.Next() {
			keys = append(keys, string(s.Item().Key))
			if o.KeysOnly {
				assert.Nil(t, s.Item().Value)
			}
		}
		require.NoError(t, s.Err())
		require.NoError(t, s.Close())
		return keys
	}
	assert.Len(t, scan(kv.Range{}, kv.ScanOptions{}), 600)
	assert.Equal(t, []string{key(10), key(11)}, scan(kv.Range{Start: []byte(key(10)), End: []byte(key(12))}, kv.ScanOptions{}))
	assert.Equal(t, []string{key(598), key(599)}, scan(kv.Range{Start: []byte(key(598))}, kv.ScanOptions{KeysOnly: true}))
	assert.Equal(t, []string{key(100), key(101)}, scan(kv.PrefixRange([]byte("key-001")), kv.ScanOptions{Limit: 2}))
	assert.Empty(t, scan(kv.PrefixRange([]byte("nope")), kv.ScanOptions{}))
}

// A scan reads one version, whatever is written, flushed and merged meanwhile,
// and also when it opens new iterators on its way.
func TestScanReadsOneVersion(t *testing.T) {
	e := open(t, unhurried(vfs.NewMem()))
	want := map[string]string{}
	for i := range 700 {
		put(t, e, key(i), "old", memory)
		want[key(i)] = "old"
	}
	s, err := e.Scan(t.Context(), kv.Range{}, kv.ScanOptions{})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	got := map[string]string{}
	for n := 0; s.Next(); n++ {
		got[string(s.Item().Key)] = string(s.Item().Value)
		if n == 100 {
			for i := range 700 {
				put(t, e, key(i), "new", memory)
			}
			del(t, e, key(650), memory)
			require.NoError(t, e.CompactAll(t.Context()))
			growOld(s)
		}
	}
	require.NoError(t, s.Err())
	assert.Equal(t, want, got)
	requireAbsent(t, e, key(650))
}

func TestBatchIsAtomicAndHasOneVersion(t *testing.T) {
	e := open(t, small(vfs.NewMem()))
	put(t, e, "gone", "x", buffered)
	var b kv.WriteBatch
	for i := range 20 {
		b.Put([]byte(key(i)), []byte("batch"))
	}
	b.Delete([]byte("gone"))
	b.Put([]byte(key(0)), []byte("last wins"))
	version, err := e.Apply(t.Context(), &b, synced)
	require.NoError(t, err)
	requireAbsent(t, e, "gone")
	requireValue(t, e, key(0), "last wins")
	for i := range 20 {
		item, err := e.Get(t.Context(), []byte(key(i)))
		require.NoError(t, err)
		assert.Equal(t, version, item.Version)
	}
	var one kv.WriteBatch
	one.Put([]byte("x"), []byte("1"))
	_, err = e.Apply(t.Context(), &one, buffered)
	require.NoError(t, err)
	requireValue(t, e, "x", "1")
}

// LookupCached returns reads whose answers are on disk, unchanged.
func TestLookupCachedAnswersFromMemory(t *testing.T) {
	o := small(vfs.NewMem())
	o.MemtableBytes, o.CacheBytes = 16<<20, 16<<20 // what is in memory stays there
	e := open(t, o)
	for i := range 20 {
		put(t, e, key(i), "old", buffered)
	}
	require.NoError(t, e.Flush(t.Context()))
	require.NoError(t, e.CompactAll(t.Context())) // so that the files stay, too
	for i := range 10 {
		put(t, e, key(i), "new", buffered)
	}
	var reads []*kv.Lookup
	for i := range 25 {
		reads = append(reads, &kv.Lookup{Key: []byte(key(i))})
	}
	ask := func() []*kv.Lookup {
		left, err := e.LookupCached(slices.Clone(reads))
		require.NoError(t, err)
		return left
	}
	assert.ElementsMatch(t, reads[10:20], ask(), "no block is cached")
	for i, r := range reads {
		assert.Equal(t, i < 10, r.Found, i)
	}
	require.NoError(t, e.Lookup(t.Context(), reads[10:20]))
	for i := 19; i >= 10; i-- {
		assert.Equal(t, "old", string(reads[i].Value))
	}
	assert.Empty(t, ask(), "they are now")
	left, err := e.LookupCached(reads[3:4])
	require.NoError(t, err)
	assert.Empty(t, left, "one alone")
	assert.Equal(t, "new", string(reads[3].Value))
	_, err = e.LookupCached([]*kv.Lookup{{}})
	assert.ErrorIs(t, err, kv.ErrInvalidArgument)

	require.NoError(t, e.Close())
	o.Reads.Linger = time.Millisecond
	e = open(t, o)
	assert.Equal(t, reads, ask(), "reads wait for each other")
}

func TestLookupAtReadsOneVersion(t *testing.T) {
	e := open(t, small(vfs.NewMem()))
	put(t, e, "a", "1", buffered)
	version := put(t, e, "b", "2", synced)
	reads := []*kv.Lookup{{Key: []byte("b")}, {Key: []byte("none")}, {Key: []byte("a")}, {Key: []byte("a")}}
	at, err := e.LookupAt(t.Context(), reads, 0)
	require.NoError(t, err)
	assert.GreaterOrEqual(t, at, version, "everything acknowledged before is in it")
	assert.Equal(t, "2", string(reads[0].Value))
	assert.False(t, reads[1].Found)
	assert.Equal(t, "1", string(reads[2].Value))
	assert.Equal(t, "1", string(reads[3].Value))
	assert.Zero(t, e.Stats().Pins, "the snapshot was released")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = e.Get(ctx, []byte("a"))
	assert.NoError(t, err, "an idle partition answers at once")
}
