package wal

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/histogram"
)

func TestStatsCountWhatWasDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _, _ := mustOpen(t, testOptions(newDisk(t)))
		before := l.Stats()
		for _, units := range []uint32{1, 20, 3} {
			_, _, err := appendTo(l, []byte("payload"), units, synced, &counter{}, nil)
			require.NoError(t, err)
		}
		_, _, err := appendTo(l, []byte("payload"), 100, memory, &counter{}, nil)
		require.NoError(t, err)
		l.Flush()
		synctest.Wait()
		s := l.Stats()
		var records, units, syncUnits histogram.PowerCounts
		records.Record(4)
		units.Record(124)
		syncUnits.Record(24)
		require.Zero(t, before.FrameRecords.Count())
		require.Equal(t, records, s.FrameRecords)
		require.Equal(t, units, s.FrameUnits)
		require.Equal(t, syncUnits, s.SyncUnits)
		require.EqualValues(t, 1, s.FrameBytes.Count())
		require.EqualValues(t, 4, s.Records)
		require.EqualValues(t, 1, s.Frames)
		require.Equal(t, s.Bytes, s.FrameBytes.Sum)
		require.Equal(t, before.Syncs+1, s.Syncs)
		require.Equal(t, s.Syncs, s.SyncMicros.Count())
		require.NoError(t, l.Close())
	})
}
