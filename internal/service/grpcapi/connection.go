package grpcapi

import (
	"context"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/peer"

	"github.com/kvd-db/kvd/internal/service"
)

// connection is a connection by gRPC. gRPC takes it for what came of the handshake, and
// gives it to every call.
type connection struct {
	*service.Conn
	peer *peerState
	// refused is why there is no place for it, and all its calls are refused.
	refused *service.Error

	intake intakeUse    // guarded by api.intake
	unread atomic.Int64 // bytes of answers to unary calls that the transport has
	loans  loans        // what answers have
	// end ends the connection.
	end func(why error)

	calls struct {
		sync.Mutex
		last     uint32 // stream that was opened; admit is called for it next, if at all
		empty    bool   // nothing of its request will come
		closed   bool   // no stream is opened after last: the client is told so
		byStream map[uint32]*call
	}
}

// peerState is what is remembered of a peer of connections.
type peerState struct {
	loopback bool
	intake   intakeUse    // guarded by api.intake
	unread   atomic.Int64 // as of a connection
}

type peerKey struct{}

func newConnection(c *service.Conn) *connection {
	p := c.Peer()
	state := p.State(peerKey{}, func() any { return &peerState{loopback: p.Loopback()} }).(*peerState)
	return &connection{Conn: c, peer: state, refused: c.Refused()}
}

// AuthType implements credentials.AuthInfo.
func (c *connection) AuthType() string { return "kvd" }

// connectionOf returns the connection that a call came by.
func connectionOf(ctx context.Context) *connection {
	p, _ := peer.FromContext(ctx)
	return p.AuthInfo.(*connection)
}

// endWith ends the connection and tells the client why.
func (c *connection) endWith(why error) {
	if c.end != nil {
		c.end(why)
	}
}

// opened is told of each stream that the client opens, or ends with headers. If it was open
// it returns the call that ends, if that still expects something. It returns false after
// closeStreams: gRPC must then not see the headers.
func (c *connection) opened(stream uint32, ended bool) (one *call, ok bool) {
	c.calls.Lock()
	defer c.calls.Unlock()
	if c.calls.closed {
		return nil, false
	}
	c.calls.last, c.calls.empty = max(c.calls.last, stream), ended
	if !ended {
		return nil, true
	}
	return c.calls.byStream[stream], true
}

// closeStreams returns the last stream that was opened, and has opened refuse those after it. So
// the client may be told that none of them was processed.
func (c *connection) closeStreams() (last uint32) {
	c.calls.Lock()
	defer c.calls.Unlock()
	c.calls.closed = true
	return c.calls.last
}

// bind notes the call of the stream that was opened last.
func (c *connection) bind(one *call) {
	c.calls.Lock()
	defer c.calls.Unlock()
	if c.calls.byStream == nil {
		c.calls.byStream = make(map[uint32]*call)
	}
	one.stream = c.calls.last
	c.calls.byStream[one.stream] = one
	one.here.Store(c.calls.empty)
}

// unbind forgets a call of which no part of a request is to come.
func (c *connection) unbind(one *call) {
	c.calls.Lock()
	defer c.calls.Unlock()
	delete(c.calls.byStream, one.stream)
}

// arrived is told of the parts of requests. It returns the call, nil if that expects none.
func (c *connection) arrived(stream uint32, bytes int) (one *call) {
	c.calls.Lock()
	one = c.calls.byStream[stream]
	c.calls.Unlock()
	if one != nil && bytes > 0 {
		one.arrived(bytes)
	}
	return one
}

// busy reports whether a call is under way, other than those that wait for their client.
func (c *connection) busy() bool {
	if c.Calls() > 0 {
		return true
	}
	c.calls.Lock()
	defer c.calls.Unlock()
	for _, one := range c.calls.byStream {
		if one.wait.Idle != nil && !one.idle() {
			return true
		}
	}
	return false
}
