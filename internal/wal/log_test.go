package wal

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
)

func TestRecordsComeBackAfterClose(t *testing.T) {
	o := testOptions(newDisk(t))
	var want []rec
	for round := range 5 {
		l, got, r := mustOpen(t, o)
		require.Equal(t, want, got)
		require.True(t, r.Clean)
		require.Zero(t, r.DroppedBytes)
		for i := range 100 {
			want = append(want, put(t, l, payload(i), uint32(i%3+1), kv.Durability(i%3+1)))
		}
		require.NoError(t, l.Close())
		require.NoError(t, l.Close())
		o.Fresh = false
		_ = round
	}
	require.Equal(t, kv.SeqNum(1), want[0].base)
	for i := 1; i < len(want); i++ {
		require.Equal(t, want[i-1].base+kv.SeqNum(want[i-1].units), want[i].base, "no gap after an orderly close")
	}
}
