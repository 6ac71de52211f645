package raftlog

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// life is a short history of a log: every kind of frame, conflicts, rotations, deleted
// segments and an installed snapshot. It keeps what the log has promised.
type life struct {
	m      *model
	log    *Log
	acked  int // index in m.states of what was last synced
	closed bool
}

func (l *life) write(sync bool, u Update) error {
	u.Group = testGroup
	l.m.write(Update{Snapshot: u.Snapshot, HardState: u.HardState, Entries: slices.Clone(u.Entries)})
	err := l.log.Write(sync, u)
	if err == nil && sync {
		l.acked = len(l.m.states) - 1
	}
	return err
}

func (l *life) run(o Options) error {
	var err error
	if l.log, _, err = Open(o); err != nil {
		return err
	}
	defer func() {
		if l.log.Close() == nil && l.log.Err() == nil {
			l.acked, l.closed = len(l.m.states)-1, true
		}
	}()
	steps := []func() error{
		func() error { return l.write(true, Update{Snapshot: snapshot(0, 0, 1, 2, 3)}) },
		func() error {
			return l.write(true, Update{HardState: hardState(1, 1, 0), Entries: entries(1, 1, 3, 20)})
		},
		func() error { return l.write(false, Update{HardState: hardState(1, 1, 3)}) },
		func() error {
			return l.write(true, Update{HardState: hardState(1, 1, 3), Entries: entries(4, 1, 6, 30)})
		},
		func() error {
			return l.write(true, Update{HardState: hardState(2, 3, 3), Entries: entries(6, 2, 2, 90)})
		},
		func() error { return l.log.Mark() },
		func() error {
			return l.write(true, Update{HardState: hardState(3, 2, 7), Entries: entries(8, 3, 3, 250)})
		},
		func() error {
			conf := &pb.ConfState{Voters: []uint64{1, 2}, Learners: []uint64{4}}
			_, err := l.m.CreateSnapshot(7, conf, nil)
			require.NoError(l.m.t, err)
			l.m.note()
			return l.log.MarkSnapshot(testGroup, 7, conf)
		},
		func() error {
			require.NoError(l.m.t, l.m.Compact(6))
			l.m.note()
			return l.log.Compact(testGroup, 6)
		},
		func() error {
			return l.write(true, Update{HardState: hardState(3, 2, 9), Entries: entries(11, 3, 2, 500)})
		},
		func() error { return l.log.Reclaim() },
		func() error { return l.write(true, Update{Entries: entries(13, 3, 1, 1500)}) },
		func() error {
			return l.write(true, Update{Snapshot: snapshot(40, 4, 1, 2), HardState: hardState(5, 0, 40), Entries: entries(41, 5, 2, 9)})
		},
		func() error { return l.log.Reclaim() },
		func() error {
			return l.write(true, Update{HardState: hardState(5, 0, 42), Entries: entries(43, 5, 1, 9)})
		},
	}
	for _, step := range steps {
		if err := step(); err != nil {
			require.Equal(l.m.t, err, l.log.Err())
			require.ErrorIs(l.m.t, err, kv.ErrFailed)
			for range 2 {
				require.Equal(l.m.t, err, l.log.Write(true), "a failed log stays so")
			}
			return err
		}
	}
	return nil
}

// check opens what is left on a disk: it holds what was promised, and a state that the log had.
func check(t testing.TB, disk *vfs.Mem, states []string, acked int, fresh bool, what string) {
	o := testOptions(disk, fresh)
	l, _, err := Open(o)
	require.NoError(t, err, what)
	got := describe(t, l.Group(testGroup))
	require.Contains(t, states[acked:], got, "%s: %d states are too old, the last of them %s", what, acked, states[max(acked-1, 0)])
	require.NoError(t, l.Close())
}

// TestEveryCrashPoint cuts the power, or kills the process, before every operation of a
// life, and again before every operation of some recoveries.
func TestEveryCrashPoint(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	disk := newDisk(t)
	l := &life{m: newModel(t)}
	images, every := 0, 1
	if testsize.Reduced() {
		every = 3
	}
	disk.SetHook(func(s vfs.Step) {
		if s.N%every > 0 {
			return
		}
		acked, fresh := l.acked, l.log == nil
		states := slices.Clone(l.m.states)
		verify := func(image *vfs.Mem, what string) {
			images++
			check(t, image.CrashImage(vfs.KeepAll, nil), states, acked, fresh, what)
			if images%19 > 0 {
				return
			}
			again := image.KillImage()
			again.SetHook(func(s vfs.Step) {
				for _, policy := range vfs.CrashPolicies {
					check(t, again.CrashImage(policy, rng), states, acked, fresh, fmt.Sprintf("%s, then %v before step %d (%s %s) of recovery", what, policy, s.N, s.Kind, s.Name))
				}
			})
			l, _, err := Open(testOptions(again, fresh))
			require.NoError(t, err, what)
			again.SetHook(nil)
			require.NoError(t, l.Close())
		}
		for _, policy := range vfs.CrashPolicies {
			verify(disk.CrashImage(policy, rng), fmt.Sprintf("%v before step %d (%s %s)", policy, s.N, s.Kind, s.Name))
		}
		killed := disk.KillImage()
		verify(killed, fmt.Sprintf("kill before step %d (%s %s)", s.N, s.Kind, s.Name))
	})
	require.NoError(t, l.run(testOptions(disk, true)))
	disk.SetHook(nil)
	require.True(t, l.closed)
	check(t, disk, l.m.states, len(l.m.states)-1, false, "no crash")
	require.Greater(t, images, 100)
}

// TestEveryFault fails every operation of a life in turn, once or from then on. Whatever
// fails, what was synced is on the disk, and the log does nothing more.
func TestEveryFault(t *testing.T) {
	for name, c := range map[string]struct {
		sticky bool
		fault  faultfs.Fault
	}{
		"EIO":                         {false, faultfs.Fault{Err: syscall.EIO}},
		"short write, then full disk": {true, faultfs.Fault{Err: syscall.ENOSPC, Short: 70}},
		"EIO, pages dropped":          {false, faultfs.Fault{Err: syscall.EIO, DropDirty: true}},
	} {
		t.Run(name, func(t *testing.T) {
			i := 0
			for ; oneFault(t, i, c.sticky, c.fault); i++ {
				if testsize.Reduced() {
					i += 4
				}
			}
			require.Greater(t, i, 40)
		})
	}
}

func oneFault(t *testing.T, i int, sticky bool, fault faultfs.Fault) (fired bool) {
	disk := newDisk(t)
	fsys := faultfs.Wrap(disk, faultfs.At(i, sticky, fault))
	l := &life{m: newModel(t)}
	err := l.run(testOptions(fsys, true))
	if !fsys.Fired() {
		require.NoError(t, err)
		require.True(t, l.closed)
	}
	for _, policy := range []vfs.CrashPolicy{vfs.DropAll, vfs.KeepAll} {
		check(t, disk.CrashImage(policy, nil), l.m.states, l.acked, l.log == nil, fmt.Sprintf("operation %d, %v, error %v", i, policy, err))
	}
	return fsys.Fired()
}

// A write that stops at any byte is a torn tail: also between two of its frames, where nothing
// looks torn, and after the hard state, whose commit index is then above the last entry.
func TestWriteThatStopsAtAnyByte(t *testing.T) {
	hardStateBytes := int(frameBytes(24))
	for n := range 2 * hardStateBytes {
		disk := newDisk(t)
		fsys := faultfs.Wrap(disk, nil)
		l := mustOpen(t, testOptions(fsys, true))
		require.NoError(t, l.Write(true, Update{Group: testGroup, HardState: hardState(1, 1, 1), Entries: entries(1, 1, 3, 0)}))
		fsys.SetInjector(faultfs.At(0, true, faultfs.Fault{Err: syscall.EIO, Short: n}, faultfs.OnKind(faultfs.Write)))
		require.ErrorIs(t, l.Write(true, Update{Group: testGroup, HardState: hardState(1, 1, 5), Entries: entries(4, 1, 2, 0)}), kv.ErrFailed)

		again, _, err := Open(testOptions(disk.KillImage(), false))
		require.NoError(t, err, "%d bytes of the last write", n)
		g := again.Group(testGroup)
		commit := uint64(1)
		if n >= hardStateBytes {
			commit = 3
		}
		hard, _, err := g.InitialState()
		require.NoError(t, err)
		require.Equal(t, commit, hard.GetCommit(), "%d bytes of the last write", n)
		require.Equal(t, uint64(3), g.last())
		require.NoError(t, again.Close())
	}
}

// A recovery that fails can be repeated.
func TestEveryFaultOfARecovery(t *testing.T) {
	disk := newDisk(t)
	l := &life{m: newModel(t)}
	var killed *vfs.Mem
	disk.SetHook(func(vfs.Step) { killed = disk.KillImage() })
	require.NoError(t, l.run(testOptions(disk, true)))
	for i := 0; ; i++ {
		image := killed.KillImage()
		fsys := faultfs.Wrap(image, faultfs.FailAt(i, syscall.EIO, true))
		log, _, err := Open(testOptions(fsys, false))
		if err == nil {
			_ = log.Close()
		}
		for _, policy := range []vfs.CrashPolicy{vfs.DropAll, vfs.KeepAll} {
			check(t, image.CrashImage(policy, nil), l.m.states, len(l.m.states)-1, false, fmt.Sprintf("operation %d", i))
		}
		if !fsys.Fired() {
			require.NoError(t, err)
			require.Greater(t, i, 10)
			return
		}
	}
}

// A write stops at any byte. Its entries replace others, and it brings the commit index that counts
// them. No entry that is replaced counts as committed after that, and every new entry but the first
// comes with the commit index.
func TestAWriteThatReplacesEntriesStopsAtAnyByte(t *testing.T) {
	const old, first, last, commit = 5, 3, 6, 5
	frames := 2 * (frameBytes(24) + frameBytes(len(appendEntry(appendIndex(nil, 1), entries(1, 2, 1, 0)[0]))))
	seen := map[string]bool{}
	for n := range int(frames) {
		disk := newDisk(t)
		fsys := faultfs.Wrap(disk, nil)
		o := testOptions(fsys, true)
		o.SegmentBytes = 1 << 16 // one segment has all
		l := mustOpen(t, o)
		require.NoError(t, l.Write(true, Update{Group: testGroup, HardState: hardState(1, 1, 1), Entries: entries(1, 1, old, 0)}))
		fsys.SetInjector(faultfs.At(0, true, faultfs.Fault{Err: syscall.EIO, Short: n}, faultfs.OnKind(faultfs.Write)))
		err := l.Write(true, Update{Group: testGroup, HardState: hardState(2, 1, commit), Entries: entries(first, 2, last-first+1, 0)})
		require.ErrorIs(t, err, kv.ErrFailed)

		again, _, err := Open(testOptions(disk.KillImage(), false))
		require.NoError(t, err, "%d bytes of the write", n)
		g := again.Group(testGroup)
		hard, _, err := g.InitialState()
		require.NoError(t, err)
		seen[fmt.Sprintf("to %d of term %d, commit %d", g.last(), g.lastTerm(), hard.GetCommit())] = true
		require.NoError(t, again.Close())
	}
	require.Equal(t, map[string]bool{
		"to 5 of term 1, commit 1": true, // nothing
		"to 5 of term 1, commit 2": true, // the hard state, below the entries
		"to 3 of term 2, commit 2": true, // the first entry
		"to 3 of term 2, commit 3": true, // the hard state as it is, before any other entry
	}, seen)
}

func TestNoCommittedEntryIsReplaced(t *testing.T) {
	disk := newDisk(t)
	l := mustOpen(t, testOptions(disk, true))
	require.NoError(t, l.Write(true, Update{Group: testGroup, HardState: hardState(1, 1, 2), Entries: entries(1, 1, 3, 0)}))
	g, before := l.Group(testGroup), describe(t, l.Group(testGroup))
	for _, h := range []*pb.HardState{nil, hardState(2, 1, 2), hardState(2, 1, 3)} {
		err := l.Write(true, Update{Group: testGroup, HardState: h, Entries: entries(2, 2, 2, 0)})
		require.ErrorIs(t, err, kv.ErrInvalidArgument)
		require.ErrorContains(t, err, "others that are committed")
		require.Equal(t, before, describe(t, g))
	}
	require.NoError(t, l.Write(true, Update{Group: testGroup, HardState: hardState(2, 1, 3), Entries: entries(3, 2, 2, 0)}))
	require.Equal(t, "term 2 vote 1 commit 3", describe(t, g)[:22])
	require.NoError(t, l.Write(true, Update{Group: testGroup, HardState: hardState(3, 1, 5), Entries: entries(5, 3, 1, 0)}), "it replaces nothing")
	require.NoError(t, l.Close())
	l = mustOpen(t, testOptions(disk, false))
	require.Equal(t, "term 3 vote 1 commit 5", describe(t, l.Group(testGroup))[:22])
	require.NoError(t, l.Close())
}

// A recovery after a crash anywhere in a life, and a creation that goes on after one, fail with each of
// their operations in turn. What was synced is there all the same when they are repeated.
func TestEveryFaultOfARecoveryFromACrash(t *testing.T) {
	type crash struct {
		image  *vfs.Mem
		states []string
		acked  int
		fresh  bool
		what   string
	}
	every := 7
	if testsize.Reduced() {
		every = 31
	}
	var crashes []crash
	disk := newDisk(t)
	l := &life{m: newModel(t)}
	disk.SetHook(func(s vfs.Step) {
		if s.N%every == 0 {
			what := fmt.Sprintf("kill before step %d (%s %s)", s.N, s.Kind, s.Name)
			crashes = append(crashes, crash{disk.KillImage(), slices.Clone(l.m.states), l.acked, l.log == nil, what})
		}
	})
	require.NoError(t, l.run(testOptions(disk, true)))
	disk.SetHook(nil)
	fired := 0
	for _, c := range crashes {
		for i := 0; ; i++ {
			image := c.image.KillImage()
			fsys := faultfs.Wrap(image, faultfs.FailAt(i, syscall.EIO, false))
			log, _, err := Open(testOptions(fsys, c.fresh))
			done := !fsys.Fired()
			fsys.SetInjector(nil)
			if done {
				require.NoError(t, err, c.what)
				require.NoError(t, log.Close())
				break
			}
			fired++
			if err == nil {
				_ = log.Close()
			} else {
				require.ErrorIs(t, err, syscall.EIO, "%s, then operation %d", c.what, i)
			}
			for _, policy := range []vfs.CrashPolicy{vfs.DropAll, vfs.KeepAll} {
				check(t, image.CrashImage(policy, nil), c.states, c.acked, c.fresh, fmt.Sprintf("%s, then operation %d", c.what, i))
			}
		}
	}
	require.Greater(t, fired, 50)
}

// An entry that cannot be read is reported; the log goes on, and has it once the disk can be read.
func TestAReadThatFailsChangesNothing(t *testing.T) {
	fsys := faultfs.Wrap(newDisk(t), nil)
	l := mustOpen(t, testOptions(fsys, true))
	require.NoError(t, l.Write(true, Update{Group: testGroup, HardState: hardState(1, 1, 0), Entries: entries(1, 1, 9, 100)}))
	g := l.Group(testGroup)
	for i := range 2 { // the header of its frame, and the frame
		fsys.SetInjector(faultfs.FailAt(i, syscall.EIO, false, faultfs.OnKind(faultfs.Read)))
		_, err := g.Entries(1, 2, 99)
		require.ErrorIs(t, err, syscall.EIO)
		require.NoError(t, l.Err())
	}
	fsys.SetInjector(nil)
	es, err := g.Entries(1, 2, 99)
	require.NoError(t, err)
	require.Equal(t, "1/1.", strings.TrimRight(string(es[0].GetData()), "\x00"))
	require.NoError(t, l.Close())
}

// A lowest segment that is missing is damage: a later frame names it.
func TestTheLowestSegmentIsMissed(t *testing.T) {
	disk, l := longLog(t)
	require.NoError(t, l.Compact(testGroup, 15))
	require.NoError(t, l.Reclaim())
	require.NoError(t, l.Close())
	nums, err := listSegments(disk, testDir)
	require.NoError(t, err)
	require.Greater(t, nums[0], uint64(1))
	require.NoError(t, disk.Remove(segmentName(testDir, nums[0])))
	_, _, err = Open(testOptions(disk, false))
	require.ErrorIs(t, err, kv.ErrCorrupt)
	require.ErrorContains(t, err, segmentName(testDir, nums[0])+": segment is missing")
}

// A check and a scrub of a disk that fails report that, and not damage.
func TestChecksOfADiskThatFails(t *testing.T) {
	disk, l := longLog(t)
	unlisted := faultfs.Wrap(disk, nil)
	l.opts.FS = unlisted
	unlisted.SetInjector(faultfs.FailAt(0, syscall.EIO, true, faultfs.OnKind(faultfs.List)))
	require.ErrorIs(t, l.Verify(t.Context(), direct, func(int64) {}, func(string, error) error { return nil }), syscall.EIO)
	l.opts.FS = disk
	require.NoError(t, l.Close())
	for i := 0; ; i++ {
		fsys := faultfs.Wrap(disk, faultfs.FailAt(i, syscall.EIO, true))
		_, err := Check(fsys, testDir, testStore)
		if !fsys.Fired() {
			require.NoError(t, err)
			require.Greater(t, i, 10)
			return
		}
		require.ErrorIs(t, err, syscall.EIO, "operation %d", i)
		require.NotErrorIs(t, err, kv.ErrCorrupt, "operation %d", i)
	}
}
