package transport

import (
	"context"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// Apply implements backend.Backend.
func (c *Network) Apply(ctx context.Context, writes []backend.Mutation, o backend.WriteOptions) (uint64, error) {
	if len(writes) == 1 && writes[0].Kind == backend.DeleteRange {
		return c.deleteRange(ctx, &writes[0], &o)
	}
	request := &kvdpb.WriteRequest{Mutations: wireMutations(writes), Atomic: true}
	return c.performWrite(ctx, &remote{
		method: methodWrite, request: request, response: new(kvdpb.WriteResponse),
		sign: func(o *kvdpb.RequestOptions) { request.Options = o },
	}, &o, lasting(writes))
}

func (c *Network) deleteRange(ctx context.Context, w *backend.Mutation, o *backend.WriteOptions) (uint64, error) {
	request := &kvdpb.DeleteRangeRequest{Range: &kvdpb.Range{Start: w.Key, End: w.Value}}
	return c.performWrite(ctx, &remote{
		method: methodDeleteRange, request: request, response: new(kvdpb.DeleteRangeResponse),
		sign: func(o *kvdpb.RequestOptions) { request.Options = o },
	}, o, false)
}

// Commit implements backend.Backend.
func (c *Network) Commit(ctx context.Context, t *backend.Transaction, o backend.WriteOptions) (uint64, error) {
	request := &kvdpb.CommitRequest{
		ReadVersion: t.At.Version, Epoch: t.At.Epoch,
		ReadKeys: t.Keys, ReadRanges: wireRanges(t.Ranges), ExpiringKeys: t.Expiring,
		Mutations: wireMutations(t.Writes), SnapshotId: t.Snapshot,
	}
	return c.performWrite(ctx, &remote{
		method: methodCommit, request: request, response: new(kvdpb.CommitResponse),
		sign: func(o *kvdpb.RequestOptions) { request.Options = o },
	}, &o, true)
}
