package raftlog

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"pgregory.net/rapid"

	"github.com/kvd-db/kvd/internal/kv"
	_ "github.com/kvd-db/kvd/internal/testsize" // fewer cases under the race detector
	"github.com/kvd-db/kvd/internal/vfs"
)

// TestTheLogAgreesWithRaftsOwnStorage does random operations on two groups of a log and on
// raft's storage in memory, with restarts and power cuts of what is synced.
func TestTheLogAgreesWithRaftsOwnStorage(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := &walk{t: rt, rt: rt, disk: newDisk(rt)}
		w.log = mustOpen(rt, testOptions(w.disk, true))
		w.models = map[uint32]*model{testGroup: newModel(rt), testGroup + 4: newModel(rt)}
		w.terms = map[uint32]uint64{}
		rt.Repeat(map[string]func(*rapid.T){
			"":         func(*rapid.T) { w.compare() },
			"append":   w.append,
			"conflict": w.conflict,
			"install":  w.install,
			"mark":     w.mark,
			"compact":  w.compact,
			"reclaim":  func(*rapid.T) { require.NoError(t, w.log.Reclaim()) },
			"idle":     func(*rapid.T) { require.NoError(t, w.log.Mark()) },
			"read":     w.read,
			"reopen":   w.reopen,
			"cut":      w.cut,
		})
		require.NoError(rt, w.log.Close())
	})
}

type walk struct {
	t      require.TestingT
	rt     *rapid.T
	disk   *vfs.Mem
	log    *Log
	models map[uint32]*model
	terms  map[uint32]uint64
}

func (w *walk) pick(rt *rapid.T) (uint32, *model) {
	id := rapid.SampledFrom([]uint32{testGroup, testGroup + 4}).Draw(rt, "group")
	return id, w.models[id]
}

func (w *walk) compare() {
	for id, m := range w.models {
		require.Equal(w.t, describe(w.t, m), describe(w.t, w.log.Group(id)))
	}
}

func (w *walk) write(id uint32, u Update) {
	u.Group = id
	w.models[id].write(Update{Snapshot: u.Snapshot, HardState: u.HardState, Entries: slices.Clone(u.Entries)})
	require.NoError(w.t, w.log.Write(true, u))
}

func (w *walk) append(rt *rapid.T) {
	id, m := w.pick(rt)
	last, _ := m.LastIndex()
	w.appendAt(rt, id, last+1)
}

// conflict overwrites the end of the log, and what is compacted with it.
func (w *walk) conflict(rt *rapid.T) {
	id, m := w.pick(rt)
	last, _ := m.LastIndex()
	first := max(1, last-min(last, rapid.Uint64Range(0, 6).Draw(rt, "back")))
	offset, _ := m.FirstIndex()
	if snap, _ := m.Snapshot(); snap.GetMetadata().GetIndex() >= max(first, offset) {
		require.ErrorIs(w.t, w.log.Write(true, Update{Group: id, Entries: entries(first, 99, int(last+1-first), 0)}), kv.ErrInvalidArgument)
		return
	}
	w.appendAt(rt, id, first)
}

func (w *walk) appendAt(rt *rapid.T, id uint32, first uint64) {
	m := w.models[id]
	w.terms[id] += rapid.Uint64Range(0, 1).Draw(rt, "newer")
	term := max(w.terms[id], 1)
	offset, _ := m.FirstIndex()
	es := entries(first, term, rapid.IntRange(1, 5).Draw(rt, "n"), rapid.SampledFrom([]int{0, 7, 400}).Draw(rt, "bytes"))
	if first+uint64(len(es)) <= offset {
		return // nothing new
	}
	w.terms[id] = term
	w.write(id, Update{HardState: hardState(term, 2, offset-1), Entries: es})
}

func (w *walk) install(rt *rapid.T) {
	id, m := w.pick(rt)
	last, _ := m.LastIndex()
	w.terms[id]++
	index := last + rapid.Uint64Range(1, 9).Draw(rt, "ahead")
	w.write(id, Update{Snapshot: snapshot(index, w.terms[id], 1, 2, 3), HardState: hardState(w.terms[id], 0, index)})
}

// some returns an index that the log has, 0 if it has none.
func (w *walk) some(rt *rapid.T, m *model) uint64 {
	first, _ := m.FirstIndex()
	last, _ := m.LastIndex()
	if last < first {
		return 0
	}
	return rapid.Uint64Range(first, last).Draw(rt, "index")
}

func (w *walk) mark(rt *rapid.T) {
	id, m := w.pick(rt)
	index := w.some(rt, m)
	snap, _ := m.Snapshot()
	if index <= snap.GetMetadata().GetIndex() {
		require.ErrorIs(w.t, w.log.MarkSnapshot(id, index, &pb.ConfState{}), kv.ErrInvalidArgument)
		return
	}
	conf := &pb.ConfState{Voters: []uint64{1, index}}
	_, err := m.CreateSnapshot(index, conf, nil)
	require.NoError(w.t, err)
	require.NoError(w.t, w.log.MarkSnapshot(id, index, conf))
}

func (w *walk) compact(rt *rapid.T) {
	id, m := w.pick(rt)
	index := w.some(rt, m)
	if index == 0 {
		first, _ := m.FirstIndex()
		require.ErrorIs(w.t, w.log.Compact(id, first-1), kv.ErrInvalidArgument)
		require.ErrorIs(w.t, w.log.Compact(id, first+1), kv.ErrInvalidArgument)
		return
	}
	require.NoError(w.t, m.Compact(index))
	require.NoError(w.t, w.log.Compact(id, index))
}

// read reads a range of entries up to a size.
func (w *walk) read(rt *rapid.T) {
	id, m := w.pick(rt)
	lo := w.some(rt, m)
	if lo == 0 {
		return
	}
	last, _ := m.LastIndex()
	hi := rapid.Uint64Range(lo, last+1).Draw(rt, "hi")
	size := rapid.SampledFrom([]uint64{0, 30, 500, math.MaxUint64}).Draw(rt, "size")
	want, err := m.Entries(lo, hi, size)
	require.NoError(w.t, err)
	got, err := w.log.Group(id).Entries(lo, hi, size)
	require.NoError(w.t, err)
	require.Len(w.t, got, len(want))
	for i := range want {
		require.Equal(w.t, want[i].String(), got[i].String())
	}
}

func (w *walk) reopen(*rapid.T) {
	require.NoError(w.t, w.log.Close())
	w.log = mustOpen(w.t, testOptions(w.disk, false))
}

// cut is a power cut after a sync.
func (w *walk) cut(*rapid.T) {
	require.NoError(w.t, w.log.Write(true))
	w.disk = w.disk.CrashImage(vfs.DropAll, nil)
	require.NoError(w.t, w.log.Close())
	w.log = mustOpen(w.t, testOptions(w.disk, false))
}

func TestErrorsOfStorage(t *testing.T) {
	l := mustOpen(t, testOptions(newDisk(t), true))
	g := l.Group(testGroup)
	_, err := g.Entries(1, 2, 9)
	require.ErrorIs(t, err, raft.ErrUnavailable)
	require.NoError(t, l.Write(true, Update{Group: testGroup, HardState: hardState(1, 1, 0), Entries: entries(1, 1, 5, 0)}))
	require.NoError(t, l.Compact(testGroup, 2))
	_, err = g.Entries(2, 4, 9)
	require.ErrorIs(t, err, raft.ErrCompacted)
	_, err = g.Entries(3, 7, 9)
	require.ErrorIs(t, err, raft.ErrUnavailable)
	_, err = g.Term(1)
	require.ErrorIs(t, err, raft.ErrCompacted)
	_, err = g.Term(6)
	require.ErrorIs(t, err, raft.ErrUnavailable)

	holes := entries(6, 1, 3, 0)
	for what, u := range map[string]Update{
		"a gap":           {Group: testGroup, Entries: entries(7, 1, 1, 0)},
		"a hole":          {Group: testGroup, Entries: []*pb.Entry{holes[0], holes[2]}},
		"an old snapshot": {Group: testGroup, Snapshot: snapshot(1, 1)},
	} {
		if u.Snapshot != nil {
			require.NoError(t, l.MarkSnapshot(testGroup, 3, &pb.ConfState{}))
		}
		require.ErrorIs(t, l.Write(true, u), kv.ErrInvalidArgument, what)
	}
	require.NoError(t, l.Close())
	require.NoError(t, l.Close())
	require.ErrorIs(t, l.Write(true), kv.ErrClosed)
	require.ErrorIs(t, l.Mark(), kv.ErrClosed)
	require.ErrorIs(t, l.Reclaim(), kv.ErrClosed)
	require.ErrorIs(t, l.Compact(testGroup, 4), kv.ErrClosed)
	require.ErrorIs(t, l.MarkSnapshot(testGroup, 4, nil), kv.ErrClosed)
	_, _, err = g.InitialState()
	require.ErrorIs(t, err, kv.ErrClosed)
	_, err = g.Entries(3, 4, 9)
	require.ErrorIs(t, err, kv.ErrClosed)
}

// The cache of a group whose end is overwritten holds nothing of what it replaced, whether
// the overwritten entries were in the cache or only on the disk.
func TestAnOverwrittenEntryLeavesTheCache(t *testing.T) {
	for name, cache := range map[string]int64{"all cached": 1 << 20, "one cached": 1} {
		t.Run(name, func(t *testing.T) {
			o := testOptions(newDisk(t), true)
			o.CacheBytes = cache
			l := mustOpen(t, o)
			g := l.Group(testGroup)
			require.NoError(t, l.Write(true, Update{Group: testGroup, HardState: hardState(1, 1, 0), Entries: entries(1, 1, 9, 0)}))
			require.NoError(t, l.Write(true, Update{Group: testGroup, HardState: hardState(2, 1, 0), Entries: entries(4, 2, 1, 0)}))
			last, err := g.LastIndex()
			require.NoError(t, err)
			require.EqualValues(t, 4, last)
			es, err := g.Entries(1, 5, math.MaxUint64)
			require.NoError(t, err)
			require.Equal(t, "4/2.", string(es[3].Data))
			require.NoError(t, l.Write(true, Update{Group: testGroup, Entries: entries(5, 2, 3, 0)}))
			es, err = g.Entries(1, 8, math.MaxUint64)
			require.NoError(t, err)
			require.Equal(t, "3/1.", string(es[2].Data))
			require.Equal(t, "7/2.", string(es[6].Data))
			var bytes int64
			for _, e := range g.cache {
				bytes += int64(len(e.Data))
			}
			require.Equal(t, bytes, l.cached)
			require.NoError(t, l.Close())
		})
	}
}

// Segments whose entries were given up are deleted, and only those: also those that a crash
// brought back.
func TestReclaimDeletesWhatNothingNeeds(t *testing.T) {
	disk := newDisk(t)
	l := mustOpen(t, testOptions(disk, true))
	require.NoError(t, l.Write(true, Update{Group: 9, HardState: hardState(4, 2, 0)}))
	for i := range uint64(20) {
		require.NoError(t, l.Write(true, Update{Group: testGroup, HardState: hardState(1, 1, i), Entries: entries(1+i, 1, 1, 200)}))
	}
	before, err := listSegments(disk, testDir)
	require.NoError(t, err)
	require.Greater(t, len(before), 4)
	requireSizes(t, disk, l)
	stats := l.Stats()
	require.EqualValues(t, 21, stats.SyncMicros.Count())
	require.EqualValues(t, 20, stats.WriteEntries.Sum)
	require.Greater(t, stats.WriteBytes.Sum, uint64(20*200))
	require.NoError(t, l.Reclaim())
	same, err := listSegments(disk, testDir)
	require.NoError(t, err)
	require.Equal(t, before, same)

	require.NoError(t, l.Compact(testGroup, 15))
	require.NoError(t, l.Reclaim())
	after, err := listSegments(disk, testDir)
	require.NoError(t, err)
	require.Less(t, len(after), len(before)-2)
	requireSizes(t, disk, l)
	require.Greater(t, after[0], before[0]+1)
	back := disk.CrashImage(vfs.DropAll, nil) // removals are not synced
	names, err := listSegments(back, testDir)
	require.NoError(t, err)
	require.Equal(t, before, names[:len(before)])
	want := describe(t, l.Group(testGroup))
	require.NoError(t, l.Close())
	for _, disk := range []*vfs.Mem{disk, back} {
		l = mustOpen(t, testOptions(disk, false))
		requireSizes(t, disk, l)
		require.Equal(t, want, describe(t, l.Group(testGroup)))
		h, _, err := l.Group(9).InitialState()
		require.NoError(t, err)
		require.EqualValues(t, 4, h.GetTerm(), "the state of a group that wrote nothing since is restated")
		require.NoError(t, l.Close())
		names, err := listSegments(disk, testDir)
		require.NoError(t, err)
		require.Equal(t, after[0], names[0])
	}
}

// requireSizes fails unless the log knows how many files it has and how long they are.
func requireSizes(t *testing.T, disk vfs.FS, l *Log) {
	t.Helper()
	nums, err := listSegments(disk, testDir)
	require.NoError(t, err)
	var sum int64
	for _, num := range nums {
		info, err := disk.Stat(segmentName(testDir, num))
		require.NoError(t, err)
		sum += info.Size()
	}
	stats := l.Stats()
	require.Equal(t, len(nums), stats.Segments)
	require.Equal(t, sum, stats.LiveBytes)
}

// A log of many segments that count no more is given up in parts: its caller has other things to do
// than to wait for the removal of all.
func TestReclaimIsBounded(t *testing.T) {
	disk := vfs.NewMem()
	require.NoError(t, disk.MkdirAll("data"))
	require.NoError(t, disk.SyncDir("/"))
	l := mustOpen(t, testOptions(disk, true))
	segments := func() []uint64 {
		nums, err := listSegments(disk, testDir)
		require.NoError(t, err)
		return nums
	}
	last := uint64(0)
	for len(segments()) < 3*reclaimAtOnce {
		last++
		require.NoError(t, l.Write(true, Update{Group: testGroup, HardState: hardState(1, 1, last), Entries: entries(last, 1, 1, 400)}))
	}
	require.NoError(t, l.Compact(testGroup, last))
	calls := 0
	for before := len(segments()); l.Reclaimable(); calls++ {
		require.NoError(t, l.Reclaim())
		after := len(segments())
		require.LessOrEqual(t, before-after, reclaimAtOnce)
		before = after
		image := mustOpen(t, testOptions(disk.CrashImage(vfs.DropAll, nil), false)) // at any of these moments
		require.NoError(t, image.Close())
	}
	require.Greater(t, calls, 1)
	require.LessOrEqual(t, len(segments()), 2)
	require.NoError(t, l.Close())
}
