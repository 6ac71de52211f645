package grpcapi

import (
	"context"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service/messages"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// Get implements the method of KVService.
func (a *api) Get(ctx context.Context, req *kvdpb.GetRequest) (*kvdpb.GetResponse, error) {
	if err := a.server.CheckKey(&callOf(ctx).work.Caller, req.Key); err != nil {
		return nil, err
	}
	at, err := a.server.ReadVersion(req.AtVersion, req.Epoch)
	if err != nil {
		return nil, err
	}
	fresh, err := messages.FreshnessOf(req.Options)
	if err != nil {
		return nil, err
	}
	l := kv.Lookup{Key: req.Key, Fresh: fresh}
	if err := a.server.Get(ctx, &callOf(ctx).work, &l, at); err != nil {
		return nil, err
	}
	return &kvdpb.GetResponse{Item: messages.ItemOf(a.server, &l), Meta: meta(l.ReadVersion)}, nil
}

// BatchGet implements the method of KVService.
func (a *api) BatchGet(ctx context.Context, req *kvdpb.BatchGetRequest) (*kvdpb.BatchGetResponse, error) {
	if err := a.server.CheckKeys(len(req.Keys)); err != nil {
		return nil, err
	}
	at, err := a.server.ReadVersion(req.AtVersion, req.Epoch)
	if err != nil {
		return nil, err
	}
	fresh, err := messages.FreshnessOf(req.Options)
	if err != nil {
		return nil, err
	}
	lookups := make([]kv.Lookup, len(req.Keys))
	reads := make([]*kv.Lookup, len(req.Keys))
	for i, key := range req.Keys {
		lookups[i].Key, lookups[i].Fresh = key, fresh
		reads[i] = &lookups[i]
	}
	version, err := a.server.GetMany(ctx, &callOf(ctx).work, reads, at)
	if err != nil {
		return nil, err
	}
	response := &kvdpb.BatchGetResponse{Lookups: make([]*kvdpb.BatchGetResponse_Lookup, len(reads)), Meta: meta(version)}
	for i, l := range reads {
		if l.Err != nil {
			return nil, l.Err
		}
		response.Lookups[i] = &kvdpb.BatchGetResponse_Lookup{Found: l.Found}
		if l.Found {
			response.Lookups[i].Item = messages.ItemOf(a.server, l)
		}
	}
	return response, nil
}
