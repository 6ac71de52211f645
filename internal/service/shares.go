package service

import "sync"

// shares bound what all connections have of something, and what each has as long as others
// may need it: a connection may have as much as is free beside it (the dynamic threshold of
// Choudhury and Hahne, 1998). So a lone one gets half, each of k gets 1/(k+1), and one that
// comes late finds as much free as each of the others has.
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
	// leastShare is what a connection may have of what is free in any case.
	leastShare = 2
	// peerShare is what all connections of a peer may have, as a multiple of what is
	// free. The clients of this machine, all of which have one address, may have all.
	peerShare = 4
)

// enter takes one for a connection, if it may have one more.
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

// holding returns what a connection has, and what its holder has: its peer, or, on this
// machine, all of whose clients have one address, the connection itself.
func (s *shares) holding(c *Conn) (own, holder int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	own = c.shares[s.kind]
	if c.peer.loopback {
		return own, own
	}
	return own, c.peer.shares[s.kind]
}

// leave gives one back.
func (s *shares) leave(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.total--
	c.shares[s.kind]--
	c.peer.shares[s.kind]--
}

// move makes one connection's another's, whatever that has.
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

// scarceFor reports whether what is free is scarce, and a connection has more than that
// part.
func (s *shares) scarceFor(c *Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	scarce := s.limit / scarcePart
	return s.limit-s.mu.total < scarce && c.shares[s.kind] > scarce
}

// total is how many are taken.
func (s *shares) total() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.total
}
