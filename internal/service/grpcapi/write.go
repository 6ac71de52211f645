package grpcapi

import (
	"context"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/messages"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// Put implements the method of KVService.
func (a *api) Put(ctx context.Context, req *kvdpb.PutRequest) (*kvdpb.PutResponse, error) {
	op := kv.Op{Kind: kv.KindPut, Key: req.GetItem().GetKey(), Value: req.GetItem().GetValue()}
	previous, meta, err := a.write(ctx, op, req.GetItem().GetTtlMs(), req.Precondition, req.ReturnPrevious, req.Options)
	if err != nil {
		return nil, err
	}
	return &kvdpb.PutResponse{Previous: previous, Meta: meta}, nil
}

// Delete implements the method of KVService.
func (a *api) Delete(ctx context.Context, req *kvdpb.DeleteRequest) (*kvdpb.DeleteResponse, error) {
	previous, meta, err := a.write(ctx, kv.Op{Kind: kv.KindDelete, Key: req.Key}, 0, req.Precondition, req.ReturnPrevious, req.Options)
	if err != nil {
		return nil, err
	}
	return &kvdpb.DeleteResponse{Previous: previous, Meta: meta}, nil
}

// write performs one write. What the key held before is nil if there was nothing, or if
// the client did not ask.
func (a *api) write(ctx context.Context, op kv.Op, ttlMillis uint64, p *kvdpb.Precondition, returnPrevious bool, options *kvdpb.RequestOptions) (*kvdpb.Item, *kvdpb.ResponseMeta, error) {
	o := messages.OptionsOf(options)
	w := kv.Write{Op: op, Durability: o.Durability, RequestID: o.RequestID}
	condition := messages.ConditionOf(p)
	if err := a.server.CheckWrite(&callOf(ctx).work.Caller, &w, &condition, ttlMillis, returnPrevious); err != nil {
		return nil, nil, err
	}
	if condition.Kind != kv.Unconditional {
		w.If = &condition
	}
	if returnPrevious {
		w.Previous = &kv.Lookup{Key: op.Key}
	}
	if err := a.server.WriteOne(ctx, &callOf(ctx).work, &w); err != nil {
		return nil, nil, err
	}
	var previous *kvdpb.Item
	if service.HadPrevious(&w) {
		previous = a.item(w.Previous)
	}
	return previous, &kvdpb.ResponseMeta{Version: uint64(w.Version), Deduplicated: w.Deduplicated}, nil
}

// DeleteRange implements the method of KVService.
func (a *api) DeleteRange(ctx context.Context, req *kvdpb.DeleteRangeRequest) (*kvdpb.DeleteRangeResponse, error) {
	meta, err := messages.Apply(ctx, a.server, &callOf(ctx).work, []*kvdpb.Mutation{{Op: &kvdpb.Mutation_DeleteRange{DeleteRange: req.Range}}}, req.Options)
	if err != nil {
		return nil, err
	}
	return &kvdpb.DeleteRangeResponse{Meta: meta}, nil
}

// Write implements the method of KVService.
func (a *api) Write(ctx context.Context, req *kvdpb.WriteRequest) (*kvdpb.WriteResponse, error) {
	if !req.Atomic {
		return a.writeEach(ctx, req.Mutations, req.Options)
	}
	meta, err := messages.Apply(ctx, a.server, &callOf(ctx).work, req.Mutations, req.Options)
	if err != nil {
		return nil, err
	}
	return &kvdpb.WriteResponse{Meta: meta}, nil
}

// writeEach performs each mutation for itself.
func (a *api) writeEach(ctx context.Context, mutations []*kvdpb.Mutation, options *kvdpb.RequestOptions) (*kvdpb.WriteResponse, error) {
	all, err := messages.MutationsOf(a.server, mutations)
	if err != nil {
		return nil, err
	}
	writes, err := a.server.ApplyEach(ctx, &callOf(ctx).work, all, messages.OptionsOf(options))
	if err != nil {
		return nil, err
	}
	response := &kvdpb.WriteResponse{Meta: new(kvdpb.ResponseMeta)}
	statuses := make([]*kvdpb.Status, len(writes))
	for i := range writes {
		w := &writes[i]
		response.Meta.Version = max(response.Meta.Version, uint64(w.Version))
		response.Meta.Deduplicated = w.Deduplicated && len(writes) == 1
		statuses[i] = new(kvdpb.Status)
		if w.Err != nil {
			statuses[i] = statusMessage(a.server.Failure(callOf(ctx).method, w.Err))
			response.Statuses = statuses
		}
	}
	return response, nil
}
