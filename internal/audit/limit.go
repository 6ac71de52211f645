package audit

import (
	"net"
	"net/netip"
	"time"
)

const (
	// LinesPerSecond bounds the rate of lines of a class, and how many may come at once.
	// Guessed: more than operators read, and 2 GB a day of each at most.
	LinesPerSecond = 100
	// peerLines bounds those from one address.
	peerLines = LinesPerSecond / 2
	// maxPeers bounds the addresses of a class that have a rate of their own. Others share one.
	maxPeers = 1024
	// sweepEvery is how often at most a class looks for what it can forget.
	sweepEvery = time.Second
)

// class of lines, with a rate of its own.
type class int

const (
	ofAdmin class = iota
	ofSignIns
	ofRefusals
	classes
)

var classNames = [classes]string{Admin, SignIn, Refused}

func classOf(e *Event) class {
	switch e.Kind {
	case Admin:
		return ofAdmin
	case SignIn:
		return ofSignIns
	}
	return ofRefusals
}

// limit bounds the lines of a class.
type limit struct {
	all   rate
	peers map[string]*peerLimit
	swept time.Time
}

// peerLimit bounds the lines of a class from one address.
type peerLimit struct {
	rate
	dropped uint64 // since a line said so
}

func newLimit() limit {
	return limit{all: rate{LinesPerSecond, LinesPerSecond, time.Time{}}, peers: make(map[string]*peerLimit)}
}

// peer returns the limit of an address. Addresses beyond maxPeers share that of "".
func (l *limit) peer(c class, address string) (string, *peerLimit) {
	if p := l.peers[address]; p != nil {
		return address, p
	}
	if len(l.peers) >= maxPeers {
		address = ""
		if p := l.peers[address]; p != nil {
			return address, p
		}
	}
	most := float64(peerLines)
	if c == ofAdmin {
		most = LinesPerSecond
	}
	p := &peerLimit{rate: rate{most, most, time.Time{}}}
	l.peers[address] = p
	return address, p
}

// sweep forgets addresses from which nothing came for a while, after it has said what was
// dropped of theirs. say returns false if there is no room for that.
func (l *limit) sweep(now time.Time, say func(address string, dropped uint64) bool) {
	if now.Sub(l.swept) < sweepEvery {
		return
	}
	l.swept = now
	for address, p := range l.peers {
		if p.left(now) < p.most || p.dropped > 0 && !say(address, p.dropped) {
			continue
		}
		delete(l.peers, address)
	}
}

// rate is a token bucket.
type rate struct {
	most  float64 // lines at once, and in a second
	lines float64 // that were left at a time
	at    time.Time
}

func (r *rate) left(now time.Time) float64 {
	return min(r.most, r.lines+max(0, now.Sub(r.at).Seconds())*r.most)
}

func (r *rate) take(now time.Time) { r.lines, r.at = r.left(now)-1, now }

// addressOf returns the address of a peer without its port; of version 6, its network of 64
// bits, since one machine may have all of those addresses.
func addressOf(peer string) string {
	host, _, err := net.SplitHostPort(peer)
	if err != nil {
		return peer
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	if ip = ip.Unmap().WithZone(""); ip.Is4() || ip.IsLoopback() {
		return ip.String()
	}
	if prefix, err := ip.Prefix(64); err == nil {
		return prefix.String()
	}
	return host
}
