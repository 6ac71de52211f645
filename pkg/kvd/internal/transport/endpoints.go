package transport

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// maxEndpoints bounds the endpoints of a target. Each endpoint has connections of its own, and calls
// use those of the current endpoint. When an attempt fails because that one cannot be reached, the
// next endpoint becomes current for all calls.
const maxEndpoints = 16

// endpointsOf splits a target at its commas. It refuses an endpoint that no call could reach. If there is
// a Dialer an endpoint may be any name, and the only one may be empty.
func (o *Options) endpointsOf(target string) ([]string, error) {
	endpoints := strings.Split(target, ",")
	if len(endpoints) > maxEndpoints {
		return nil, fmt.Errorf("%w: %d endpoints, at most %d", backend.ErrInvalid, len(endpoints), maxEndpoints)
	}
	for i, e := range endpoints {
		e = strings.TrimSpace(e)
		endpoints[i] = e
		if o.Dialer != nil && (e != "" || len(endpoints) == 1) {
			continue
		}
		if wrong := wrongEndpoint(e); wrong != "" {
			which := fmt.Sprintf("endpoint %d", i+1)
			if len(endpoints) > 1 {
				which += fmt.Sprintf(" of %d", len(endpoints))
			}
			return nil, fmt.Errorf("%w: %s %s; write host:port, such as \"db.example:7070\", or \"kvds://db.example:7070\" for TLS",
				backend.ErrInvalid, which, wrong)
		}
	}
	return endpoints, nil
}

const (
	connectTimeout = 5 * time.Second
	// connectTimeoutOfSeveral leaves time for another endpoint within the default timeout
	// of a call, also if the server accepts connections and does not answer (helloTimeout).
	connectTimeoutOfSeveral = time.Second
)

// connectTimeout bounds the time to connect.
func (c *Network) connectTimeout() time.Duration {
	if c.endpoints > 1 {
		return connectTimeoutOfSeveral
	}
	return connectTimeout
}

// candidates returns the connections of the current endpoint.
func (c *Network) candidates() []*conn {
	n := len(c.conns) / c.endpoints
	i := int(c.current.Load())
	return c.conns[i*n : (i+1)*n]
}

// moveOn makes the next endpoint current, because the endpoint of from cannot be reached or takes no
// writes. It does nothing if another call has done so already.
//
// gRPC connects to the next endpoint at once, even if that could not be reached when it was
// last tried: gRPC would otherwise refuse calls until its own pause ends, which may be
// longer than all tries of a call.
func (c *Network) moveOn(from *conn) {
	if c.endpoints == 1 || from == nil {
		return
	}
	if !c.current.CompareAndSwap(int32(from.endpoint), int32((from.endpoint+1)%c.endpoints)) {
		return
	}
	for _, conn := range c.candidates() {
		// ResetConnectBackoff reads without a lock what gRPC writes until the first attempt to
		// connect has failed.
		if conn.grpc.GetState() == connectivity.TransientFailure {
			conn.grpc.ResetConnectBackoff()
		}
	}
}

// following returns the context of a gRPC call, in which the client says that it goes to the node that
// leads a cluster itself, as it does if it knows several endpoints: a node that does not lead then
// refuses the call, instead of forwarding it.
func (a *attempts) following(ctx context.Context) context.Context {
	if a.forward {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, kvdpb.FollowsLeaderHeader, "1")
}
