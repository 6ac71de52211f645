package grpcapi

import (
	"github.com/kvd-db/kvd/internal/kv"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

func meta(version kv.SeqNum) *kvdpb.ResponseMeta {
	return &kvdpb.ResponseMeta{Version: uint64(version)}
}
