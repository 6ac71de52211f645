package engine

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
)

// L2 while snapshots begin at the same time: no lease has a time from before it began, at which keys are
// present that have expired since, and all leases on a version have one time. Leases that begin cannot cross,
// since each pins its version under the lock of the leases: see lastLease.
func TestNoSnapshotHasATimeFromBeforeItBegan(t *testing.T) {
	var s *snapshots
	var begins, shares bool
	var clock, pins atomic.Uint64
	numbers := newSequencer(func() uint64 {
		if begins { // this is the moment of a pin
			pins.Add(1)
			if !assert.False(t, s.mu.TryLock(), "another lease can begin, on a newer version, before this one is noted") {
				s.mu.Unlock()
			}
		}
		return clock.Add(1)
	}, nil, nil)
	numbers.start(1)
	s = newSnapshots(&Options{maxSnapshots: 1 << 20, maxLease: time.Hour, maxSnapshotAge: time.Hour}, numbers)
	beginLease := func() (lease kv.Snapshot, ok bool) {
		begins = true
		lease, ok, err := s.begin(0, func() bool { return shares })
		begins = false
		require.NoError(t, err)
		return lease, ok
	}
	for version := kv.SeqNum(2); version < 5; version++ {
		before := clock.Load()
		lease, ok := beginLease()
		require.True(t, ok)
		first, err := s.find(lease.Version)
		require.NoError(t, err)
		require.Greater(t, first, before)
		if version%2 == 0 { // whether or not the version has a lease still
			s.end(lease.ID)
		}
		_, ok = beginLease()
		require.False(t, ok, "the time has advanced, and the version has one")
		numbers.Applied(version, 1)
	}
	kept, ok := beginLease()
	require.True(t, ok)
	first, err := s.find(kept.Version)
	require.NoError(t, err)
	shares = true
	shared, ok := beginLease()
	require.True(t, ok)
	require.Equal(t, kept.Version, shared.Version)
	s.end(kept.ID)
	now, err := s.find(shared.Version)
	require.NoError(t, err)
	require.Equal(t, first, now)
	require.EqualValues(t, 8, pins.Load())
}
