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
		last = putUntilRotated(t, l, 100<<10)
	}
	require.NoError(t, l.WaitSynced(t.Context(), l.Written()))
	awaitQuiet(l)
	require.NoError(t, disk.Remove(segmentName(testDir, l.mu.live[0].num)))
	reclaimAll(t, l, last.base-1, func() {})
	require.NoError(t, l.Close())
	requireLast(t, o, last)
}
