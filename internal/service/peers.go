package service

import (
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/kvd-db/kvd/internal/admission"
)

// Peer is what the server remembers of an address: that of one machine, or, of version 6,
// of one network of 64 bits, since one machine may have all of them. Its fields are guarded
// by the table of peers, except for those that name another guard.
type Peer struct {
	address  string
	loopback bool
	open     int // connections
	conns    map[*acceptedConn]struct{}
	wasted   Allowance
	lines    [gateCount]admission.Peer // guarded by each of the gates

	waits  [waitKinds]waitShare // guarded by each of Server.waits
	shares [shareKinds]int      // guarded by each of Server.shares
	states sync.Map             // of protocols
}

// peerTable has the peers with open connections, and those that were reset lately.
type peerTable struct {
	sync.Mutex
	peers map[string]*Peer
	// refusing counts the connections that are told that there is no place for them.
	refusing int
}

// maxForgotten is how many peers without a connection are remembered, so that a peer that
// connects again finds its old state. Guessed.
const maxForgotten = 1024

// getLocked returns the peer of an address.
func (t *peerTable) getLocked(address string) *Peer {
	p := t.peers[address]
	if p == nil {
		p = &Peer{address: address, loopback: loopback(address)}
		t.peers[address] = p
	}
	return p
}

// largestLocked returns the peer with the most connections.
func (t *peerTable) largestLocked() (largest *Peer) {
	for _, p := range t.peers {
		if largest == nil || p.open > largest.open {
			largest = p
		}
	}
	return largest
}

// leftLocked forgets a peer without connections, unless what it has wasted must be remembered.
// One that was forgotten before may have a successor by now, which stays.
func (t *peerTable) leftLocked(p *Peer) {
	if p.open > 0 || t.peers[p.address] != p {
		return
	}
	if len(t.peers) > maxForgotten || p.wasted.left(peerWasteRate, time.Now()) == 0 {
		delete(t.peers, p.address)
	}
}

// peerOf returns the address without the port: what a machine cannot change.
func peerOf(conn net.Conn) string {
	addr := conn.RemoteAddr().String()
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if ip = ip.Unmap().WithZone(""); ip.Is4() || ip.IsLoopback() {
		return ip.String()
	}
	prefix, err := ip.Prefix(64)
	if err != nil {
		return host
	}
	return prefix.String()
}

// loopback reports whether an address that peerOf returned is that of all clients of this
// machine.
func loopback(address string) bool {
	if ip, err := netip.ParseAddr(address); err == nil {
		return ip.IsLoopback()
	}
	_, err := netip.ParsePrefix(address)
	return err != nil // a unix socket
}

// Allowance is a leaky bucket: what was taken of it, and leaks out with time. The zero
// value is empty.
type Allowance struct {
	level float64
	at    time.Time
}

// left is the level at a time, at a rate a second.
func (a *Allowance) left(rate float64, now time.Time) float64 {
	return max(0, a.level-now.Sub(a.at).Seconds()*rate)
}

// Take adds to the level and returns it.
func (a *Allowance) Take(n, rate float64, now time.Time) float64 {
	a.level, a.at = a.left(rate, now)+n, now
	return a.level
}

// Give takes from the level.
func (a *Allowance) Give(n float64) { a.level = max(0, a.level-n) }

const (
	// connWaste bounds the requests of a connection that its client gives up, or that are
	// ended because it broke the protocol: so many at once, and so many a second. Guessed:
	// four times what a connection by gRPC has open, for a client all of whose calls run
	// out of time.
	connWaste     = 1024
	connWasteRate = 100
	// peerWaste bounds those of all connections of a peer. Beyond it a connection is ended
	// at fewWasted: one that is made again after it was ended gets no more.
	peerWaste     = 4 * connWaste
	peerWasteRate = 4 * connWasteRate
	fewWasted     = 32
)

// waste counts a request that was given up, and reports whether that is one too many.
func (s *Server) waste(c *Conn) (flood bool) {
	s.peers.Lock()
	defer s.peers.Unlock()
	now := time.Now()
	own := c.wasted.Take(1, connWasteRate, now)
	all := c.peer.wasted.Take(1, peerWasteRate, now)
	if own > connWaste || all > peerWaste && own > fewWasted {
		c.flooded.Store(true)
	}
	return c.flooded.Load()
}
