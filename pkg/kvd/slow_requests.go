package kvd

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// SlowLog is what a server remembers of requests that took long.
type SlowLog struct {
	// Threshold is from how long on the server keeps a request; 0 if it keeps none.
	Threshold time.Duration
	// Total is how many requests took as long since the server started.
	Total uint64
	// Requests are the newest of them, the newest first.
	Requests []SlowRequest
}

// SlowRequest is a request that took long in the server: a call of gRPC that is no
// scan, or those operations of one frame that were served together.
type SlowRequest struct {
	ID uint64    // counts them from 1 on, since the server started
	At time.Time // when it came, by the server's clock
	// Method is what kvd_requests_total counts it by; of a frame that of its first
	// operation.
	Method string
	// Code is "OK", or the code of gRPC that all of it failed with.
	Code string
	Peer string // where it came from
	// KeyPrefix is what the server kept of the first key, and KeyBytes how long that is.
	KeyPrefix []byte
	KeyBytes  int
	Ops       int
	Bytes     int // of all keys, and of values to write
	// Timings are what the server took. For a frame Reply is also sending the answer,
	// which waits for a client that does not take it.
	Timings Timings
}

// SlowRequests returns the newest limit requests of the server's slow log; 0 is all of
// them. A server without one is ErrInvalid.
func (c *Client) SlowRequests(ctx context.Context, limit int) (SlowLog, error) {
	var r *kvdpb.ListSlowRequestsResponse
	err := c.unary(ctx, "slow requests", func(ctx context.Context, conn *conn, opts ...grpc.CallOption) (err error) {
		request := &kvdpb.ListSlowRequestsRequest{Limit: uint32(max(limit, 0))}
		r, err = kvdpb.NewAdminServiceClient(conn.grpc).ListSlowRequests(ctx, request, opts...)
		return err
	})
	log := SlowLog{Threshold: time.Duration(r.GetThresholdNs()), Total: r.GetTotal()}
	for _, m := range r.GetRequests() {
		s := SlowRequest{
			ID: m.Id, At: time.UnixMicro(m.TimeUs), Method: m.Method, Code: codes.Code(m.Code).String(), Peer: m.Peer,
			KeyPrefix: m.KeyPrefix, KeyBytes: int(m.KeyBytes), Ops: int(m.Ops), Bytes: int(m.RequestBytes),
		}
		s.Timings.setServer(m.Timings)
		log.Requests = append(log.Requests, s)
	}
	return log, err
}

// ClearSlowRequests empties the server's slow log.
func (c *Client) ClearSlowRequests(ctx context.Context) error {
	return c.unary(ctx, "clear slow requests", func(ctx context.Context, conn *conn, opts ...grpc.CallOption) error {
		_, err := kvdpb.NewAdminServiceClient(conn.grpc).ClearSlowRequests(ctx, new(kvdpb.ClearSlowRequestsRequest), opts...)
		return err
	})
}
