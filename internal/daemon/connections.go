package daemon

import (
	"crypto/tls"
	"fmt"
	"math"
	"net"
	"net/http"
	"slices"
	"sync"
)

const (
	// maxConns and maxPeerConns are the defaults if enough files may be open.
	maxConns     = 10240
	maxPeerConns = 1024
	maxAdmin     = 64
	// ownFiles is how many files the process itself needs: standard streams, listeners,
	// the runtime, and connections that are being refused.
	ownFiles = 96
	// commonFileLimit is the default limit of most systems.
	commonFileLimit = 1024
	// leastFiles is how many files a store needs at least. Guessed: the log, locks, and
	// some tables of each partition.
	leastFiles = 256
	// storeFiles is how many files are left to a store before connections get more than half of
	// all: 256 GiB of tables of 32 MiB.
	storeFiles = 8192
)

// connLimits bound the connections of the process.
type connLimits struct{ clients, peer, admin int }

// limitConnections derives limits that are not set from the number of files that the
// process may have open: the store gets half of them, at most storeFiles, connections the rest.
func (c *Config) limitConnections(files uint64) error {
	for _, n := range []struct {
		name string
		v    int
	}{{"max-connections", c.MaxConns}, {"max-peer-connections", c.MaxPeerConns}, {"max-admin-connections", c.MaxAdminConns}} {
		if n.v < 0 || n.v > 1<<20 {
			return fmt.Errorf("%w: --%s %d; want 1 to %d, or 0 to derive it from the limit of open files", ErrUsage, n.name, n.v, 1<<20)
		}
	}
	usable := int(min(files, math.MaxInt32)) - ownFiles
	if usable < leastFiles+2 {
		return fmt.Errorf("%w: the process may have %d files open, want at least %d: raise the limit, for example with ulimit -n", ErrUsage, files, ownFiles+leastFiles+2)
	}
	setUnset(&c.MaxAdminConns, min(maxAdmin, usable/16))
	setUnset(&c.MaxConns, min(maxConns, usable-max(leastFiles, min((usable+1)/2, storeFiles))-c.MaxAdminConns))
	c.MaxConns = max(c.MaxConns, 1)
	// If there are few connections, one machine must leave some to others.
	setUnset(&c.MaxPeerConns, min(maxPeerConns, c.MaxConns-c.MaxConns/8))
	if taken := c.MaxConns + c.MaxAdminConns; taken > usable-leastFiles {
		return fmt.Errorf("%w: --max-connections %d and --max-admin-connections %d leave less than %d files to the store: "+
			"the process may have %d open. Raise that limit, for example with ulimit -n, or allow fewer connections",
			ErrUsage, c.MaxConns, c.MaxAdminConns, leastFiles, files)
	}
	return nil
}

func setUnset(v *int, derived int) {
	if *v == 0 {
		*v = max(derived, 1)
	}
}

// pageConns are the connections of the admin pages. If there are too many, a new one
// replaces the one that has been idle longest, so that clients with idle connections cannot
// lock operators out.
type pageConns struct {
	limit int

	mu   sync.Mutex
	idle []net.Conn // without a request, the longest idle first
	busy map[net.Conn]struct{}
}

func newPageConns(limit int) *pageConns {
	return &pageConns{limit: limit, busy: make(map[net.Conn]struct{})}
}

// track is the http.Server.ConnState of the admin pages.
func (p *pageConns) track(conn net.Conn, state http.ConnState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forgetLocked(conn)
	switch state {
	case http.StateNew, http.StateIdle:
		p.idle = append(p.idle, conn)
	case http.StateActive:
		p.busy[conn] = struct{}{}
	}
	for len(p.idle)+len(p.busy) > p.limit && len(p.idle) > 0 {
		eldest := p.idle[0]
		p.idle = p.idle[1:]
		closeNow(eldest) // its server hears of that
	}
}

// closeNow closes a connection. TLS would wait for a client that does not read.
func closeNow(conn net.Conn) {
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	_ = conn.Close()
}

func (p *pageConns) forgetLocked(conn net.Conn) {
	delete(p.busy, conn)
	if i := slices.Index(p.idle, conn); i >= 0 {
		p.idle = slices.Delete(p.idle, i, i+1)
	}
}
