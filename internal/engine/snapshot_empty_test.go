package engine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// A store to which nothing was ever written gives snapshots too if it is opened read-only, or is on a
// file system that is. They hold nothing.
func TestASnapshotOfAnEmptyStoreThatIsOpenedToRead(t *testing.T) {
	disk := vfs.NewMem()
	e, err := Open("data", small(disk))
	require.NoError(t, err)
	require.NoError(t, e.Close())
	toRead := small(disk)
	toRead.ReadOnly = true
	for name, o := range map[string]Options{"opened read-only": toRead, "read-only file system": small(unwritable(disk))} {
		t.Run(name, func(t *testing.T) {
			e := open(t, o)
			s := begin(t, e, time.Minute)
			require.NotZero(t, s.Version, "which readers would take for the newest")
			require.Equal(t, s.Version, begin(t, e, time.Minute).Version)
			_, err := getAt(e, s.Version, "a")
			require.ErrorIs(t, err, kv.ErrNotFound)
			scan, err := e.Scan(t.Context(), kv.Range{}, kv.ScanOptions{At: s.Version})
			require.NoError(t, err)
			require.False(t, scan.Next())
			require.NoError(t, scan.Close())
			require.Empty(t, contents(t, e))
		})
	}
}
