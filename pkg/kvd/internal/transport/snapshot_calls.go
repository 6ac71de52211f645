package transport

import (
	"context"
	"math"
	"time"

	"google.golang.org/grpc"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// BeginSnapshot implements backend.Backend.
func (c *Network) BeginSnapshot(ctx context.Context, lease time.Duration) (backend.Snapshot, error) {
	request := &kvdpb.BeginSnapshotRequest{LeaseMs: leaseMillis(lease)}
	var r *kvdpb.BeginSnapshotResponse
	err := c.unary(ctx, callTimer{}, func(ctx context.Context, conn *conn, opts ...grpc.CallOption) (err error) {
		r, err = conn.txn.BeginSnapshot(ctx, request, opts...)
		return err
	})
	if err != nil {
		return backend.Snapshot{}, err
	}
	if r.Version == 0 { // reads at 0 would be of the newest version
		return backend.Snapshot{}, &backend.Failure{Attempts: 1, Err: backend.ErrInternal, Message: "the server's snapshot has no version"}
	}
	c.requestIDs.observe(r.Version)
	return backend.Snapshot{ID: r.SnapshotId, Version: r.Version, Epoch: r.Epoch, Lease: leaseOf(r.LeaseMs)}, nil
}

// KeepSnapshot implements backend.Backend.
func (c *Network) KeepSnapshot(ctx context.Context, id uint64, lease time.Duration) (time.Duration, error) {
	request := &kvdpb.KeepSnapshotRequest{SnapshotId: id, LeaseMs: leaseMillis(lease)}
	var r *kvdpb.KeepSnapshotResponse
	err := c.unary(ctx, callTimer{}, func(ctx context.Context, conn *conn, opts ...grpc.CallOption) (err error) {
		r, err = conn.txn.KeepSnapshot(ctx, request, opts...)
		return err
	})
	return leaseOf(r.GetLeaseMs()), err
}

const (
	// maxReleases bounds the snapshots that are being released in the background.
	maxReleases = 64
	// releaseTimeout bounds the wait of Close for them.
	releaseTimeout = time.Second
)

// ReleaseSnapshot implements backend.Backend. It releases the snapshot in the background or, if too
// many are being released, before it returns. If that fails, the snapshot ends with its lease.
func (c *Network) ReleaseSnapshot(id uint64) {
	c.releasing.Add(1)
	select {
	case c.releases <- struct{}{}:
		go func() {
			defer func() { <-c.releases }()
			c.release(id)
		}()
	default:
		c.release(id)
	}
}

func (c *Network) release(id uint64) {
	defer c.releasing.Done()
	ctx, cancel := context.WithTimeout(c.life, releaseTimeout)
	defer cancel()
	conn := c.pick(func(c *conn) int64 { return c.calls.Load() })
	conn.calls.Add(1)
	defer conn.calls.Add(-1)
	if _, err := conn.txn.ReleaseSnapshot(ctx, &kvdpb.ReleaseSnapshotRequest{SnapshotId: id}); err != nil {
		c.options.Logger.Debug("kvd: a snapshot was not given back; its lease ends it", "error", err)
	}
}

// leaseMillis returns a lease as it is in the protocol, rounded up; 0 leaves it to the server.
func leaseMillis(d time.Duration) uint32 { return uint32(min(ttlMillis(d), math.MaxUint32)) }

func leaseOf(millis uint32) time.Duration { return time.Duration(millis) * time.Millisecond }
