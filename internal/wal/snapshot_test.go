package wal

import (
	"errors"
	"io"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// copySnapshot writes the files of a snapshot to a new disk.
func copySnapshot(t testing.TB, files []SnapshotFile) *vfs.Mem {
	t.Helper()
	to := newDisk(t)
	require.NoError(t, to.MkdirAll(testDir))
	for i := range files {
		f := &files[i]
		require.NoError(t, f.Verify(t.Context()), f.Name)
		r, err := f.Open()
		require.NoError(t, err)
		b, err := io.ReadAll(io.NewSectionReader(r, 0, f.Size))
		require.NoError(t, errors.Join(err, r.Close()))
		require.Len(t, b, int(f.Size))
		out, err := to.Create(path.Join(testDir, f.Name))
		require.NoError(t, err)
		_, err = out.WriteAt(b, 0)
		require.NoError(t, errors.Join(err, out.Sync(), out.Close()))
	}
	require.NoError(t, to.SyncDir(testDir))
	return to
}

// A snapshot is a log of its own that holds the records up to its number, wherever that is
// in a frame or a segment, also while the log continues, and once it has been opened again.
func TestASnapshotHoldsTheLogUpToItsNumber(t *testing.T) {
	disk := newDisk(t)
	o := testOptions(disk)
	o.SegmentBytes = 1 << 10
	var all []rec
	for life := range 3 {
		l, found, _ := mustOpen(t, o)
		o.Fresh = false
		require.Equal(t, all, found)
		hold := l.Hold()
		for i := range 12 {
			var end Pos
			for j := range 4 { // of one frame
				text := payload(100*i+j) + strings.Repeat(".", 30*j)
				base, pos, err := appendTo(l, []byte(text), uint32(1+j%2), kv.DurabilitySync, silentWaker{}, nil)
				require.NoError(t, err)
				all, end = append(all, rec{base, uint32(1 + j%2), text}), pos
			}
			l.Flush()
			require.NoError(t, l.WaitSynced(t.Context(), end))
		}
		for i, r := range all {
			last := r.base + kv.SeqNum(r.units) - 1
			if l.mu.floor > last+1 {
				continue // a store asks for nothing older than its opening
			}
			files, err := hold.Snapshot(t.Context(), last)
			require.NoError(t, err)
			to := copySnapshot(t, files)
			restored := testOptions(to)
			restored.Fresh = false
			again, recs, recovery := mustOpen(t, restored)
			require.Equal(t, all[:i+1], recs, "life %d, up to %d", life, last)
			require.Zero(t, recovery.DroppedBytes)
			require.Greater(t, recovery.NextSeq, all[len(all)-1].base+1, "no number is given out twice")
			require.NoError(t, again.Close())
		}
		files, err := hold.Snapshot(t.Context(), l.mu.floor-1)
		require.NoError(t, err, "directly after the opening")
		again, recs, _ := mustOpen(t, Options{FS: copySnapshot(t, files), Dir: testDir, StoreID: testStore})
		require.Len(t, recs, 48*life)
		require.NoError(t, again.Close())

		if r := all[len(all)-1]; r.units == 2 {
			_, err := hold.Snapshot(t.Context(), r.base)
			require.ErrorContains(t, err, "middle of a record")
		}
		hold.Release()
		hold.Release()
		if life == 0 {
			require.NoError(t, l.Close())
			continue
		}
		l.Fail(errors.New("killed"))
		require.ErrorContains(t, l.Close(), "killed")
	}
}

// Recovery of a snapshot that has lost its end, or has a byte changed, fails or finds every
// record.
func TestADamagedSnapshotIsNeverAShorterLog(t *testing.T) {
	l, _, _ := mustOpen(t, testOptions(newDisk(t)))
	hold := l.Hold()
	var want []rec
	for i := range 5 {
		want = append(want, put(t, l, payload(i), 1, kv.DurabilitySync))
	}
	files, err := hold.Snapshot(t.Context(), want[4].base)
	require.NoError(t, err)
	require.Len(t, files, 1)
	name := path.Join(testDir, files[0].Name)
	check := func(what string, at int64, damage func(vfs.File) error) {
		to := copySnapshot(t, files)
		f, err := to.OpenReadWrite(name)
		require.NoError(t, err)
		require.NoError(t, errors.Join(damage(f), f.Sync(), f.Close()))
		again, recs, _, err := openAll(Options{FS: to, Dir: testDir, StoreID: testStore})
		if err != nil {
			require.True(t, errors.Is(err, kv.ErrCorrupt) || errors.Is(err, kv.ErrUnsupportedVersion), "%s %d: %v", what, at, err)
			return
		}
		require.Equal(t, want, recs, "%s %d", what, at)
		require.NoError(t, again.Close())
	}
	for at := range files[0].Size {
		check("cut at", at, func(f vfs.File) error { return f.Truncate(at) })
		check("flip at", at, func(f vfs.File) error {
			var b [1]byte
			_, err := f.ReadAt(b[:], at)
			b[0] ^= 0x10
			_, err2 := f.WriteAt(b[:], at)
			return errors.Join(err, err2)
		})
	}
	hold.Release()
	require.NoError(t, l.Close())
}

func TestAHoldKeepsSegments(t *testing.T) {
	disk := newDisk(t)
	o := testOptions(disk)
	o.SegmentBytes = 512
	l, _, _ := mustOpen(t, o)
	hold, other := l.Hold(), l.Hold()
	var last rec
	for i := range 40 {
		last = put(t, l, payload(i), 1, kv.DurabilitySync)
	}
	segments := len(contents(t, disk))
	require.Greater(t, segments, 3)
	require.NoError(t, l.Reclaim(last.base))
	hold.Release()
	require.NoError(t, l.Reclaim(last.base))
	require.GreaterOrEqual(t, len(contents(t, disk)), segments, "the other hold keeps them")
	other.Release()
	require.NoError(t, l.Reclaim(last.base))
	require.Less(t, len(contents(t, disk)), segments)
	_, err := other.Snapshot(t.Context(), last.base)
	require.ErrorIs(t, err, kv.ErrClosed)
	sealed, active := other.Segments()
	require.Empty(t, sealed)
	require.Nil(t, active)
	require.NoError(t, l.Close())
}
