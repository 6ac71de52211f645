package service

import (
	"context"
	"math"
	"time"

	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// ListSlowRequests implements the method of AdminService.
func (s *Server) ListSlowRequests(_ context.Context, req *kvdpb.ListSlowRequestsRequest) (*kvdpb.ListSlowRequestsResponse, error) {
	limit := int(min(uint64(req.Limit), math.MaxInt32))
	newest, total := s.slow.list(orDefault(limit, math.MaxInt32))
	response := &kvdpb.ListSlowRequestsResponse{ThresholdNs: uint64(s.slow.threshold), Total: total}
	for i := range newest {
		r := &newest[i]
		response.Requests = append(response.Requests, &kvdpb.SlowRequest{
			Id: r.id, TimeUs: r.begun.UnixMicro(), Method: r.method.String(), Code: int32(r.code), Peer: r.peer,
			KeyPrefix: r.key, KeyBytes: uint32(r.keyBytes), Ops: uint32(r.ops), RequestBytes: uint64(r.bytes),
			TotalNs: uint64(r.total), Timings: timingsMessage(&r.stages),
		})
	}
	return response, nil
}

// ClearSlowRequests implements the method of AdminService.
func (s *Server) ClearSlowRequests(context.Context, *kvdpb.ClearSlowRequestsRequest) (*kvdpb.ClearSlowRequestsResponse, error) {
	s.slow.clear()
	return new(kvdpb.ClearSlowRequestsResponse), nil
}

func timingsMessage(all *[stageCount]time.Duration) *kvdpb.Timings {
	return &kvdpb.Timings{
		GateNs: uint64(all[stageGate]), InboxNs: uint64(all[stageInbox]), BatchNs: uint64(all[stageBatch]),
		EngineNs: uint64(all[stageEngine]), LogWriteNs: uint64(all[stageLogWrite]), SyncNs: uint64(all[stageSync]),
		ReplyNs: uint64(all[stageReply]),
	}
}
