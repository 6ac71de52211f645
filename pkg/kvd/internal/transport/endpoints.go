package transport

import (
	"fmt"
	"strings"
	"time"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
)

// endpoints are the servers that a target names. Each has connections of its own, and
// calls use those of the current endpoint. When a try fails since that endpoint cannot be
// reached, the next one becomes current, for all calls.
const maxEndpoints = 16

// splitTargets returns the endpoints of a target, which commas separate.
func splitTargets(target string) ([]string, error) {
	endpoints := strings.Split(target, ",")
	for i, e := range endpoints {
		if endpoints[i] = strings.TrimSpace(e); endpoints[i] == "" && len(endpoints) > 1 {
			return nil, fmt.Errorf("%w: endpoint %d of %q is empty", backend.ErrInvalid, i+1, target)
		}
	}
	if len(endpoints) > maxEndpoints {
		return nil, fmt.Errorf("%w: %d endpoints, at most %d", backend.ErrInvalid, len(endpoints), maxEndpoints)
	}
	return endpoints, nil
}

const (
	connectTimeout = 5 * time.Second
	// connectTimeoutOfSeveral leaves time for another endpoint within the default timeout
	// of a call, also if the server accepts connections and does not answer (helloTimeout).
	connectTimeoutOfSeveral = time.Second
)

// connectTimeout bounds the making of a connection.
func (c *Network) connectTimeout() time.Duration {
	if c.endpoints > 1 {
		return connectTimeoutOfSeveral
	}
	return connectTimeout
}

// candidates are the connections that calls use: those of the current endpoint.
func (c *Network) candidates() []*conn {
	n := len(c.conns) / c.endpoints
	i := int(c.current.Load())
	return c.conns[i*n : (i+1)*n]
}

// moveOn makes the next endpoint the current one, since the one that conn belongs to
// cannot be reached. Nothing happens if another call has moved on already.
func (c *Network) moveOn(from *conn) {
	if c.endpoints > 1 && from != nil {
		c.current.CompareAndSwap(int32(from.endpoint), int32((from.endpoint+1)%c.endpoints))
	}
}
