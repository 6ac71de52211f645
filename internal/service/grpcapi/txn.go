package grpcapi

import (
	"context"

	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/messages"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// BeginSnapshot implements the method of TxnService.
func (a *api) BeginSnapshot(ctx context.Context, req *kvdpb.BeginSnapshotRequest) (*kvdpb.BeginSnapshotResponse, error) {
	return messages.BeginSnapshot(ctx, a.server, service.ConnOf(ctx), &callOf(ctx).work, req)
}

// KeepSnapshot implements the method of TxnService.
func (a *api) KeepSnapshot(ctx context.Context, req *kvdpb.KeepSnapshotRequest) (*kvdpb.KeepSnapshotResponse, error) {
	return messages.KeepSnapshot(a.server, service.ConnOf(ctx), req)
}

// ReleaseSnapshot implements the method of TxnService.
func (a *api) ReleaseSnapshot(_ context.Context, req *kvdpb.ReleaseSnapshotRequest) (*kvdpb.ReleaseSnapshotResponse, error) {
	return messages.ReleaseSnapshot(a.server, req), nil
}

// Commit implements the method of TxnService.
func (a *api) Commit(ctx context.Context, req *kvdpb.CommitRequest) (*kvdpb.CommitResponse, error) {
	return messages.Commit(ctx, a.server, &callOf(ctx).work, req)
}

// Execute implements the method of TxnService.
func (a *api) Execute(ctx context.Context, req *kvdpb.ExecuteRequest) (*kvdpb.ExecuteResponse, error) {
	return messages.Execute(ctx, a.server, &callOf(ctx).work, req)
}
