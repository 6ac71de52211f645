package servicetest

import (
	"context"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
)

const (
	// MaxLease is the longest lease that a Store grants, and the one it grants if the
	// client asks for none.
	MaxLease = time.Minute
	// MaxSnapshots is how many there may be at once.
	MaxSnapshots = 100
	// Epoch is that of every Store: none is opened again.
	Epoch = 0xe70c
)

// Epoch implements server.Store.
func (s *Store) Epoch() uint64 { return Epoch }

// snapshot is a view with the time at which its lease ends.
type snapshot struct {
	view
	ends uint64
}

// SnapshotCount returns how many leases are running.
func (s *Store) SnapshotCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLeasesLocked()
	return len(s.mu.snapshots)
}

// BeginSnapshot implements server.Store.
func (s *Store) BeginSnapshot(ctx context.Context, lease time.Duration) (kv.Snapshot, error) {
	if err := ctx.Err(); err != nil {
		return kv.Snapshot{}, err
	}
	if s.OnSnapshot != nil {
		if err := s.OnSnapshot(ctx); err != nil {
			return kv.Snapshot{}, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLeasesLocked()
	if len(s.mu.snapshots) == MaxSnapshots {
		return kv.Snapshot{}, &kv.OverloadError{Reason: "snapshots", RetryAfter: MaxLease}
	}
	for _, other := range s.mu.snapshots {
		if other.at == s.mu.version && other.now != s.mu.now {
			s.mu.version++ // a version is read as of one time
			break
		}
	}
	s.mu.lastID++
	lease = granted(lease)
	s.mu.snapshots[s.mu.lastID] = snapshot{s.newestLocked(), s.mu.now + uint64(lease.Milliseconds())}
	return kv.Snapshot{ID: s.mu.lastID, Version: s.mu.version, Lease: lease, Epoch: Epoch}, nil
}

// KeepSnapshot implements server.Store.
func (s *Store) KeepSnapshot(id uint64, lease time.Duration) (time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endLeasesLocked()
	kept, alive := s.mu.snapshots[id]
	if !alive {
		return 0, kv.ErrVersionGone
	}
	lease = granted(lease)
	kept.ends = s.mu.now + uint64(lease.Milliseconds())
	s.mu.snapshots[id] = kept
	return lease, nil
}

// ReleaseSnapshot implements server.Store.
func (s *Store) ReleaseSnapshot(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.mu.snapshots, id)
}

func granted(lease time.Duration) time.Duration {
	if lease == 0 {
		return MaxLease
	}
	return min(lease, MaxLease)
}

// viewLocked returns what a read at a version sees.
func (s *Store) viewLocked(at kv.SeqNum) (view, error) {
	if at == 0 {
		return s.newestLocked(), nil
	}
	s.endLeasesLocked()
	for _, alive := range s.mu.snapshots {
		if alive.at == at {
			return alive.view, nil
		}
	}
	return view{}, kv.ErrVersionGone
}

func (s *Store) endLeasesLocked() {
	for id, snapshot := range s.mu.snapshots {
		if snapshot.ends <= s.mu.now {
			delete(s.mu.snapshots, id)
		}
	}
}
