package messages

import (
	"context"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// Put performs the method of KVService.
func Put(ctx context.Context, s *service.Server, c *service.Call, req *kvdpb.PutRequest) (*kvdpb.PutResponse, error) {
	op := kv.Op{Kind: kv.KindPut, Key: req.GetItem().GetKey(), Value: req.GetItem().GetValue()}
	previous, meta, err := write(ctx, s, c, op, req.GetItem().GetTtlMs(), req.Precondition, req.ReturnPrevious, req.Options)
	if err != nil {
		return nil, err
	}
	return &kvdpb.PutResponse{Previous: previous, Meta: meta}, nil
}

// Delete performs the method of KVService.
func Delete(ctx context.Context, s *service.Server, c *service.Call, req *kvdpb.DeleteRequest) (*kvdpb.DeleteResponse, error) {
	previous, meta, err := write(ctx, s, c, kv.Op{Kind: kv.KindDelete, Key: req.Key}, 0, req.Precondition, req.ReturnPrevious, req.Options)
	if err != nil {
		return nil, err
	}
	return &kvdpb.DeleteResponse{Previous: previous, Meta: meta}, nil
}

// write performs one write. What the key held before is nil if there was nothing, or if
// the client did not ask.
func write(ctx context.Context, s *service.Server, c *service.Call, op kv.Op, ttlMillis uint64, p *kvdpb.Precondition, returnPrevious bool, options *kvdpb.RequestOptions) (*kvdpb.Item, *kvdpb.ResponseMeta, error) {
	o := OptionsOf(options)
	w := kv.Write{Op: op, Durability: o.Durability, RequestID: o.RequestID}
	condition := ConditionOf(p)
	if err := s.CheckWrite(&c.Caller, &w, &condition, ttlMillis, returnPrevious); err != nil {
		return nil, nil, err
	}
	if condition.Kind != kv.Unconditional {
		w.If = &condition
	}
	if returnPrevious {
		w.Previous = &kv.Lookup{Key: op.Key}
	}
	if err := s.WriteOne(ctx, c, &w); err != nil {
		return nil, nil, err
	}
	var previous *kvdpb.Item
	if service.HadPrevious(&w) {
		previous = ItemOf(s, w.Previous)
	}
	return previous, &kvdpb.ResponseMeta{Version: uint64(w.Version), Deduplicated: w.Deduplicated}, nil
}

// DeleteRange performs the method of KVService.
func DeleteRange(ctx context.Context, s *service.Server, c *service.Call, req *kvdpb.DeleteRangeRequest) (*kvdpb.DeleteRangeResponse, error) {
	meta, err := Apply(ctx, s, c, []*kvdpb.Mutation{{Op: &kvdpb.Mutation_DeleteRange{DeleteRange: req.Range}}}, req.Options)
	if err != nil {
		return nil, err
	}
	return &kvdpb.DeleteRangeResponse{Meta: meta}, nil
}

// Write performs the method of KVService. Errors of single mutations are reported as those of m.
func Write(ctx context.Context, s *service.Server, c *service.Call, m *service.Method, req *kvdpb.WriteRequest) (*kvdpb.WriteResponse, error) {
	if !req.Atomic {
		return writeEach(ctx, s, c, m, req)
	}
	meta, err := Apply(ctx, s, c, req.Mutations, req.Options)
	if err != nil {
		return nil, err
	}
	return &kvdpb.WriteResponse{Meta: meta}, nil
}

// writeEach performs each mutation for itself.
func writeEach(ctx context.Context, s *service.Server, c *service.Call, m *service.Method, req *kvdpb.WriteRequest) (*kvdpb.WriteResponse, error) {
	all, err := MutationsOf(s, req.Mutations)
	if err != nil {
		return nil, err
	}
	writes, err := s.ApplyEach(ctx, c, all, OptionsOf(req.Options))
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
			statuses[i] = statusOf(s.Failure(m, w.Err))
			response.Statuses = statuses
		}
	}
	return response, nil
}

// statusOf returns an error as one operation's among several.
func statusOf(e *service.Error) *kvdpb.Status {
	return &kvdpb.Status{
		Code:         int32(e.Code),
		Reason:       e.Reason,
		Message:      e.Message,
		RetryAfterMs: e.RetryAfterMillis(),
		Version:      uint64(e.Version),
	}
}

// ItemOf is what a read found, without its key.
func ItemOf(s *service.Server, l *kv.Lookup) *kvdpb.Item {
	return &kvdpb.Item{Value: l.Value, Version: uint64(l.Version), TtlMs: s.TimeLeft(l.Expiry)}
}
