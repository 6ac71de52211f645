package service

import (
	"context"
	"fmt"
	"time"

	"github.com/kvd-db/kvd/internal/auth"
	"github.com/kvd-db/kvd/internal/kv"
)

// BeginSnapshot pins a version for a connection, within its share of all snapshots and the
// quota of its client.
func (s *Server) BeginSnapshot(ctx context.Context, conn *Conn, identity *auth.Identity, lease time.Duration) (kv.Snapshot, error) {
	usage := identity.Usage()
	if over := s.leases.hold(usage); over != nil {
		return kv.Snapshot{}, s.overQuota(usage, over, 1)
	}
	snapshot, err := s.beginSnapshot(ctx, conn, lease)
	if err != nil {
		if usage != nil {
			usage.Release(auth.Snapshots)
		}
		return kv.Snapshot{}, err
	}
	s.leases.begun(conn, usage, snapshot.ID, snapshot.Lease)
	return snapshot, nil
}

func (s *Server) beginSnapshot(ctx context.Context, conn *Conn, lease time.Duration) (kv.Snapshot, error) {
	if !s.leases.enter(conn) {
		s.counters.shed(shedBySnapshots)
		return kv.Snapshot{}, tooManySnapshots
	}
	snapshot, err := s.store.BeginSnapshot(ctx, lease)
	if err == nil && ctx.Err() != nil { // its caller has left
		s.store.ReleaseSnapshot(snapshot.ID)
		err = ctx.Err()
	}
	if err != nil {
		s.leases.shares.leave(conn)
	}
	return snapshot, err
}

// KeepSnapshot makes the lease of a snapshot last that long from now, and returns what was
// granted. From now on it counts as the connection's.
func (s *Server) KeepSnapshot(conn *Conn, id uint64, lease time.Duration) (granted time.Duration, err error) {
	if !s.leases.mayKeep(id) {
		return 0, fmt.Errorf("%w: others need it", kv.ErrVersionGone)
	}
	granted, err = s.store.KeepSnapshot(id, lease)
	if err != nil {
		return 0, err
	}
	s.leases.kept(conn, id, granted)
	return granted, nil
}

// ReleaseSnapshot ends a snapshot, unless it has ended.
func (s *Server) ReleaseSnapshot(id uint64) {
	s.store.ReleaseSnapshot(id)
	s.leases.ended(id)
}
