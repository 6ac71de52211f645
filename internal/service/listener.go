package service

import (
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// limit returns a listener that keeps the limits of connections, in total and per address.
// A connection beyond them replaces one that idles. If none idles, the new connection is told
// why it is closed.
func (s *Server) limit(l net.Listener) net.Listener { return &limitedListener{Listener: l, server: s} }

type limitedListener struct {
	net.Listener
	server *Server
}

// Accept returns the next connection within the limits, or one that is to be refused.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &acceptedConn{Conn: conn}
		c.leave = sync.OnceFunc(func() { l.server.leave(c) })
		victim, ok := l.server.enter(c, peerOf(conn))
		if victim != nil {
			victim.evict(l.server)
		}
		if ok {
			return c, nil
		}
		// The peer sees a closed connection; an error of that has no receiver.
		_ = conn.Close()
	}
}

// maxRefusing is how many connections at a time are told why they are refused; further ones
// are closed without a message. Their files are not within the limits of connections.
const maxRefusing = 32

// enter counts a connection. It returns the connection that must end for it, if any, and
// false if there is no place, not even to tell the client so.
func (s *Server) enter(c *acceptedConn, address string) (victim *acceptedConn, ok bool) {
	s.peers.Lock()
	defer s.peers.Unlock()
	c.peer = s.peers.getLocked(address)
	c.marked.at = time.Now()
	full := noReason
	switch {
	case c.peer.open >= s.options.PeerConnections:
		full, victim = shedByPeer, c.peer.idleLocked(c.marked.at)
	case s.counters.connections.Load() >= int64(s.options.Connections):
		full, victim = shedByConnections, s.peers.largestLocked().idleLocked(c.marked.at)
	}
	if full != noReason {
		s.counters.shed(full)
		if victim == nil {
			defer s.peers.leftLocked(c.peer)
			if s.peers.refusing == maxRefusing {
				return nil, false
			}
			s.peers.refusing++
			c.refused = full
			return nil, true
		}
	}
	c.counted = true
	if c.peer.conns == nil {
		c.peer.conns = make(map[*acceptedConn]struct{})
	}
	c.peer.conns[c] = struct{}{}
	c.peer.open++
	if victim != nil {
		s.leaveLocked(victim) // now that its peer, which may be that of c, has c
	}
	s.counters.connections.Add(1)
	s.counters.accepted.Add(1)
	return victim, true
}

func (s *Server) leave(c *acceptedConn) {
	s.peers.Lock()
	defer s.peers.Unlock()
	s.leaveLocked(c)
}

func (s *Server) leaveLocked(c *acceptedConn) {
	switch {
	case c.refused != noReason:
		s.peers.refusing--
		c.refused = noReason
	case c.counted:
		c.counted = false
		s.counters.connections.Add(-1)
		c.peer.open--
		delete(c.peer.conns, c)
		s.peers.leftLocked(c.peer)
	}
}

// idleLocked returns the connection of a peer that has idled longest and has nothing under
// way; nil if there is none. Movement is noticed only here: a connection on which something
// arrived since the last call counts as idle from this call on.
func (p *Peer) idleLocked(now time.Time) (longest *acceptedConn) {
	for c := range p.conns {
		if moves := c.moves.Load(); moves != c.marked.moves {
			c.marked.moves, c.marked.at = moves, now
		}
		if longest != nil && !c.marked.at.Before(longest.marked.at) {
			continue
		}
		if user := c.user.Load(); user == nil || !(*user).InUse() {
			longest = c
		}
	}
	return longest
}

// acceptedConn leaves the count when it is closed.
type acceptedConn struct {
	net.Conn
	peer  *Peer
	leave func()
	// moves changes when something arrives. user is nil until the protocol is known.
	moves atomic.Uint64
	user  atomic.Pointer[User]
	// greeted: something arrived, so use follows unless the handshake fails. evicted: the
	// connection must end. told: its user was asked to end it.
	greeted, evicted atomic.Bool
	told             sync.Once

	// Guarded by the table of peers.
	counted bool
	refused Shed // why there is no place for it; noReason if there is
	marked  struct {
		moves uint64
		at    time.Time
	}
}

// evict ends a connection that idles, without waiting for the end. A handshake that is under
// way may not read any more; its client may have a first answer already, and then use tells
// it why the connection ends.
func (c *acceptedConn) evict(s *Server) {
	c.evicted.Store(true)
	if user := c.user.Load(); user != nil {
		s.conns.Go(func() { c.told.Do((*user).Evict) }) // a shutdown waits for it
	} else if !c.greeted.Load() || c.Conn.SetReadDeadline(time.Unix(1, 0)) != nil {
		_ = c.Close() // its client has sent nothing yet, or it is broken
	}
}

// use notes what uses the connection.
func (c *acceptedConn) use(user User) {
	c.user.Store(&user)
	if c.evicted.Load() {
		c.told.Do(user.Evict)
	}
}

func (c *acceptedConn) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

// accept serves connections until the listener fails or is closed. After an error that
// passes, such as too many open files, it waits: 5 ms, then twice as long each time, up
// to a second.
func (s *Server) accept(l net.Listener) error {
	const first, longest = 5 * time.Millisecond, time.Second
	pause := time.Duration(0)
	for {
		conn, err := l.Accept()
		if err == nil {
			pause = 0
			s.conns.Go(func() { s.demux.serve(conn.(*acceptedConn)) })
			continue
		}
		passing, ok := err.(interface{ Temporary() bool })
		if !ok || !passing.Temporary() {
			return err
		}
		pause = min(max(2*pause, first), longest)
		select {
		case <-time.After(pause):
		case <-s.draining.Done():
		}
	}
}
