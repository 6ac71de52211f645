package grpcapi

import (
	"context"

	"github.com/kvd-db/kvd/internal/service/messages"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// Put implements the method of KVService.
func (a *api) Put(ctx context.Context, req *kvdpb.PutRequest) (*kvdpb.PutResponse, error) {
	return messages.Put(ctx, a.server, &callOf(ctx).work, req)
}

// Delete implements the method of KVService.
func (a *api) Delete(ctx context.Context, req *kvdpb.DeleteRequest) (*kvdpb.DeleteResponse, error) {
	return messages.Delete(ctx, a.server, &callOf(ctx).work, req)
}

// DeleteRange implements the method of KVService.
func (a *api) DeleteRange(ctx context.Context, req *kvdpb.DeleteRangeRequest) (*kvdpb.DeleteRangeResponse, error) {
	return messages.DeleteRange(ctx, a.server, &callOf(ctx).work, req)
}

// Write implements the method of KVService.
func (a *api) Write(ctx context.Context, req *kvdpb.WriteRequest) (*kvdpb.WriteResponse, error) {
	return messages.Write(ctx, a.server, &callOf(ctx).work, callOf(ctx).method, req)
}
