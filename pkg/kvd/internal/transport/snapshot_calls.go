package transport

import (
	"context"
	"math"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// BeginSnapshot implements backend.Backend. A server that does not read the key leaves that to the
// caller.
func (c *Network) BeginSnapshot(ctx context.Context, lease time.Duration, key []byte) (backend.Snapshot, error) {
	tries := c.attempts(ctx)
	r := new(kvdpb.BeginSnapshotResponse)
	err := c.perform(ctx, &tries, &remote{
		method: methodBeginSnapshot, request: &kvdpb.BeginSnapshotRequest{LeaseMs: leaseMillis(lease), ReadKey: key}, response: r,
	})
	if err != nil {
		return backend.Snapshot{}, err
	}
	if r.Version == 0 { // reads at 0 would be of the newest version
		return backend.Snapshot{}, &backend.Failure{Attempts: 1, Err: backend.ErrInternal, Message: "the server's snapshot has no version"}
	}
	c.requestIDs.observe(r.Version)
	c.learnEpoch(tries.via, r.Epoch)
	s := backend.Snapshot{ID: r.SnapshotId, Version: r.Version, Epoch: r.Epoch, Lease: leaseOf(r.LeaseMs), EndsWithCommit: r.EndsWithCommit}
	if r.Read != nil && len(key) > 0 {
		s.Read = &backend.Answer{Version: r.Version, Found: r.Read.Found}
		if r.Read.Found {
			s.Read.Value = valueOf(r.Read.Item)
		}
	}
	return s, nil
}

// KeepSnapshot implements backend.Backend.
func (c *Network) KeepSnapshot(ctx context.Context, id uint64, lease time.Duration) (time.Duration, error) {
	tries := c.attempts(ctx)
	r := new(kvdpb.KeepSnapshotResponse)
	err := c.perform(ctx, &tries, &remote{
		method: methodKeepSnapshot, request: &kvdpb.KeepSnapshotRequest{SnapshotId: id, LeaseMs: leaseMillis(lease)}, response: r,
	})
	return leaseOf(r.LeaseMs), err
}

const (
	// maxReleases bounds the snapshots that are being released by gRPC in the background.
	maxReleases = 64
	// releaseTimeout bounds the wait of Close for snapshots that are being released.
	releaseTimeout = time.Second
)

// ReleaseSnapshot implements backend.Backend. The call travels with the next one about a snapshot or,
// if there is none, with the next tick of the watchdog. Without frames it is made in the background
// or, if too many are being released, before ReleaseSnapshot returns. If it fails, the snapshot ends
// with its lease.
func (c *Network) ReleaseSnapshot(id uint64) {
	c.releasing.Add(1)
	request := &kvdpb.ReleaseSnapshotRequest{SnapshotId: id}
	if c.releaseInFrame(request) {
		return
	}
	select {
	case c.releases <- struct{}{}:
		go func() {
			defer func() { <-c.releases }()
			c.release(request)
		}()
	default:
		c.release(request)
	}
}

// releaseInFrame adds a call for whose answer no caller waits, if a frame can take it.
func (c *Network) releaseInFrame(request *kvdpb.ReleaseSnapshotRequest) bool {
	message, err := proto.Marshal(request)
	if err != nil || c.options.Unframed {
		return false
	}
	conn := c.pickFor(leasing)
	conn.mu.Lock()
	defer conn.mu.Unlock()
	if conn.mu.current == nil || !conn.mayTakeCallsLocked() {
		return false
	}
	op := frame.Op{Kind: frame.Call, Method: methodReleaseSnapshot.frame, Value: message}
	p := conn.addLocked(leasing, &op, 0)
	p.frame.unawaited++
	p.release()
	return true
}

// releaseLate waits for the answer of an operation that begins a snapshot, in place of its caller, which
// has given up, and releases the snapshot.
func (c *conn) releaseLate(p pendingOp, op frame.Op) {
	c.client.releasing.Go(func() {
		a, f := c.await(context.Background(), &p, &op, false)
		r := new(kvdpb.BeginSnapshotResponse)
		if f == nil && proto.Unmarshal(a.Value.Bytes, r) == nil {
			c.client.ReleaseSnapshot(r.SnapshotId)
		}
	})
}

// finishReleases waits until all snapshots are released, or fails the calls after releaseTimeout.
func (c *Network) finishReleases() {
	for _, conn := range c.conns {
		conn.mu.Lock()
		conn.mu.queues[leasing].seal()
		conn.wakeLocked()
		conn.mu.Unlock()
	}
	late := time.AfterFunc(releaseTimeout, c.end)
	c.releasing.Wait()
	late.Stop()
}

func (c *Network) release(request *kvdpb.ReleaseSnapshotRequest) {
	defer c.releasing.Done()
	ctx, cancel := context.WithTimeout(c.life, releaseTimeout)
	defer cancel()
	conn := c.pick(func(c *conn) int64 { return c.calls.Load() })
	conn.calls.Add(1)
	defer conn.calls.Add(-1)
	if err := conn.grpc.Invoke(ctx, methodReleaseSnapshot.grpc, request, new(kvdpb.ReleaseSnapshotResponse)); err != nil {
		c.options.Logger.Debug("kvd: a snapshot was not given back; its lease ends it", "error", err)
	}
}

// leaseMillis returns a lease as it is in the protocol, rounded up; 0 leaves it to the server.
func leaseMillis(d time.Duration) uint32 { return uint32(min(ttlMillis(d), math.MaxUint32)) }

func leaseOf(millis uint32) time.Duration { return time.Duration(millis) * time.Millisecond }
