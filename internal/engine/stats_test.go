package engine

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/histogram"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// However operations meet in micro-batches, groups and syncs, each is counted once.
func TestStatsCountEveryOperationOnce(t *testing.T) {
	const callers, each = 8, 50
	e := open(t, unhurried(vfs.NewMem()))
	var all sync.WaitGroup
	for c := range callers {
		all.Go(func() {
			for i := range each {
				put(t, e, fmt.Sprint(c, i), "v", synced)
				reads := []*kv.Lookup{{Key: []byte("a")}, {Key: []byte("b")}, {Key: []byte("c")}}
				assert.NoError(t, e.Lookup(t.Context(), reads))
				_, ok := get(t, e, fmt.Sprint(c, i))
				assert.True(t, ok)
			}
		})
	}
	all.Wait()
	s := e.Stats()
	var writes, reads, waits histogram.PowerCounts
	for i := range s.Partitions {
		p := &s.Partitions[i]
		writes.Add(&p.Writes)
		reads.Add(&p.Reads)
		waits.Add(&p.WriteWaits)
		waits.Add(&p.ReadWaits)
	}
	require.EqualValues(t, callers*each, writes.Sum)
	require.EqualValues(t, callers*each*4, reads.Sum)
	require.EqualValues(t, callers*each, s.Log.FrameUnits.Sum)
	require.EqualValues(t, callers*each, s.Log.SyncUnits.Sum)
	require.Equal(t, writes.Count(), s.Log.Records, "a record for each micro-batch")
	require.Positive(t, waits.Count())
}
