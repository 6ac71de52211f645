package wal

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// The frame that notes the lowest segment may come after the last record of a snapshot, whose
// log then begins above the lowest segment that its frames name. It can be opened, also after it was
// extended by an archive that ends before that frame.
func TestASnapshotCanBeOpenedWhereverTheLowestSegmentIsNoted(t *testing.T) {
	for _, records := range []int{1, 3} { // of the frames, of which the snapshot has one record
		for _, after := range []int{0, 1, 2} { // frames between the snapshot and the note
			for _, more := range []int{0, 1} { // frames after the note
				t.Run(fmt.Sprintf("%d records, %d frames, the note, %d frames", records, after, more), func(t *testing.T) {
					testSnapshotLow(t, records, after, more)
				})
			}
		}
	}
}

func testSnapshotLow(t *testing.T, records, after, more int) {
	disk := newDisk(t)
	o := testOptions(disk)
	o.SegmentBytes, o.Archive = 4<<10, true
	l, _, _ := mustOpen(t, o)
	defer func() { require.NoError(t, l.Close()) }()
	for range 3 {
		putUntilRotated(t, l, 500)
	}
	end := putFrame(t, l, records) // so that there is one before the snapshot ends
	last := putFrame(t, l, records)
	for range after {
		end = putFrame(t, l, records)
	}
	pieces := archive(t, l) // none has the note
	for len(pieces) < 4 || l.mu.low == 1 {
		require.NoError(t, l.SyncAll(t.Context()))
		pieces = archive(t, l)
		l.Archived(pieces[2].segment)
		require.NoError(t, l.Reclaim(last[0].base))
	}
	for range more {
		putFrame(t, l, records)
	}

	hold := l.Hold()
	defer hold.Release()
	files, err := hold.Snapshot(t.Context(), last[0].base)
	require.NoError(t, err)
	require.EqualValues(t, l.mu.low, files[0].id.Segment)
	requireLogEnds(t, o, copySnapshot(t, files), last[0].base)

	extended := copySnapshot(t, files)
	low, err := extend(t, extended, pieces)
	require.NoError(t, err)
	require.Equal(t, l.mu.low, low)
	upTo := end[0].base // of the archive's last frame
	if after == 0 {
		upTo = last[0].base
	}
	require.NoError(t, Cut(extended, testDir, testStore, upTo, low, cutText))
	requireLogEnds(t, o, extended, upTo)
}

// putFrame appends one frame of so many records.
func putFrame(t *testing.T, l *Log, records int) (all []rec) {
	t.Helper()
	var end Pos
	for i := range records {
		text := strings.Repeat(string(rune('a'+i)), 10)
		base, pos, err := appendTo(l, []byte(text), 1, kv.DurabilitySync, silentWaker{}, nil)
		require.NoError(t, err)
		all, end = append(all, rec{base, 1, text}), pos
	}
	l.Flush()
	require.NoError(t, l.WaitSynced(t.Context(), end))
	return all
}

// requireLogEnds opens a copy of a log, which ends after a number, twice.
func requireLogEnds(t *testing.T, o Options, disk *vfs.Mem, last kv.SeqNum) {
	t.Helper()
	o.FS, o.Fresh = disk.CrashImage(vfs.KeepAll, nil), false
	for range 2 {
		l, found, _, err := openAll(o)
		require.NoError(t, err)
		require.NoError(t, l.Close())
		require.NotEmpty(t, found)
		require.Equal(t, last, found[len(found)-1].base)
	}
}
