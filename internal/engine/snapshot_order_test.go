package engine

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/kvd-db/kvd/internal/kv"
)

// L2 while snapshots begin at the same time as writes become visible: no lease has a time from before
// it began, at which keys are present that have expired since, and all leases on a version have one time.
func TestNoSnapshotHasATimeFromBeforeItBegan(t *testing.T) {
	var clock, last atomic.Uint64
	numbers := newSequencer(func() uint64 { return clock.Add(1) }, nil, nil)
	numbers.start(kv.SeqNum(last.Add(1)))
	s := newSnapshots(&Options{maxSnapshots: 1 << 20, maxLease: time.Hour, maxSnapshotAge: time.Hour}, numbers)
	var times sync.Map // by version
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for i := range 5000 {
				before := clock.Load()
				lease, ok, err := s.begin(0, func() bool { return false })
				if !assert.NoError(t, err) {
					return
				}
				if !ok {
					numbers.Applied(kv.SeqNum(last.Add(1)), 1)
					continue
				}
				now, err := s.find(lease.Version)
				first, _ := times.LoadOrStore(lease.Version, now)
				if !assert.NoError(t, err) || !assert.Greater(t, now, before) || !assert.Equal(t, first, now) {
					return
				}
				if i%2 == 0 {
					s.end(lease.ID)
				}
			}
		})
	}
	callers.Wait()
}
