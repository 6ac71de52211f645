package raftlog

import (
	"errors"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// A dump has every frame, in order, and what it holds.
func TestADumpHasEveryFrame(t *testing.T) {
	data := []byte("data")
	m := mark{installed: true, index: 4, term: 2, conf: &pb.ConfState{Voters: []uint64{1, 2}}}
	disk := diskOf(t, segmentOf([]frame{
		{kind: kindStart},
		{kind: kindSnapshot, group: testGroup, payload: m.append(nil)},
		{kind: kindHardState, group: testGroup, payload: appendHardState(nil, hardState(3, 2, 4))},
		{kind: kindEntries, group: testGroup, payload: appendEntry(appendIndex(nil, 5), &pb.Entry{Term: new(uint64(3)), Data: data})},
		{kind: kindCompaction, group: testGroup, payload: appendCompaction(nil, 5, 3)},
		{kind: kindEnd},
	}))
	name := segmentName(testDir, 1)
	var frames []FrameInfo
	info, err := Dump(disk, name, func(f FrameInfo) error {
		frames = append(frames, f)
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, SegmentInfo{LogID: testStore, Num: 1, Bytes: info.End, End: info.End}, info)
	var kinds []string
	for i, f := range frames {
		require.Equal(t, uint64(i+1), f.Number)
		kinds = append(kinds, f.Kind)
	}
	require.Equal(t, []string{"start", "snapshot", "hard state", "entries", "compaction", "end"}, kinds)
	require.Equal(t, uint32(testGroup), frames[1].Group)
	require.Equal(t, uint64(4), frames[1].Snapshot.GetIndex())
	require.True(t, frames[1].Installed)
	require.Contains(t, frames[1].Conf, "Voters:[1 2]")
	require.Equal(t, uint64(2), frames[2].HardState.GetVote())
	require.Equal(t, []EntryInfo{{5, 3, pb.EntryNormal, data}}, frames[3].Entries)
	require.Equal(t, [2]uint64{5, 3}, [2]uint64{frames[4].CompactedIndex, frames[4].CompactedTerm})

	stop := errors.New("stop")
	_, err = Dump(disk, name, func(FrameInfo) error { return stop })
	require.ErrorIs(t, err, stop)
}

func TestADumpSaysWhatIsWrong(t *testing.T) {
	ignore := func(FrameInfo) error { return nil }
	name := segmentName(testDir, 1)
	malformed := diskOf(t, segmentOf([]frame{{kind: kindStart}, {kind: kindHardState, group: testGroup, payload: []byte("short")}}))
	info, err := Dump(malformed, name, ignore)
	require.ErrorIs(t, err, kv.ErrCorrupt)
	require.ErrorContains(t, err, "hard state frame")
	require.Equal(t, int64(segmentHeaderBytes+frameHeaderBytes), info.End)

	_, err = Dump(diskOf(t, map[string][]byte{"000001.raft": []byte("x")}), name, ignore)
	require.ErrorIs(t, err, kv.ErrCorrupt)
	require.ErrorContains(t, err, "not a segment")
	for _, kind := range []faultfs.Kind{faultfs.Open, faultfs.Read} {
		failing := faultfs.Wrap(malformed, faultfs.FailAt(0, syscall.EIO, true, faultfs.OnKind(kind)))
		_, err = Dump(failing, name, ignore)
		require.ErrorIs(t, err, syscall.EIO)
	}
}
