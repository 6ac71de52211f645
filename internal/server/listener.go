package server

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// peerTable counts the open connections of each address.
type peerTable struct {
	sync.Mutex
	open map[string]int
}

// limit returns a listener that closes at once what exceeds the limits of
// connections, in all and of one address.
func (s *Server) limit(l net.Listener) net.Listener { return &limitedListener{Listener: l, server: s} }

type limitedListener struct {
	net.Listener
	server *Server
}

// Accept returns the next connection within the limits.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		peer := peerOf(conn)
		if reason, ok := l.server.enter(peer); !ok {
			l.server.counters.shed(reason)
			// The peer sees a closed connection; there is nobody to tell if that fails.
			_ = conn.Close()
			continue
		}
		return &countedConn{Conn: conn, leave: sync.OnceFunc(func() { l.server.leave(peer) })}, nil
	}
}

// peerOf is the address without the port: what one machine cannot change.
func peerOf(conn net.Conn) string {
	addr := conn.RemoteAddr().String()
	if host, _, err := net.SplitHostPort(addr); err == nil {
		return host
	}
	return addr
}

func (s *Server) enter(peer string) (reason int, ok bool) {
	s.peers.Lock()
	defer s.peers.Unlock()
	if s.counters.connections.Load() >= int64(s.options.Connections) {
		return shedByConnections, false
	}
	if s.peers.open[peer] >= s.options.PeerConnections {
		return shedByPeer, false
	}
	s.peers.open[peer]++
	s.counters.connections.Add(1)
	s.counters.accepted.Add(1)
	return 0, true
}

func (s *Server) leave(peer string) {
	s.peers.Lock()
	defer s.peers.Unlock()
	s.counters.connections.Add(-1)
	if s.peers.open[peer]--; s.peers.open[peer] == 0 {
		delete(s.peers.open, peer)
	}
}

// countedConn leaves the count when it is closed.
type countedConn struct {
	net.Conn
	leave func()
	// taken: gRPC no longer has it.
	taken atomic.Bool
}

func (c *countedConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

// take takes the connection away from gRPC, which clears the deadline behind the
// handshake, whatever came of that.
func (c *countedConn) take() { c.taken.Store(true) }

// SetDeadline is gRPC's.
func (c *countedConn) SetDeadline(t time.Time) error {
	if c.taken.Load() {
		return nil
	}
	return c.Conn.SetDeadline(t)
}
