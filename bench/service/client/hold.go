package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"github.com/kvd-db/kvd/pkg/kvd"
)

// Held are idle connections to a kvd server, each of a client that has made one health
// check.
type Held struct {
	clients []*kvd.Client
	closed  atomic.Int64 // connections that ended
}

// heldPerAddress is below the server's limit for one address, 1,024.
const heldPerAddress = 1000

// Hold opens n connections, from as many loopback addresses as the server's limit
// requires.
func Hold(ctx context.Context, address string, n int) (*Held, error) {
	h := &Held{clients: make([]*kvd.Client, n)}
	err := h.each(func(i int) error {
		dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(1+i/heldPerAddress))}}
		c, err := kvd.Open(address, kvd.WithConns(1), kvd.WithDialer(func(ctx context.Context, address string) (net.Conn, error) {
			c, err := dialer.DialContext(ctx, "tcp", address)
			return &heldConn{Conn: c, closed: &h.closed}, err
		}))
		if err != nil {
			return err
		}
		h.clients[i] = c
		return c.Ping(ctx)
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("hold %d connections: %w", n, err), h.Close())
	}
	return h, nil
}

// Count checks the server once more over each connection, and returns how many of the
// original connections are still open.
func (h *Held) Count(ctx context.Context) (int, error) {
	err := h.each(func(i int) error { return h.clients[i].Ping(ctx) })
	return max(len(h.clients)-int(h.closed.Load()), 0), err
}

// Close ends all connections.
func (h *Held) Close() error {
	return h.each(func(i int) error {
		if h.clients[i] == nil {
			return nil
		}
		return h.clients[i].Close()
	})
}

// holders are the goroutines that open connections.
const holders = 64

// each calls f for every connection, several at a time, and returns the first errors.
func (h *Held) each(f func(i int) error) error {
	var next atomic.Int64
	var group sync.WaitGroup
	errs := make([]error, holders)
	for n := range holders {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(h.clients) && errs[n] == nil; i = int(next.Add(1)) - 1 {
				errs[n] = f(i)
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// heldConn notes when it is closed.
type heldConn struct {
	net.Conn
	once   sync.Once
	closed *atomic.Int64
}

func (c *heldConn) Close() error {
	c.once.Do(func() { c.closed.Add(1) })
	return c.Conn.Close()
}
