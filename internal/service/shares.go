package service

import "sync"

// shares bound how much of a resource all connections have together, and how much each has:
// a connection may have as much as is free (the dynamic threshold of Choudhury and Hahne,
// 1998). So a lone connection gets half, each of k connections gets 1/(k+1), and a new
// connection finds as much free as each of the others has.
type shares struct {
	kind  shareKind
	limit int

	mu struct {
		sync.Mutex
		total int
	}
}

type shareKind int

const (
	shareOfCalls shareKind = iota
	shareOfSnapshots
	shareKinds
)

const (
	// leastShare is what a connection may have in any case, if it is free.
	leastShare = 2
	// peerShare is what all connections of a peer may have together, as a multiple of what
	// is free. The clients of this machine, which have one address, may have everything.
	peerShare = 4
)

// enter takes one unit for a connection, if the connection may have one more.
func (s *shares) enter(c *Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	free := s.limit - s.mu.total
	own, peer := &c.shares[s.kind], &c.peer.shares[s.kind]
	if free <= 0 || *own >= max(free, leastShare) || !c.peer.loopback && *peer >= max(peerShare*free, leastShare) {
		return false
	}
	s.mu.total++
	*own++
	*peer++
	return true
}

// holding returns what a connection has, and what its holder has: its peer or, for clients
// of this machine, which have one address, the connection itself.
func (s *shares) holding(c *Conn) (own, holder int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	own = c.shares[s.kind]
	if c.peer.loopback {
		return own, own
	}
	return own, c.peer.shares[s.kind]
}

// leave gives one unit back.
func (s *shares) leave(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.total--
	c.shares[s.kind]--
	c.peer.shares[s.kind]--
}

// move moves one unit from a connection to another, without regard to the limits.
func (s *shares) move(from, to *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from.shares[s.kind]--
	from.peer.shares[s.kind]--
	to.shares[s.kind]++
	to.peer.shares[s.kind]++
}

// scarcePart is the part of the limit below which what is free is scarce.
const scarcePart = 8

// scarceFor reports whether what is free is scarce while a connection has more than the
// same part.
func (s *shares) scarceFor(c *Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	scarce := s.limit / scarcePart
	return s.limit-s.mu.total < scarce && c.shares[s.kind] > scarce
}

// total returns how many units are taken.
func (s *shares) total() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.total
}
