package raftlog

import (
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/logfile"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/vfs"
)

var update = flag.Bool("update", false, "write the golden files again")

const goldenDir = "testdata/v1"

// contents returns the segments on a disk by name.
func contents(t testing.TB, disk *vfs.Mem) map[string][]byte {
	nums, err := listSegments(disk, testDir)
	require.NoError(t, err)
	files := map[string][]byte{}
	for _, num := range nums {
		f, err := disk.Open(segmentName(testDir, num))
		require.NoError(t, err)
		size, err := f.Size()
		require.NoError(t, err)
		b := make([]byte, size)
		if size > 0 {
			_, err = f.ReadAt(b, 0)
			require.NoError(t, err)
		}
		require.NoError(t, f.Close())
		files[filepath.Base(f.Name())] = b
	}
	return files
}

// diskOf returns a disk with these segments, synced.
func diskOf(t testing.TB, files map[string][]byte) *vfs.Mem {
	disk := newDisk(t)
	require.NoError(t, disk.MkdirAll(testDir))
	for name, b := range files {
		f, err := disk.Create(testDir + "/" + name)
		require.NoError(t, err)
		if len(b) > 0 {
			_, err = f.WriteAt(b, 0)
			require.NoError(t, err)
		}
		require.NoError(t, f.Close())
	}
	return disk.CrashImage(vfs.KeepAll, nil)
}

// TestGolden: the log of a fixed history has exactly these bytes, and they are read back.
func TestGolden(t *testing.T) {
	disk := newDisk(t)
	o := testOptions(disk, true)
	o.SegmentBytes = 800
	l := mustOpen(t, o)
	conf := &pb.ConfState{Voters: []uint64{1, 2, 3}, Learners: []uint64{4}, VotersOutgoing: []uint64{1, 5}, LearnersNext: []uint64{6}, AutoLeave: new(true)}
	boot := snapshot(0, 0)
	boot.Metadata.ConfState = conf
	require.NoError(t, l.Write(true, Update{Group: testGroup, Snapshot: boot}))
	es := entries(1, 1, 3, 20)
	es[1].Type, es[2].Data = new(pb.EntryConfChangeV2), nil
	require.NoError(t, l.Write(true, Update{Group: testGroup, HardState: hardState(2, 3, 1), Entries: es}, Update{Group: 1, HardState: hardState(7, 0, 0)}))
	require.NoError(t, l.MarkSnapshot(testGroup, 1, &pb.ConfState{Voters: []uint64{2}}))
	require.NoError(t, l.Compact(testGroup, 1))
	require.NoError(t, l.Write(true, Update{Group: testGroup, Entries: entries(3, 2, 1, 90)}))
	require.NoError(t, l.Mark())
	want := describe(t, l.Group(testGroup)) + describe(t, l.Group(1))
	require.NoError(t, l.Close())

	got := contents(t, disk)
	if *update {
		require.NoError(t, os.MkdirAll(goldenDir, 0o755))
		for name, b := range got {
			require.NoError(t, os.WriteFile(filepath.Join(goldenDir, name+".hex"), []byte(hex.Dump(b)), 0o644))
		}
	}
	files, err := os.ReadDir(goldenDir)
	require.NoError(t, err)
	require.Len(t, files, len(got))
	kinds := map[kind]bool{}
	for name, b := range got {
		dump, err := os.ReadFile(filepath.Join(goldenDir, name+".hex"))
		require.NoError(t, err)
		require.Equal(t, string(dump), hex.Dump(b), name)
		num, _ := segmentSuffix.Parse(name)
		scan(b, logfile.ID{Store: testStore, Segment: num}, segmentHeaderBytes, func(f frame) { kinds[f.kind] = true })
	}
	require.Len(t, kinds, len(kindNames))
	l = mustOpen(t, testOptions(diskOf(t, got), false))
	require.Equal(t, want, describe(t, l.Group(testGroup))+describe(t, l.Group(1)))
	require.NoError(t, l.Close())
}

// TestDamageIsNeverSilent flips every byte, cuts off every end and removes every file of a log that was closed
// in order, and of one whose process was killed. Either Open refuses and changes nothing, or
// nothing is missing; after a kill, the last Write may be.
func TestDamageIsNeverSilent(t *testing.T) {
	disk := newDisk(t)
	l := &life{m: newModel(t)}
	var killed map[string][]byte
	disk.SetHook(func(s vfs.Step) {
		if !l.closed && s.Kind == vfs.StepWrite {
			killed = contents(t, disk) // the last one is the mark of Close
		}
	})
	require.NoError(t, l.run(testOptions(disk, true)))
	last := len(l.m.states) - 1
	for name, c := range map[string]struct {
		files map[string][]byte
		safe  int
	}{
		"closed": {contents(t, disk), last},
		"killed": {killed, last - 2}, // hard state and entries of the last Write
	} {
		t.Run(name, func(t *testing.T) {
			refused := 0
			verify := func(what, name string, spoiled []byte) {
				files := map[string][]byte{}
				for n, b := range c.files {
					if n != name {
						files[n] = b
					} else if spoiled != nil {
						files[n] = spoiled
					}
				}
				disk := diskOf(t, files)
				before := disk.Steps()
				log, _, err := Open(testOptions(disk, false))
				if err != nil {
					require.True(t, errors.Is(err, kv.ErrCorrupt) || errors.Is(err, kv.ErrUnsupportedVersion), "%s: %v", what, err)
					require.Equal(t, before, disk.Steps(), "refused, and yet touched: %s", what)
					refused++
					return
				}
				safe := c.safe
				if len(spoiled) < len(c.files[name]) && c.safe < last {
					safe = 0 // no file says how long it was
				}
				require.Contains(t, l.m.states[safe:], describe(t, log.Group(testGroup)), what)
				require.NoError(t, log.Close())
			}
			verify("nothing", "", nil)
			require.Zero(t, refused)
			step := 1
			if testsize.Reduced() {
				step = 17
			}
			for name, b := range c.files {
				for i := 0; i < len(b); i += step {
					spoiled := []byte(string(b))
					spoiled[i] ^= 1 << (i % 8)
					verify(fmt.Sprintf("flip at %d of %s", i, name), name, spoiled)
					if i%8 == 0 {
						verify(fmt.Sprintf("%s cut at %d", name, i), name, b[:i:i])
					}
				}
				verify(name+" missing", name, nil)
			}
			require.Greater(t, refused, 20)
		})
	}
}

// A log that was closed in order is wholly known: nothing before its last mark can be
// taken for a torn tail.
func TestNoVoteIsLostSilently(t *testing.T) {
	disk := newDisk(t)
	l := mustOpen(t, testOptions(disk, true))
	require.NoError(t, l.Write(true, Update{Group: testGroup, HardState: hardState(8, 2, 0)}))
	end := l.off
	require.NoError(t, l.Close())
	files := contents(t, disk)
	for name, b := range files {
		b[end-1] ^= 1
		_, _, err := Open(testOptions(diskOf(t, files), false))
		var damage *kv.CorruptionError
		require.ErrorAs(t, err, &damage)
		require.Equal(t, testDir+"/"+name, damage.File)
		require.Contains(t, err.Error(), "lost what it has acknowledged")
	}
	_, _, err := Open(testOptions(newDisk(t), false))
	require.ErrorIs(t, err, kv.ErrCorrupt, "an empty disk never votes")
	fresh := testOptions(diskOf(t, contents(t, disk)), true)
	_, _, err = Open(fresh)
	require.ErrorIs(t, err, kv.ErrCorrupt, "a log with votes is not discarded")
	other := testOptions(disk, false)
	other.StoreID++
	_, _, err = Open(other)
	require.ErrorIs(t, err, kv.ErrCorrupt, "that of another store")
}

// An entry that is damaged while the log is open is reported when it is read.
func TestDamageIsFoundByReads(t *testing.T) {
	disk := newDisk(t)
	o := testOptions(disk, true)
	o.CacheBytes = 1
	l := mustOpen(t, o)
	require.NoError(t, l.Write(true, Update{Group: testGroup, HardState: hardState(1, 1, 0), Entries: entries(1, 1, 3, 9)}))
	at := l.Group(testGroup).ents[0].at
	_, err := l.files[at.segment].WriteAt([]byte{0xff}, at.off+frameHeaderBytes+20)
	require.NoError(t, err)
	_, err = l.Group(testGroup).Entries(1, 2, 99)
	require.ErrorIs(t, err, kv.ErrCorrupt)
	_, err = l.files[at.segment].WriteAt([]byte{0xff}, at.off)
	require.NoError(t, err)
	_, err = l.Group(testGroup).Entries(1, 2, 99)
	require.ErrorIs(t, err, kv.ErrCorrupt)
	require.NoError(t, l.Close())
}

// TestImpossibleFramesAreRefused: frames whose checksums hold and that no kvd writes.
func TestImpossibleFramesAreRefused(t *testing.T) {
	start := frame{kind: kindStart}
	state := frame{kind: kindHardState, group: 1, payload: appendHardState(nil, hardState(1, 0, 0))}
	above := frame{kind: kindHardState, group: 1, payload: appendHardState(nil, hardState(1, 0, 1))}
	es := func(first, term uint64, n int) frame {
		payload := appendIndex(nil, first)
		for _, e := range entries(first, term, n, 0) {
			payload = appendEntry(payload, e)
		}
		return frame{kind: kindEntries, group: 1, payload: payload}
	}
	for what, frames := range map[string][]frame{
		"no start":             {state},
		"two starts":           {start, start},
		"unknown kind":         {start, {kind: 99}},
		"mark with a payload":  {start, {kind: kindMark, payload: []byte("x")}},
		"short hard state":     {start, {kind: kindHardState, payload: []byte("x")}},
		"long hard state":      {start, {kind: kindHardState, payload: make([]byte, 25)}},
		"entries of index 0":   {start, state, es(0, 1, 1)},
		"entries of term 0":    {start, state, es(1, 0, 1)},
		"unknown type":         {start, state, {kind: kindEntries, group: 1, payload: append(appendIndex(nil, 1), 1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0)}},
		"a gap":                {start, state, es(1, 1, 2), es(4, 1, 1)},
		"not from the first":   {start, state, es(2, 1, 1)},
		"a term above":         {start, state, es(1, 2, 1)},
		"terms that go back":   {start, {kind: kindHardState, group: 1, payload: appendHardState(nil, hardState(2, 0, 0))}, es(1, 2, 1), es(2, 1, 1)},
		"commit above the end": {start, above, {kind: kindMark, synced: address{1, segmentHeaderBytes + frameHeaderBytes + frameBytes(24)}}},
		"snapshot above":       {start, {kind: kindSnapshot, group: 1, payload: (&mark{index: 3, conf: &pb.ConfState{}}).append(nil)}},
		"half a snapshot":      {start, {kind: kindSnapshot, group: 1, payload: make([]byte, 20)}},
		"no such flag":         {start, {kind: kindSnapshot, group: 1, payload: append([]byte{2}, make([]byte, 33)...)}},
		"too many voters":      {start, {kind: kindSnapshot, group: 1, payload: append(make([]byte, 17), 0xff, 0xff, 0xff, 0xff)}},
		"half a compaction":    {start, {kind: kindCompaction, group: 1, payload: make([]byte, 9)}},
		"end without a next":   {start, {kind: kindEnd}},
	} {
		_, _, err := Open(testOptions(diskOf(t, segmentOf(frames)), false))
		require.ErrorIs(t, err, kv.ErrCorrupt, what)
	}
	torn := mustOpen(t, testOptions(diskOf(t, segmentOf([]frame{start, above})), false))
	require.Zero(t, torn.Group(1).hard.GetCommit(), "the entries of the last write may be missing")
	require.NoError(t, torn.Close())
	log := mustOpen(t, testOptions(diskOf(t, segmentOf([]frame{start, state, es(1, 1, 2)})), false))
	require.Equal(t, "term 1 vote 0 commit 0, snapshot 0/0 [], entries 1 to 2: 0 1/1.(0,4) 2/1.(0,4)", describe(t, log.Group(1)))
	require.NoError(t, log.Close())
}

// segmentOf returns a log of one segment with these frames.
func segmentOf(frames []frame) map[string][]byte {
	id := logfile.ID{Store: testStore, Segment: 1}
	b := segmentHeader{ID: id}.encode()
	for i, f := range frames {
		f.off, f.number, f.low = int64(len(b)), uint64(i+1), 1
		b = appendFrame(b, id, &f)
	}
	return map[string][]byte{"000001.raft": b}
}

// FuzzOpen opens a log of any frames, whose checksums hold, and of any bytes after them.
func FuzzOpen(f *testing.F) {
	f.Add([]byte{byte(kindStart), 0, byte(kindHardState), 24}, []byte{})
	f.Add(append([]byte{byte(kindStart), 0, byte(kindEntries), 22, 1, 0, 0, 0, 0, 0, 0, 0, 1}, make([]byte, 30)...), []byte("x"))
	files, err := os.ReadDir(goldenDir)
	require.NoError(f, err)
	for _, file := range files {
		dump, err := os.ReadFile(filepath.Join(goldenDir, file.Name()))
		require.NoError(f, err)
		var b []byte
		for line := range strings.Lines(string(dump)) {
			if text, _, ok := strings.Cut(line, "|"); ok {
				raw, err := hex.DecodeString(strings.ReplaceAll(text[10:], " ", ""))
				require.NoError(f, err)
				b = append(b, raw...)
			}
		}
		f.Add([]byte{byte(kindStart), 0}, b)
	}
	f.Fuzz(func(t *testing.T, script, tail []byte) {
		var frames []frame
		for len(script) >= 2 {
			n := min(int(script[1]), len(script)-2)
			fr := frame{kind: kind(script[0]), payload: script[2 : 2+n]}
			if fr.kind.ofGroup() {
				fr.group = testGroup
			}
			frames = append(frames, fr)
			script = script[2+n:]
		}
		files := segmentOf(frames)
		files["000001.raft"] = append(files["000001.raft"], tail...)
		disk := diskOf(t, files)
		before := disk.Steps()
		_, _ = Dump(disk, segmentName(testDir, 1), func(FrameInfo) error { return nil }) // it does not panic
		l, _, err := Open(testOptions(disk, false))
		if err != nil {
			require.Equal(t, before, disk.Steps())
			return
		}
		got := describe(t, l.Group(testGroup))
		require.NoError(t, l.Write(true, Update{Group: testGroup, HardState: hardState(1<<40, 1, 0)}))
		require.NoError(t, l.Close())
		l = mustOpen(t, testOptions(disk, false))
		_, entries, _ := strings.Cut(got, ", entries ")
		_, again, _ := strings.Cut(describe(t, l.Group(testGroup)), ", entries ")
		require.Equal(t, entries, again)
		require.NoError(t, l.Close())
	})
}
