package grpcapi

import (
	"context"
	"math"

	"github.com/kvd-db/kvd/internal/service"
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
			TotalNs: uint64(r.Total), Timings: timingsMessage(&r.Times),
		})
	}
	return response, nil
}

// ClearSlowRequests implements the method of AdminService.
func (a *api) ClearSlowRequests(context.Context, *kvdpb.ClearSlowRequestsRequest) (*kvdpb.ClearSlowRequestsResponse, error) {
	a.server.ClearSlowRequests()
	return new(kvdpb.ClearSlowRequestsResponse), nil
}

func timingsMessage(all *service.Times) *kvdpb.Timings {
	return &kvdpb.Timings{
		GateNs: uint64(all[service.StageGate]), InboxNs: uint64(all[service.StageInbox]), BatchNs: uint64(all[service.StageBatch]),
		EngineNs: uint64(all[service.StageEngine]), LogWriteNs: uint64(all[service.StageLogWrite]), SyncNs: uint64(all[service.StageSync]),
		ReplyNs: uint64(all[service.StageReply]),
	}
}

// loadOfRequest is what a unary call asks for.
func loadOfRequest(req any) (l service.Load) {
	switch r := req.(type) {
	case *kvdpb.GetRequest:
		l.Add(r.Key, 0)
	case *kvdpb.PutRequest:
		l.Add(r.GetItem().GetKey(), len(r.GetItem().GetValue()))
	case *kvdpb.DeleteRequest:
		l.Add(r.Key, 0)
	case *kvdpb.DeleteRangeRequest:
		addRange(&l, r.Range)
	case *kvdpb.BatchGetRequest:
		addKeys(&l, r.Keys)
	case *kvdpb.WriteRequest:
		addMutations(&l, r.Mutations)
	case *kvdpb.CommitRequest:
		addMutations(&l, r.Mutations)
		addKeys(&l, r.ReadKeys)
		for _, read := range r.ReadRanges {
			addRange(&l, read)
		}
	case *kvdpb.ExecuteRequest:
		for _, g := range r.Guards {
			l.Add(g.GetKey(), 0)
		}
		addMutations(&l, r.ThenMutations)
		addMutations(&l, r.ElseMutations)
	}
	return l
}

func addKeys(l *service.Load, keys [][]byte) {
	for _, key := range keys {
		l.Add(key, 0)
	}
}

func addRange(l *service.Load, r *kvdpb.Range) { l.Add(r.GetStart(), len(r.GetEnd())) }

func addMutations(l *service.Load, mutations []*kvdpb.Mutation) {
	for _, m := range mutations {
		if r, ok := m.GetOp().(*kvdpb.Mutation_DeleteRange); ok {
			addRange(l, r.DeleteRange)
			continue
		}
		change := mutationOf(m)
		l.Add(change.Op.Key, len(change.Op.Value))
	}
}
