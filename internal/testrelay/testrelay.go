// Package testrelay gives tests an address that is known before the server behind it listens.
package testrelay

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// Relay passes connections on to a server. Its address stays when the server starts again
// elsewhere.
type Relay struct {
	listener net.Listener
	target   atomic.Pointer[string] // nil: connections are closed
}

// New returns a relay without a server. It listens on loopback until the test ends.
func New(t testing.TB) *Relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("testrelay: %v", err)
	}
	r := &Relay{listener: l}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { r.pass(in) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		running.Wait()
	})
	return r
}

// Addr returns the address of the relay.
func (r *Relay) Addr() string { return r.listener.Addr().String() }

// To has connections from now on passed to a server at an address.
func (r *Relay) To(address string) { r.target.Store(&address) }

func (r *Relay) pass(in net.Conn) {
	defer func() { _ = in.Close() }()
	target := r.target.Load()
	if target == nil {
		return
	}
	out, err := net.Dial("tcp", *target)
	if err != nil {
		return
	}
	var both sync.WaitGroup
	for _, c := range [][2]net.Conn{{in, out}, {out, in}} {
		both.Go(func() {
			_, _ = io.Copy(c[0], c[1])
			_, _ = c[0].Close(), c[1].Close()
		})
	}
	both.Wait()
}
