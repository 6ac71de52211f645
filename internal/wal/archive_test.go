package wal

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// cutText is a split for records of these tests: of a text it keeps a letter for each unit.
func cutText(payload []byte, units uint32) ([]byte, error) { return payload[:units], nil }

// archived is what an archive has of one segment.
type archived struct {
	segment uint64
	frames  []byte
	Frames
}

// archive copies what is durable.
func archive(t testing.TB, l *Log) (all []archived) {
	t.Helper()
	for _, r := range l.Durable() {
		var b bytes.Buffer
		f, err := CopyFrames(t.Context(), l.opts.FS, testDir, testStore, r.Segment, FirstFrame, r.End, &b)
		require.NoError(t, err)
		require.EqualValues(t, b.Len(), f.To-f.From)
		require.Equal(t, r.End == 0, f.Ends)
		all = append(all, archived{r.Segment, b.Bytes(), f})
	}
	return all
}

// extend appends the archived frames to the copy of a log, and returns which segment it says is
// the lowest.
func extend(t testing.TB, to vfs.FS, all []archived) (low uint64, err error) {
	t.Helper()
	x, err := NewExtender(to, testDir, testStore)
	require.NoError(t, err)
	low = x.Low()
	for _, s := range all {
		if s.segment < x.Segment() {
			continue
		}
		if s.segment > x.Segment() {
			require.Equal(t, s.Previous, x.Segment())
			if err := x.Next(s.segment); err != nil {
				return low, errors.Join(err, x.Close())
			}
		}
		for half := range 2 { // in pieces
			n := len(s.frames) / 2
			if _, err := x.Write(s.frames[half*n : max(n, half*len(s.frames))]); err != nil {
				return low, errors.Join(err, x.Close())
			}
		}
	}
	return low, x.Close()
}

// fillArchived appends records of several units, and closes and opens the log twice.
func fillArchived(t testing.TB, o *Options) (l *Log, all []rec) {
	for life := range 3 {
		l, _, _ = mustOpen(t, *o)
		o.Fresh = false
		for i := range 20 {
			var end Pos
			for j := range 3 { // of one frame
				units := uint32(1 + j)
				text := strings.Repeat(string(rune('a'+i)), 40)[:int(units)+i]
				base, pos, err := appendTo(l, []byte(text), units, kv.DurabilitySync, silentWaker{}, nil)
				require.NoError(t, err)
				all, end = append(all, rec{base, units, text}), pos
			}
			l.Flush()
			require.NoError(t, l.WaitSynced(t.Context(), end))
		}
		if life < 2 {
			require.NoError(t, l.Close())
		}
	}
	return l, all
}

// The copy of a log, extended by what was archived and cut at any number, holds exactly the
// units up to that number, and skips numbers as after a crash.
func TestAnExtendedLogHoldsTheUnitsUpToItsNumber(t *testing.T) {
	disk := newDisk(t)
	o := testOptions(disk)
	o.SegmentBytes, o.Archive = 1<<10, true
	l, all := fillArchived(t, &o)
	hold := l.Hold()
	defer func() {
		hold.Release()
		require.NoError(t, l.Close())
	}()
	pieces := archive(t, l)
	require.Greater(t, len(pieces), 4)
	begins := all[70]
	var copies []*vfs.Mem
	for _, at := range []int{70, 85} { // in the middle of the last life
		last := all[at].base + kv.SeqNum(all[at].units) - 1
		files, err := hold.Snapshot(t.Context(), last)
		require.NoError(t, err)
		copies = append(copies, copySnapshot(t, files))
	}
	for i, r := range all {
		if r.base < begins.base || i < 86 {
			continue
		}
		for u := range r.units {
			upTo := r.base + kv.SeqNum(u)
			to := copies[i%2].CrashImage(vfs.KeepAll, nil)
			low, err := extend(t, to, pieces)
			require.NoError(t, err)
			require.NoError(t, Cut(to, testDir, testStore, upTo, low, cutText))
			to = to.CrashImage(vfs.DropAll, nil) // everything is synced
			restored := testOptions(to)
			restored.Fresh = false
			again, recs, recovery, err := openAll(restored)
			require.NoError(t, err, "up to %d", upTo)
			want := append([]rec(nil), all[:i+1]...)
			if u+1 < r.units {
				want[i].units, want[i].payload = u+1, r.payload[:u+1]
			}
			require.Equal(t, want, recs, "up to %d", upTo)
			require.False(t, recovery.Clean)
			require.Greater(t, recovery.NextSeq, all[len(all)-1].base+100)
			require.NoError(t, again.Close())
		}
	}
}

// Frames of another history are refused: those after a copy was opened and written to.
func TestFramesOfAnotherHistoryAreRefused(t *testing.T) {
	disk := newDisk(t)
	o := testOptions(disk)
	o.SegmentBytes, o.Archive = 1<<10, true
	l, all := fillArchived(t, &o)
	hold := l.Hold()
	files, err := hold.Snapshot(t.Context(), all[70].base+kv.SeqNum(all[70].units)-1)
	require.NoError(t, err)
	to := copySnapshot(t, files)
	hold.Release()
	pieces := archive(t, l)
	require.NoError(t, l.Close())

	changed := o
	changed.FS = to
	other, _, _ := mustOpen(t, changed)
	put(t, other, "another history", 1, kv.DurabilitySync)
	hold = other.Hold()
	files, err = hold.Snapshot(t.Context(), other.mu.next-1)
	require.NoError(t, err)
	copied := copySnapshot(t, files)
	hold.Release()
	require.NoError(t, other.Close())
	_, err = extend(t, copied, pieces)
	require.ErrorIs(t, err, kv.ErrInvalidArgument)
}

// Damage of a segment is found before a byte of that frame is passed on.
func TestDamageIsNotArchived(t *testing.T) {
	disk := newDisk(t)
	o := testOptions(disk)
	o.SegmentBytes, o.Archive = 1<<10, true
	l, _ := fillArchived(t, &o)
	defer func() { require.NoError(t, l.Close()) }()
	ranges := l.Durable()
	name := path.Join(testDir, path.Base(segmentName(testDir, ranges[0].Segment)))
	f, err := disk.OpenReadWrite(name)
	require.NoError(t, err)
	var whole bytes.Buffer
	frames, err := CopyFrames(t.Context(), disk, testDir, testStore, ranges[0].Segment, FirstFrame, 0, &whole)
	require.NoError(t, err)
	for off := frames.From; off < frames.To; off += 37 {
		b := make([]byte, 1)
		_, err = f.ReadAt(b, off)
		require.NoError(t, err)
		flip := func() {
			b[0] ^= 0x10
			_, err = f.WriteAt(b, off)
			require.NoError(t, err)
		}
		flip()
		var got bytes.Buffer
		_, err := CopyFrames(t.Context(), disk, testDir, testStore, ranges[0].Segment, FirstFrame, 0, &got)
		require.ErrorIs(t, err, kv.ErrCorrupt, at(off))
		require.True(t, bytes.HasPrefix(whole.Bytes(), got.Bytes()), at(off))
		flip()
	}
	require.NoError(t, f.Close())
	_, err = CopyFrames(t.Context(), disk, testDir, testStore, 99, FirstFrame, 0, &whole)
	require.ErrorIs(t, err, kv.ErrCorrupt)
}

func at(off int64) string { return fmt.Sprintf("offset %d", off) }

// Reclaim deletes only what is archived.
func TestSegmentsStayUntilTheyAreArchived(t *testing.T) {
	disk := newDisk(t)
	o := testOptions(disk)
	o.SegmentBytes, o.Archive = 1<<10, true
	l, all := fillArchived(t, &o)
	defer func() { require.NoError(t, l.Close()) }()
	last := all[len(all)-1]
	before := l.Durable()
	require.Greater(t, len(before), 3)
	reclaim := func() {
		for {
			err := l.Reclaim(last.base + kv.SeqNum(last.units))
			if !errors.Is(err, ErrNoRoomYet) {
				require.NoError(t, err)
				return
			}
			require.NoError(t, l.AwaitRoom(background))
		}
	}
	reclaim()
	require.Equal(t, before, l.Durable()[:len(before)])
	l.Archived(before[1].Segment)
	reclaim()
	require.Equal(t, before[2].Segment, l.Durable()[0].Segment)
}

// Frames that a power cut may take are not durable.
func TestWhatIsNotSyncedIsNotDurable(t *testing.T) {
	o := testOptions(newDisk(t))
	o.idleMark = time.Hour
	l, _, _ := mustOpen(t, o)
	put(t, l, "synced", 1, kv.DurabilitySync)
	before := l.Durable()
	require.Len(t, before, 1)
	put(t, l, "written", 1, kv.DurabilityBuffered)
	require.Equal(t, before, l.Durable())
	require.NoError(t, l.SyncAll(t.Context()))
	require.Greater(t, l.Durable()[0].End, before[0].End)
	require.NoError(t, l.Close())
}
