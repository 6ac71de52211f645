package grpcapi

import (
	"github.com/kvd-db/kvd/internal/kv"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// item is what a read found, without its key.
func (a *api) item(l *kv.Lookup) *kvdpb.Item {
	return &kvdpb.Item{Value: l.Value, Version: uint64(l.Version), TtlMs: a.server.TimeLeft(l.Expiry)}
}

func meta(version kv.SeqNum) *kvdpb.ResponseMeta {
	return &kvdpb.ResponseMeta{Version: uint64(version)}
}
