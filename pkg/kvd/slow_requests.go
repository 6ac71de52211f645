package kvd

import (
	"context"
	"time"
)

// SlowLog is a server's record of slow requests.
type SlowLog struct {
	// Threshold is the time from which a request is slow; 0 if the server records none.
	Threshold time.Duration
	// Total is the number of slow requests since the server started.
	Total uint64
	// Requests has the newest of them, newest first.
	Requests []SlowRequest
}

// SlowRequest is one slow request: a gRPC call other than a scan, or operations of one frame
// that were served together.
type SlowRequest struct {
	ID uint64    // 1, 2, and so on since the server started
	At time.Time // of arrival, by the server's clock
	// Method is the label of the request in kvd_requests_total; for a frame that of its
	// first operation.
	Method string
	// Code is "OK", or the gRPC code with which all of the request failed.
	Code string
	Peer string // address of the client
	// KeyPrefix is what the server kept of the first key, and KeyBytes the length of the
	// whole key.
	KeyPrefix []byte
	KeyBytes  int
	Ops       int
	Bytes     int // of all keys, and of values to write
	// Timings has the stages in the server. For a frame, Reply includes sending the answer,
	// which waits for a client that does not read it.
	Timings Timings
}

// SlowRequests returns the newest limit requests of the server's slow log, or all if limit
// is 0. It returns ErrInvalid if the server has no slow log.
func (c *Client) SlowRequests(ctx context.Context, limit int) (SlowLog, error) {
	const name = "slow requests"
	in, err := c.enter(ctx, name)
	if err != nil {
		return SlowLog{}, err
	}
	defer in.leave()
	l, err := c.backend.SlowRequests(ctx, limit)
	log := SlowLog{Threshold: l.Threshold, Total: l.Total}
	for _, r := range l.Requests {
		log.Requests = append(log.Requests, SlowRequest{
			ID: r.ID, At: r.At, Method: r.Method, Code: r.Code, Peer: r.Peer,
			KeyPrefix: r.KeyPrefix, KeyBytes: r.KeyBytes, Ops: r.Ops, Bytes: r.Bytes, Timings: Timings(r.Timings),
		})
	}
	return log, failed(name, err)
}

// ClearSlowRequests empties the server's slow log.
func (c *Client) ClearSlowRequests(ctx context.Context) error {
	const name = "clear slow requests"
	in, err := c.enter(ctx, name)
	if err != nil {
		return err
	}
	defer in.leave()
	return failed(name, c.backend.ClearSlowRequests(ctx))
}
