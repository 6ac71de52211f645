package transport

import (
	"context"

	"google.golang.org/grpc"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// Apply implements backend.Backend.
func (c *Network) Apply(ctx context.Context, writes []backend.Mutation, o backend.WriteOptions) (uint64, error) {
	if len(writes) == 1 && writes[0].Kind == backend.DeleteRange {
		return c.deleteRange(ctx, &writes[0], &o)
	}
	request := &kvdpb.WriteRequest{Mutations: wireMutations(writes), Atomic: true}
	return c.unaryWrite(ctx, &o, lasting(writes), func(ctx context.Context, conn *conn, options *kvdpb.RequestOptions, opts ...grpc.CallOption) (*kvdpb.ResponseMeta, error) {
		request.Options = options
		response, err := conn.kv.Write(ctx, request, opts...)
		return response.GetMeta(), err
	})
}

func (c *Network) deleteRange(ctx context.Context, w *backend.Mutation, o *backend.WriteOptions) (uint64, error) {
	request := &kvdpb.DeleteRangeRequest{Range: &kvdpb.Range{Start: w.Key, End: w.Value}}
	return c.unaryWrite(ctx, o, false, func(ctx context.Context, conn *conn, options *kvdpb.RequestOptions, opts ...grpc.CallOption) (*kvdpb.ResponseMeta, error) {
		request.Options = options
		response, err := conn.kv.DeleteRange(ctx, request, opts...)
		return response.GetMeta(), err
	})
}

// Commit implements backend.Backend.
func (c *Network) Commit(ctx context.Context, t *backend.Transaction, o backend.WriteOptions) (uint64, error) {
	request := &kvdpb.CommitRequest{
		ReadVersion: t.At.Version, Epoch: t.At.Epoch,
		ReadKeys: t.Keys, ReadRanges: wireRanges(t.Ranges), ExpiringKeys: t.Expiring,
		Mutations: wireMutations(t.Writes),
	}
	return c.unaryWrite(ctx, &o, true, func(ctx context.Context, conn *conn, options *kvdpb.RequestOptions, opts ...grpc.CallOption) (*kvdpb.ResponseMeta, error) {
		request.Options = options
		response, err := conn.txn.Commit(ctx, request, opts...)
		return response.GetMeta(), err
	})
}
