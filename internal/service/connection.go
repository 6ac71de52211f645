package service

import (
	"context"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/kvd-db/kvd/internal/admission"
)

// connection is what the server remembers of one: its lines at the gates, and its share of
// what others need too. gRPC takes it for what came of the handshake, and gives it to every
// call.
type connection struct {
	credentials.AuthInfo
	lines [gateCount]admission.Client
	peer  *peerEntry
	// refused is why there is no place for it, and all its calls are refused.
	refused int
	// closed: nothing comes any more.
	closed atomic.Bool

	waits  [waitKinds]waitShare // guarded by each of Server.waits
	shares [shareKinds]int      // guarded by each of Server.shares
	intake intakeUse            // guarded by Server.intake
	resets allowance            // guarded by the table of peers
	unread atomic.Int64         // bytes of answers to unary calls that the transport has
	loans  loans                // what answers have, by gRPC
	// end ends the connection; nil of raw frames.
	end func(why error)
	// flooded: too many of its streams were reset.
	flooded atomic.Bool

	// What follows is of connections that gRPC has.
	calls struct {
		sync.Mutex
		last     uint32 // stream that was opened; admit is called for it next, if at all
		empty    bool   // nothing of its request will come
		byStream map[uint32]*call
	}
}

// newConnection returns one of a peer, whose turns at the gates it shares. The connections of
// this machine, all of which have one address, have turns of their own.
func newConnection(p *peerEntry) *connection {
	c := &connection{peer: p}
	if !p.loopback {
		for k := range c.lines {
			c.lines[k].Peer = &p.lines[k]
		}
	}
	return c
}

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
// it returns the call that ends, if that still expects something.
func (c *connection) opened(stream uint32, ended bool) *call {
	c.calls.Lock()
	defer c.calls.Unlock()
	c.calls.last, c.calls.empty = stream, ended
	if !ended {
		return nil
	}
	return c.calls.byStream[stream]
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
func (c *connection) busy(s *shares) bool {
	s.mu.Lock()
	served := c.shares[s.kind]
	s.mu.Unlock()
	if served > 0 {
		return true
	}
	c.calls.Lock()
	defer c.calls.Unlock()
	for _, one := range c.calls.byStream {
		if one.wait.idle != nil && !one.idle() {
			return true
		}
	}
	return false
}
