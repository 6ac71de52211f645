package kvd

import (
	"context"
	"time"
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
	const name = "slow requests"
	if err := c.enter(ctx, name, nil); err != nil {
		return SlowLog{}, err
	}
	defer c.calls.leave()
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
	if err := c.enter(ctx, name, nil); err != nil {
		return err
	}
	defer c.calls.leave()
	return failed(name, c.backend.ClearSlowRequests(ctx))
}
