package messages

import (
	"context"
	"math"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// BeginSnapshot performs the method of TxnService. It reads the key of the request only if memory
// has the answer, so it waits no longer than without one.
func BeginSnapshot(ctx context.Context, s *service.Server, conn *service.Conn, c *service.Call, req *kvdpb.BeginSnapshotRequest) (*kvdpb.BeginSnapshotResponse, error) {
	snapshot, err := s.BeginSnapshot(ctx, conn, c.Identity, lease(req.LeaseMs))
	if err != nil {
		return nil, err
	}
	answer := &kvdpb.BeginSnapshotResponse{
		SnapshotId: snapshot.ID, Version: uint64(snapshot.Version), LeaseMs: leaseMillis(snapshot.Lease), Epoch: snapshot.Epoch,
		EndsWithCommit: true,
	}
	if l := (kv.Lookup{Key: req.ReadKey}); len(l.Key) > 0 && s.LookupCachedAt(c, &l, snapshot.Version) {
		answer.Read = &kvdpb.BatchGetResponse_Lookup{Found: l.Found}
		if l.Found {
			answer.Read.Item = ItemOf(s, &l)
		}
	}
	return answer, nil
}

// KeepSnapshot performs the method of TxnService.
func KeepSnapshot(s *service.Server, conn *service.Conn, req *kvdpb.KeepSnapshotRequest) (*kvdpb.KeepSnapshotResponse, error) {
	granted, err := s.KeepSnapshot(conn, req.SnapshotId, lease(req.LeaseMs))
	if err != nil {
		return nil, err
	}
	return &kvdpb.KeepSnapshotResponse{LeaseMs: leaseMillis(granted)}, nil
}

// ReleaseSnapshot performs the method of TxnService.
func ReleaseSnapshot(s *service.Server, req *kvdpb.ReleaseSnapshotRequest) *kvdpb.ReleaseSnapshotResponse {
	s.ReleaseSnapshot(req.SnapshotId)
	return new(kvdpb.ReleaseSnapshotResponse)
}

func lease(millis uint32) time.Duration { return time.Duration(millis) * time.Millisecond }

// leaseMillis rounds down: a client must not count on more than it has.
func leaseMillis(d time.Duration) uint32 { return uint32(min(d.Milliseconds(), math.MaxUint32)) }

// Apply performs mutations as one batch.
func Apply(ctx context.Context, s *service.Server, c *service.Call, mutations []*kvdpb.Mutation, options *kvdpb.RequestOptions) (*kvdpb.ResponseMeta, error) {
	all, err := MutationsOf(s, mutations)
	if err != nil {
		return nil, err
	}
	w, err := s.Apply(ctx, c, all, OptionsOf(options))
	return MetaOf(w), err
}

// Commit performs the method of TxnService. After a failure the client may commit again, for
// which it needs its snapshot.
func Commit(ctx context.Context, s *service.Server, c *service.Call, req *kvdpb.CommitRequest) (*kvdpb.CommitResponse, error) {
	mutations, err := MutationsOf(s, req.Mutations)
	if err != nil {
		return nil, err
	}
	t := &service.Transaction{
		ReadVersion: req.ReadVersion, Epoch: req.Epoch, Elsewhere: c.PeerEpoch != 0 && c.PeerEpoch == req.Epoch,
		Keys: req.ReadKeys, Expiring: req.ExpiringKeys, Mutations: mutations,
	}
	for _, r := range req.ReadRanges {
		t.Ranges = append(t.Ranges, RangeOf(r))
	}
	w, err := s.Commit(ctx, c, t, OptionsOf(req.Options))
	if err != nil {
		return nil, err
	}
	if req.SnapshotId != 0 {
		s.ReleaseSnapshot(req.SnapshotId)
	}
	return &kvdpb.CommitResponse{Meta: MetaOf(w)}, nil
}

// Execute performs the method of TxnService.
func Execute(ctx context.Context, s *service.Server, c *service.Call, req *kvdpb.ExecuteRequest) (*kvdpb.ExecuteResponse, error) {
	e := new(service.Execution)
	for _, g := range req.Guards {
		e.Guards = append(e.Guards, kv.Guard{Key: g.GetKey(), Condition: ConditionOf(g.GetPrecondition())})
	}
	var err error
	if e.Then, err = MutationsOf(s, req.ThenMutations); err != nil {
		return nil, err
	}
	if e.Else, err = MutationsOf(s, req.ElseMutations); err != nil {
		return nil, err
	}
	succeeded, w, err := s.Execute(ctx, c, e, OptionsOf(req.Options))
	if err != nil {
		return nil, err
	}
	return &kvdpb.ExecuteResponse{Succeeded: succeeded, Meta: MetaOf(w)}, nil
}
