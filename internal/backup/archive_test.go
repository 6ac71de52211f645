package backup

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// Of several processes that begin the first backup in one directory, each gets the lock, or
// the error that the directory is in use, and the directory is one of backups.
func TestTwoFirstBackupsAtOnce(t *testing.T) {
	for range 20 {
		disk := newDisk(t)
		var begun atomic.Int64
		var all sync.WaitGroup
		start := make(chan struct{})
		for range 6 {
			all.Go(func() {
				<-start
				d, err := LockDirectory(disk, "new/backups", true)
				if err == nil {
					begun.Add(1)
					_, err = d.Create(t.Context(), small(), noon, Options{})
					err = errors.Join(err, d.Close())
				}
				if err != nil && !(errors.Is(err, ErrBusy) && errors.Is(err, vfs.ErrLocked)) {
					t.Error(err)
				}
			})
		}
		close(start)
		all.Wait()
		d, err := OpenDirectory(disk, "new/backups")
		require.NoError(t, err)
		ids, err := d.IDs()
		require.NoError(t, err)
		require.NotEmpty(t, ids)
		require.Len(t, ids, int(begun.Load()))
	}
}

func TestRunsEndAtGaps(t *testing.T) {
	piece := func(segment uint64, from, to int64, ends bool, after, version kv.SeqNum) *Piece {
		return &Piece{Segment: segment, Previous: segment - 1, From: from, To: to, Ends: ends, After: after, Version: version, Time: momentOf(noon.Add(time.Duration(version)))}
	}
	late := piece(5, 64, 100, false, 30, 31)
	late.Gap = "the disk was full"
	runs := Runs([]*Piece{
		piece(1, 64, 164, false, 0, 5), piece(1, 164, 264, true, 5, 9), piece(2, 64, 164, false, 9, 10), late,
		piece(5, 100, 200, false, 31, 40),
	})
	require.Len(t, runs, 2)
	require.Equal(t, Run{Version: 10, Since: momentOf(noon).Time, Until: momentOf(noon).Time, Pieces: 3, Bytes: 300}, runs[0])
	require.Equal(t, Run{After: 30, Version: 40, Since: momentOf(noon).Time, Until: momentOf(noon).Time, Pieces: 2, Bytes: 136, Gap: "the disk was full"}, runs[1])
	require.Empty(t, Runs(nil))
}

// Version 0, at which nothing was written yet, is an end like any other, and not that of the archive.
func TestARestoreEndsAtVersionZero(t *testing.T) {
	pieces := []*Piece{{Segment: 1, From: 64, To: 164, Version: 5, Time: momentOf(noon)}}
	a := &Archive{dir: "archive"}
	m := &Manifest{ID: at(0), Files: []ManifestFile{{Name: "wal/000001.wal"}}}
	r, err := a.Plan(pieces, m, UpTo(0))
	require.NoError(t, err)
	require.Zero(t, r.Version)
	require.Zero(t, r.Bytes())
	r, err = a.Plan(pieces, m, End{})
	require.NoError(t, err)
	require.Equal(t, kv.SeqNum(5), r.Version)
	m.Version = 3
	_, err = a.Plan(pieces, m, UpTo(0))
	require.ErrorIs(t, err, kv.ErrInvalidArgument)
	require.ErrorContains(t, err, "version 0 is older")
}
