package server

import (
	"context"

	"github.com/kvd-db/kvd/internal/kv"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// Put implements the method of KVService.
func (s *Server) Put(ctx context.Context, req *kvdpb.PutRequest) (*kvdpb.PutResponse, error) {
	op := kv.Op{Kind: kv.KindPut, Key: req.GetItem().GetKey(), Value: req.GetItem().GetValue()}
	version, err := s.write(ctx, methodPut, op, req.Options)
	if err != nil {
		return nil, err
	}
	return &kvdpb.PutResponse{Meta: meta(version)}, nil
}

// Delete implements the method of KVService.
func (s *Server) Delete(ctx context.Context, req *kvdpb.DeleteRequest) (*kvdpb.DeleteResponse, error) {
	version, err := s.write(ctx, methodDelete, kv.Op{Kind: kv.KindDelete, Key: req.Key}, req.Options)
	if err != nil {
		return nil, err
	}
	return &kvdpb.DeleteResponse{Meta: meta(version)}, nil
}

// write performs one write.
func (s *Server) write(ctx context.Context, m method, op kv.Op, o *kvdpb.RequestOptions) (kv.SeqNum, error) {
	durability, err := durabilityOf(o.GetDurability())
	if err != nil {
		return 0, s.failure(m, err)
	}
	if err := op.Check(s.limits); err != nil {
		return 0, s.failure(m, invalid(err))
	}
	w := kv.Write{Op: op, Durability: durability}
	if err := s.store.Write(ctx, []*kv.Write{&w}); err != nil {
		return 0, s.failure(m, err)
	}
	if w.Err != nil {
		return 0, s.failure(m, w.Err)
	}
	return w.Version, nil
}

// Write implements the method of KVService.
func (s *Server) Write(ctx context.Context, req *kvdpb.WriteRequest) (*kvdpb.WriteResponse, error) {
	durability, err := durabilityOf(req.Options.GetDurability())
	if err != nil {
		return nil, s.failure(methodWrite, err)
	}
	if len(req.Mutations) == 0 {
		return nil, s.failure(methodWrite, invalidf("no mutations"))
	}
	if err := s.limits.CheckBatch(len(req.Mutations), 0); err != nil {
		return nil, s.failure(methodWrite, invalid(err))
	}
	if req.Atomic {
		return s.apply(ctx, req.Mutations, durability)
	}
	return s.writeEach(ctx, req.Mutations, durability)
}

// apply performs the mutations as one batch.
func (s *Server) apply(ctx context.Context, mutations []*kvdpb.Mutation, d kv.Durability) (*kvdpb.WriteResponse, error) {
	var batch kv.WriteBatch
	for i, m := range mutations {
		op, ok := opOf(m)
		if !ok {
			return nil, s.failure(methodWrite, invalidf("mutation %d is none that this server knows", i))
		}
		batch.Add(op)
	}
	if err := batch.Check(s.limits); err != nil {
		return nil, s.failure(methodWrite, invalid(err))
	}
	version, err := s.store.Apply(ctx, &batch, kv.WriteOptions{Durability: d})
	if err != nil {
		return nil, s.failure(methodWrite, err)
	}
	return &kvdpb.WriteResponse{Meta: meta(version)}, nil
}

// writeEach performs each mutation for itself.
func (s *Server) writeEach(ctx context.Context, mutations []*kvdpb.Mutation, d kv.Durability) (*kvdpb.WriteResponse, error) {
	statuses := make([]*kvdpb.Status, len(mutations))
	writes := make([]kv.Write, len(mutations))
	accepted := make([]*kv.Write, 0, len(mutations))
	for i, m := range mutations {
		op, ok := opOf(m)
		if !ok {
			statuses[i] = s.failure(methodWrite, invalidf("mutation is none that this server knows")).status()
			continue
		}
		if err := op.Check(s.limits); err != nil {
			statuses[i] = s.failure(methodWrite, invalid(err)).status()
			continue
		}
		writes[i] = kv.Write{Op: op, Durability: d}
		accepted = append(accepted, &writes[i])
	}
	if len(accepted) > 0 {
		if err := s.store.Write(ctx, accepted); err != nil {
			return nil, s.failure(methodWrite, err)
		}
	}
	var last kv.SeqNum
	failed := len(accepted) < len(mutations)
	for i := range writes {
		last = max(last, writes[i].Version)
		if err := writes[i].Err; err != nil {
			failed = true
			statuses[i] = s.failure(methodWrite, err).status()
		} else if statuses[i] == nil {
			statuses[i] = &kvdpb.Status{}
		}
	}
	if !failed {
		statuses = nil
	}
	return &kvdpb.WriteResponse{Meta: meta(last), Statuses: statuses}, nil
}

// opOf translates a mutation; false if it is none that this version knows.
func opOf(m *kvdpb.Mutation) (kv.Op, bool) {
	switch m := m.GetOp().(type) {
	case *kvdpb.Mutation_Put:
		return kv.Op{Kind: kv.KindPut, Key: m.Put.GetKey(), Value: m.Put.GetValue()}, true
	case *kvdpb.Mutation_Delete:
		return kv.Op{Kind: kv.KindDelete, Key: m.Delete}, true
	}
	return kv.Op{}, false
}

func durabilityOf(d kvdpb.Durability) (kv.Durability, error) {
	switch d {
	case kvdpb.Durability_DURABILITY_UNSPECIFIED:
		return kv.DurabilityDefault, nil
	case kvdpb.Durability_DURABILITY_MEMORY:
		return kv.DurabilityMemory, nil
	case kvdpb.Durability_DURABILITY_BUFFERED:
		return kv.DurabilityBuffered, nil
	case kvdpb.Durability_DURABILITY_SYNC:
		return kv.DurabilitySync, nil
	}
	return 0, invalidf("durability %d is none that this server knows", int32(d))
}
