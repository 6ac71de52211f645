package service

import (
	"context"
	"fmt"

	"github.com/kvd-db/kvd/internal/kv"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// Get implements the method of KVService.
func (s *Server) Get(ctx context.Context, req *kvdpb.GetRequest) (*kvdpb.GetResponse, error) {
	if err := s.limits.CheckKey(req.Key); err != nil {
		return nil, s.failure(methodGet, invalid(err))
	}
	at, err := s.readVersion(req.AtVersion, req.Epoch)
	if err != nil {
		return nil, s.failure(methodGet, err)
	}
	t := timingsOf(ctx)
	budget := &callOf(ctx).budget
	l := kv.Lookup{Key: req.Key, Budget: budget, Stages: t.enter()}
	err = s.readWithin(ctx, budget, s.limits.ValueBytes, func() error {
		if at == 0 {
			return s.store.Lookup(ctx, []*kv.Lookup{&l})
		}
		_, err := s.store.LookupAt(ctx, []*kv.Lookup{&l}, at)
		return err
	})
	t.leave()
	if err != nil {
		return nil, s.failure(methodGet, err)
	}
	if l.Err != nil {
		return nil, s.failure(methodGet, l.Err)
	}
	if !l.Found {
		return nil, notFound(l.ReadVersion)
	}
	return &kvdpb.GetResponse{Item: s.item(&l), Meta: meta(l.ReadVersion)}, nil
}

// BatchGet implements the method of KVService.
func (s *Server) BatchGet(ctx context.Context, req *kvdpb.BatchGetRequest) (*kvdpb.BatchGetResponse, error) {
	if len(req.Keys) > s.limits.BatchOps {
		return nil, s.failure(methodBatchGet, tooLarge("%d keys, limit is %d", len(req.Keys), s.limits.BatchOps))
	}
	at, err := s.readVersion(req.AtVersion, req.Epoch)
	if err != nil {
		return nil, s.failure(methodBatchGet, err)
	}
	limit := s.batchGetBytes()
	budget := &callOf(ctx).budget
	lookups := make([]kv.Lookup, len(req.Keys))
	reads := make([]*kv.Lookup, len(req.Keys))
	for i, key := range req.Keys {
		if err := s.limits.CheckKey(key); err != nil {
			return nil, s.failure(methodBatchGet, invalid(fmt.Errorf("key %d: %w", i, err)))
		}
		lookups[i].Key, lookups[i].Budget = key, budget
		reads[i] = &lookups[i]
	}
	t := timingsOf(ctx)
	if stages := t.enter(); len(reads) > 0 {
		reads[0].Stages = stages
	}
	var version kv.SeqNum
	err = s.readWithin(ctx, budget, limit, func() (err error) {
		version, err = s.store.LookupAt(ctx, reads, at)
		return err
	})
	t.leave()
	if err != nil {
		return nil, s.failure(methodBatchGet, err)
	}
	if budget.Spent() {
		return nil, s.failure(methodBatchGet, tooLarge("the answer has more than %d bytes; ask for fewer keys", limit))
	}
	response := &kvdpb.BatchGetResponse{Lookups: make([]*kvdpb.BatchGetResponse_Lookup, len(reads)), Meta: meta(version)}
	for i, l := range reads {
		if l.Err != nil {
			return nil, s.failure(methodBatchGet, l.Err)
		}
		response.Lookups[i] = &kvdpb.BatchGetResponse_Lookup{Found: l.Found}
		if l.Found {
			response.Lookups[i].Item = s.item(l)
		}
	}
	return response, nil
}

// batchGetBytes bounds what is read at one version: the limit of a batch, so that
// what can be written as one can be read as one.
func (s *Server) batchGetBytes() int { return max(s.limits.BatchBytes, s.limits.ValueBytes) }

func tooLarge(format string, args ...any) error {
	return invalid(fmt.Errorf("%w: "+format, append([]any{kv.ErrTooLarge}, args...)...))
}
