package transport

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// SlowRequests implements backend.Backend.
func (c *Network) SlowRequests(ctx context.Context, limit int) (backend.SlowLog, error) {
	var r *kvdpb.ListSlowRequestsResponse
	err := c.unary(ctx, callTimer{}, func(ctx context.Context, conn *conn, opts ...grpc.CallOption) (err error) {
		request := &kvdpb.ListSlowRequestsRequest{Limit: uint32(max(limit, 0))}
		r, err = kvdpb.NewAdminServiceClient(conn.grpc).ListSlowRequests(ctx, request, opts...)
		return err
	})
	log := backend.SlowLog{Threshold: time.Duration(r.GetThresholdNs()), Total: r.GetTotal()}
	for _, m := range r.GetRequests() {
		s := backend.SlowRequest{
			ID: m.Id, At: time.UnixMicro(m.TimeUs), Method: m.Method, Code: codes.Code(m.Code).String(), Peer: m.Peer,
			KeyPrefix: m.KeyPrefix, KeyBytes: int(m.KeyBytes), Ops: int(m.Ops), Bytes: int(m.RequestBytes),
		}
		setServer(&s.Timings, m.Timings)
		log.Requests = append(log.Requests, s)
	}
	return log, err
}

// ClearSlowRequests implements backend.Backend.
func (c *Network) ClearSlowRequests(ctx context.Context) error {
	return c.unary(ctx, callTimer{}, func(ctx context.Context, conn *conn, opts ...grpc.CallOption) error {
		_, err := kvdpb.NewAdminServiceClient(conn.grpc).ClearSlowRequests(ctx, new(kvdpb.ClearSlowRequestsRequest), opts...)
		return err
	})
}
