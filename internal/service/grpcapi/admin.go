package grpcapi

import (
	"context"
	"math"

	"github.com/kvd-db/kvd/internal/service/messages"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// ListSlowRequests implements the method of AdminService.
func (a *api) ListSlowRequests(_ context.Context, req *kvdpb.ListSlowRequestsRequest) (*kvdpb.ListSlowRequestsResponse, error) {
	limit := int(min(uint64(req.Limit), math.MaxInt32))
	newest, total, threshold := a.server.SlowRequests(orDefault(limit, math.MaxInt32))
	response := &kvdpb.ListSlowRequestsResponse{ThresholdNs: uint64(threshold), Total: total}
	for i := range newest {
		r := &newest[i]
		response.Requests = append(response.Requests, &kvdpb.SlowRequest{
			Id: r.ID, TimeUs: r.Begun.UnixMicro(), Method: r.Method.String(), Code: int32(r.Code), Peer: r.Peer,
			KeyPrefix: r.Key, KeyBytes: uint32(r.KeyBytes), Ops: uint32(r.Ops), RequestBytes: uint64(r.Bytes),
			TotalNs: uint64(r.Total), Timings: messages.TimingsOf(&r.Times),
		})
	}
	return response, nil
}

// SetSetting implements the method of AdminService.
func (a *api) SetSetting(ctx context.Context, req *kvdpb.SetSettingRequest) (*kvdpb.SetSettingResponse, error) {
	c := callOf(ctx)
	before, after, err := a.server.SetSetting(c.work.Identity, c.conn.Name(), req.Name, req.Value)
	if err != nil {
		return nil, err
	}
	return &kvdpb.SetSettingResponse{Before: before, After: after}, nil
}

// ClearSlowRequests implements the method of AdminService.
func (a *api) ClearSlowRequests(context.Context, *kvdpb.ClearSlowRequestsRequest) (*kvdpb.ClearSlowRequestsResponse, error) {
	a.server.ClearSlowRequests()
	return new(kvdpb.ClearSlowRequestsResponse), nil
}
