package wal

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A file system may remove a file and report an error, as one over a network does if the answer is
// lost. Then the segment is gone, and those after it are reclaimed.
func TestASegmentThatIsGoneIsReclaimed(t *testing.T) {
	disk := newDisk(t)
	o := testOptions(disk)
	o.SegmentBytes = 1 << 20
	l, _, _ := mustOpen(t, o)
	var last rec
	for range 4 {
		for active := l.mu.active.header.num; l.mu.active.header.num == active; { // the log has no other user
			last = put(t, l, string(make([]byte, 100<<10)), 1, synced)
		}
	}
	require.NoError(t, l.WaitSynced(t.Context(), l.Written()))
	awaitQuiet(l)
	require.NoError(t, disk.Remove(segmentName(testDir, l.mu.live[0].num)))
	for l.Stats().Segments > 1 { // until the end of the old one is synced
		require.NoError(t, l.WaitSynced(t.Context(), l.Written()))
		require.NoError(t, l.Reclaim(last.base-1))
	}
	require.NoError(t, l.Close())
	requireLast(t, o, last)
}
