package grpcapi

import (
	"context"
	"math"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// BeginSnapshot implements the method of TxnService.
func (a *api) BeginSnapshot(ctx context.Context, req *kvdpb.BeginSnapshotRequest) (*kvdpb.BeginSnapshotResponse, error) {
	snapshot, err := a.server.BeginSnapshot(ctx, service.ConnOf(ctx), lease(req.LeaseMs))
	if err != nil {
		return nil, err
	}
	return &kvdpb.BeginSnapshotResponse{
		SnapshotId: snapshot.ID, Version: uint64(snapshot.Version), LeaseMs: leaseMillis(snapshot.Lease), Epoch: snapshot.Epoch,
	}, nil
}

// KeepSnapshot implements the method of TxnService.
func (a *api) KeepSnapshot(ctx context.Context, req *kvdpb.KeepSnapshotRequest) (*kvdpb.KeepSnapshotResponse, error) {
	granted, err := a.server.KeepSnapshot(service.ConnOf(ctx), req.SnapshotId, lease(req.LeaseMs))
	if err != nil {
		return nil, err
	}
	return &kvdpb.KeepSnapshotResponse{LeaseMs: leaseMillis(granted)}, nil
}

// ReleaseSnapshot implements the method of TxnService.
func (a *api) ReleaseSnapshot(_ context.Context, req *kvdpb.ReleaseSnapshotRequest) (*kvdpb.ReleaseSnapshotResponse, error) {
	a.server.ReleaseSnapshot(req.SnapshotId)
	return new(kvdpb.ReleaseSnapshotResponse), nil
}

func lease(millis uint32) time.Duration { return time.Duration(millis) * time.Millisecond }

// leaseMillis rounds down: a client must not count on more than it has.
func leaseMillis(d time.Duration) uint32 { return uint32(min(d.Milliseconds(), math.MaxUint32)) }

// Commit implements the method of TxnService.
func (a *api) Commit(ctx context.Context, req *kvdpb.CommitRequest) (*kvdpb.CommitResponse, error) {
	mutations, err := a.mutationsOf(req.Mutations)
	if err != nil {
		return nil, err
	}
	t := &service.Transaction{ReadVersion: req.ReadVersion, Epoch: req.Epoch, Keys: req.ReadKeys, Expiring: req.ExpiringKeys, Mutations: mutations}
	for _, r := range req.ReadRanges {
		t.Ranges = append(t.Ranges, rangeOf(r))
	}
	w, err := a.server.Commit(ctx, &callOf(ctx).work, t, optionsOf(req.Options))
	if err != nil {
		return nil, err
	}
	return &kvdpb.CommitResponse{Meta: metaOf(w)}, nil
}

// Execute implements the method of TxnService.
func (a *api) Execute(ctx context.Context, req *kvdpb.ExecuteRequest) (*kvdpb.ExecuteResponse, error) {
	e := new(service.Execution)
	for _, g := range req.Guards {
		e.Guards = append(e.Guards, kv.Guard{Key: g.GetKey(), Condition: conditionOf(g.GetPrecondition())})
	}
	var err error
	if e.Then, err = a.mutationsOf(req.ThenMutations); err != nil {
		return nil, err
	}
	if e.Else, err = a.mutationsOf(req.ElseMutations); err != nil {
		return nil, err
	}
	succeeded, w, err := a.server.Execute(ctx, &callOf(ctx).work, e, optionsOf(req.Options))
	if err != nil {
		return nil, err
	}
	return &kvdpb.ExecuteResponse{Succeeded: succeeded, Meta: metaOf(w)}, nil
}
