package service

import (
	"context"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/kv"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// Put implements the method of KVService.
func (s *Server) Put(ctx context.Context, req *kvdpb.PutRequest) (*kvdpb.PutResponse, error) {
	previous, meta, err := s.write(ctx, methodPut, &frame.Op{
		Kind: frame.Put, Key: req.GetItem().GetKey(), Value: req.GetItem().GetValue(), TTLMillis: req.GetItem().GetTtlMs(),
		Condition: frameCondition(req.Precondition), ReturnPrevious: req.ReturnPrevious, Options: frameOptions(req.Options),
	})
	if err != nil {
		return nil, err
	}
	return &kvdpb.PutResponse{Previous: previous, Meta: meta}, nil
}

// Delete implements the method of KVService.
func (s *Server) Delete(ctx context.Context, req *kvdpb.DeleteRequest) (*kvdpb.DeleteResponse, error) {
	previous, meta, err := s.write(ctx, methodDelete, &frame.Op{
		Kind: frame.Delete, Key: req.Key,
		Condition: frameCondition(req.Precondition), ReturnPrevious: req.ReturnPrevious, Options: frameOptions(req.Options),
	})
	if err != nil {
		return nil, err
	}
	return &kvdpb.DeleteResponse{Previous: previous, Meta: meta}, nil
}

// write performs one write. What the key held before is nil if there was nothing,
// or if nobody asked.
func (s *Server) write(ctx context.Context, m method, op *frame.Op) (*kvdpb.Item, *kvdpb.ResponseMeta, error) {
	w, condition, err := s.writeOf(op)
	if err != nil {
		return nil, nil, s.failure(m, err)
	}
	if condition.Kind != kv.Unconditional {
		w.If = &condition
	}
	budget := &callOf(ctx).budget
	if op.ReturnPrevious {
		w.Previous = &kv.Lookup{Key: op.Key, Budget: budget}
	}
	t := timingsOf(ctx)
	w.Stages = t.enter()
	err = s.readWithin(ctx, budget, s.limits.ValueBytes, func() error { return s.store.Write(ctx, []*kv.Write{&w}) })
	t.leave()
	if err != nil {
		return nil, nil, s.failure(m, err)
	}
	if w.Err != nil {
		return nil, nil, s.failure(m, w.Err)
	}
	var previous *kvdpb.Item
	if hadPrevious(&w) {
		previous = s.item(w.Previous)
	}
	return previous, &kvdpb.ResponseMeta{Version: uint64(w.Version), Deduplicated: w.Deduplicated}, nil
}

// hadPrevious reports whether there is something to return beside the version. A
// write that had been applied before is not applied again, so nobody knows any
// more what it found.
func hadPrevious(w *kv.Write) bool { return w.Previous != nil && w.Previous.Found && !w.Deduplicated }

// DeleteRange implements the method of KVService.
func (s *Server) DeleteRange(ctx context.Context, req *kvdpb.DeleteRangeRequest) (*kvdpb.DeleteRangeResponse, error) {
	meta, err := s.apply(ctx, []*kvdpb.Mutation{{Op: &kvdpb.Mutation_DeleteRange{DeleteRange: req.Range}}}, req.Options)
	if err != nil {
		return nil, s.failure(methodDeleteRange, err)
	}
	return &kvdpb.DeleteRangeResponse{Meta: meta}, nil
}

// Write implements the method of KVService.
func (s *Server) Write(ctx context.Context, req *kvdpb.WriteRequest) (*kvdpb.WriteResponse, error) {
	if !req.Atomic {
		return s.writeEach(ctx, req.Mutations, req.Options)
	}
	meta, err := s.apply(ctx, req.Mutations, req.Options)
	if err != nil {
		return nil, s.failure(methodWrite, err)
	}
	return &kvdpb.WriteResponse{Meta: meta}, nil
}

// apply performs mutations as one batch.
func (s *Server) apply(ctx context.Context, mutations []*kvdpb.Mutation, options *kvdpb.RequestOptions) (*kvdpb.ResponseMeta, error) {
	o, err := batchOptions(options)
	if err != nil {
		return nil, err
	}
	batch, err := s.batchOf(mutations)
	if err != nil {
		return nil, err
	}
	if err := batch.Check(s.limits); err != nil {
		return nil, invalid(err)
	}
	var m kvdpb.ResponseMeta
	t := timingsOf(ctx)
	o.Deduplicated, o.Stages = &m.Deduplicated, t.enter()
	version, err := s.store.Apply(ctx, batch, o)
	t.leave()
	m.Version = uint64(version)
	return &m, err
}

func batchOptions(options *kvdpb.RequestOptions) (kv.WriteOptions, error) {
	o := frameOptions(options)
	return optionsOf(&o)
}

// writeEach performs each mutation for itself.
func (s *Server) writeEach(ctx context.Context, mutations []*kvdpb.Mutation, options *kvdpb.RequestOptions) (*kvdpb.WriteResponse, error) {
	o, err := batchOptions(options)
	switch {
	case err != nil:
		return nil, s.failure(methodWrite, err)
	case len(mutations) == 0:
		return nil, s.failure(methodWrite, invalidf("no mutations"))
	case len(mutations) > 1 && o.RequestID.Named():
		return nil, s.failure(methodWrite, invalidf("a name is of one write: %d mutations with one name must be atomic", len(mutations)))
	}
	if err := s.limits.CheckBatch(len(mutations), 0); err != nil {
		return nil, s.failure(methodWrite, invalid(err))
	}
	statuses := make([]*kvdpb.Status, len(mutations))
	writes := make([]kv.Write, len(mutations))
	conditions := make([]kv.Condition, len(mutations))
	accepted := make([]*kv.Write, 0, len(mutations))
	for i, m := range mutations {
		if writes[i], conditions[i], err = s.loneWriteOf(m, options); err != nil {
			statuses[i] = s.failure(methodWrite, err).status()
			continue
		}
		if conditions[i].Kind != kv.Unconditional {
			writes[i].If = &conditions[i]
		}
		accepted = append(accepted, &writes[i])
	}
	if len(accepted) > 0 {
		t := timingsOf(ctx)
		accepted[0].Stages = t.enter()
		err := s.store.Write(ctx, accepted)
		t.leave()
		if err != nil {
			return nil, s.failure(methodWrite, err)
		}
	}
	response := &kvdpb.WriteResponse{Meta: new(kvdpb.ResponseMeta)}
	failed := len(accepted) < len(mutations)
	for i := range writes {
		w := &writes[i]
		response.Meta.Version = max(response.Meta.Version, uint64(w.Version))
		response.Meta.Deduplicated = w.Deduplicated && len(writes) == 1
		if w.Err != nil {
			failed = true
			statuses[i] = s.failure(methodWrite, w.Err).status()
		} else if statuses[i] == nil {
			statuses[i] = &kvdpb.Status{}
		}
	}
	if failed {
		response.Statuses = statuses
	}
	return response, nil
}

// loneWriteOf checks and translates a mutation that is in no batch.
func (s *Server) loneWriteOf(m *kvdpb.Mutation, options *kvdpb.RequestOptions) (kv.Write, kv.Condition, error) {
	if _, ok := m.GetOp().(*kvdpb.Mutation_DeleteRange); ok {
		return kv.Write{}, kv.Condition{}, invalidf("a range is deleted by an atomic request, or by DeleteRange")
	}
	op := changeOf(m)
	op.Options = frameOptions(options)
	return s.writeOf(&op)
}
