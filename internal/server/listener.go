package server

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

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
		peer, reason, ok := l.server.enter(peerOf(conn))
		if !ok {
			l.server.counters.shed(reason)
			// The peer sees a closed connection; there is nobody to tell if that fails.
			_ = conn.Close()
			continue
		}
		return &countedConn{Conn: conn, peer: peer, leave: sync.OnceFunc(func() { l.server.leave(peer) })}, nil
	}
}

func (s *Server) enter(address string) (p *peerEntry, reason int, ok bool) {
	s.peers.Lock()
	defer s.peers.Unlock()
	p = s.peers.getLocked(address)
	if s.counters.connections.Load() >= int64(s.options.Connections) {
		s.peers.leftLocked(p)
		return nil, shedByConnections, false
	}
	if p.open >= s.options.PeerConnections {
		return nil, shedByPeer, false
	}
	p.open++
	s.counters.connections.Add(1)
	s.counters.accepted.Add(1)
	return p, 0, true
}

func (s *Server) leave(p *peerEntry) {
	s.peers.Lock()
	defer s.peers.Unlock()
	s.counters.connections.Add(-1)
	p.open--
	s.peers.leftLocked(p)
}

// countedConn leaves the count when it is closed.
type countedConn struct {
	net.Conn
	peer  *peerEntry
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
