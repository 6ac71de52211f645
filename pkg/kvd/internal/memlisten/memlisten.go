// Package memlisten makes connections in memory for tests, also for tests in a synctest bubble.
package memlisten

import (
	"context"
	"net"

	"google.golang.org/grpc/test/bufconn"
)

// Listener is a bufconn.Listener that makes its connections one after the other. A connection of
// bufconn sets timers that are due at once. In a bubble such a timer runs on the goroutine that
// sets it, and Go 1.26 gives all of them one context of the race detector: two that run at the same
// time crash the process.
type Listener struct {
	*bufconn.Listener
	turn chan struct{} // holds a value while a connection is made
}

// Listen returns a listener whose connections hold at most size bytes in each direction.
func Listen(size int) *Listener {
	return &Listener{bufconn.Listen(size), make(chan struct{}, 1)}
}

// Dial is DialContext without a context.
func (l *Listener) Dial() (net.Conn, error) { return l.DialContext(context.Background()) }

// DialContext returns the client's end of a new connection once the server has accepted it, or an
// error when ctx ends or the listener is closed.
func (l *Listener) DialContext(ctx context.Context) (net.Conn, error) {
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
		return l.Listener.DialContext(ctx)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
