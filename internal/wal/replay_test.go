package wal

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// Replay gives the same records as Open, from any number on: for a log that was killed or
// closed in order, and for one that is suspended because the disk is full.
func TestReplayFromAnyNumber(t *testing.T) {
	disk := newDisk(t)
	o := testOptions(disk)
	o.SegmentBytes, o.idleMark = 600, time.Hour
	l, _, _ := mustOpen(t, o)
	var want []rec
	for i := range 20 {
		want = append(want, put(t, l, payload(i), uint32(i%3+1), buffered))
	}
	killed := disk.KillImage()
	require.NoError(t, l.Close())
	full := killed.KillImage()
	full.SetCapacity(1) // too little even with what the killed log had reserved
	o.Fresh = false
	for name, image := range map[string]*vfs.Mem{"closed": disk, "killed": killed, "killed, disk full": full} {
		t.Run(name, func(t *testing.T) {
			o := o
			o.FS = image
			l, recs, r := mustOpen(t, o)
			require.Equal(t, want, recs)
			require.Equal(t, name == "killed, disk full", l.Suspended() != nil)
			if l.Suspended() != nil {
				hold := l.Hold()
				_, err := hold.Snapshot(t.Context(), r.LastSeq)
				require.ErrorIs(t, err, kv.ErrReadOnly)
				hold.Release()
				require.Empty(t, l.Durable())
			}
			for from := want[0].base; from <= r.LastSeq+1; from++ {
				var expected, got []rec
				for _, r := range want {
					if r.base >= from {
						expected = append(expected, r)
					}
				}
				require.NoError(t, l.Replay(from, func(r Record) error {
					got = append(got, rec{r.Base, r.Units, string(r.Payload)})
					return nil
				}))
				require.Equal(t, expected, got, "from %d", from)
			}
			require.NoError(t, l.Close())
		})
	}
}

// A second replay checks the frames again, and replayed segments may be reclaimed
// meanwhile.
func TestReplayWhileTheLogIsGivenBack(t *testing.T) {
	disk := newDisk(t)
	o := testOptions(disk)
	o.SegmentBytes, o.idleMark = 600, time.Hour
	l, _, _ := mustOpen(t, o)
	var want []rec
	for i := range 20 {
		want = append(want, put(t, l, payload(i), 1, buffered))
	}
	killed := disk.KillImage()
	require.NoError(t, l.Close())
	o.FS, o.Fresh = killed, false
	l, _, _ = mustOpen(t, o)
	var got []rec
	require.NoError(t, l.Replay(0, func(r Record) error {
		got = append(got, rec{r.Base, r.Units, string(r.Payload)})
		return l.Reclaim(r.Base - 1)
	}))
	require.Equal(t, want, got)
	require.NoError(t, l.Close())
	l, recs, _ := mustOpen(t, o)
	require.NoError(t, l.Close())
	require.Less(t, len(recs), len(want), "nothing was reclaimed")
	require.Equal(t, want[len(want)-len(recs):], recs)

	segments := contents(t, disk)
	o.FS = diskOf(t, segments)
	l, _, _ = mustOpen(t, o)
	f, err := o.FS.OpenReadWrite(segmentName(testDir, 2))
	require.NoError(t, err)
	_, err = f.WriteAt([]byte{1}, segmentHeaderBytes+frameHeaderBytes+frameHeaderBytes)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	require.ErrorIs(t, l.Replay(0, func(Record) error { return nil }), kv.ErrCorrupt)
	require.NoError(t, l.Close())
}
