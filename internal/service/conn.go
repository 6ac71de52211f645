package service

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/kvd-db/kvd/internal/admission"
	"github.com/kvd-db/kvd/internal/audit"
	"github.com/kvd-db/kvd/internal/auth"
	"github.com/kvd-db/kvd/internal/rawconn"
)

// Conn is a connection of a client, whatever protocol it speaks: what it carries, after
// TLS if there is any, and what the server counts for it.
//
// Its protocol closes it. Read, Peeked and Socket are used by one goroutine at a time.
type Conn struct {
	net.Conn
	server   *Server
	accepted *acceptedConn // nil: it came by no listener
	peer     *Peer
	peeked   []byte
	// handshakeEnds is when the client must have said what it has to say at first.
	handshakeEnds time.Time
	// certificate is the session of the client's certificate, and session that of the token
	// that it showed last; nil: none.
	certificate, session *auth.Session
	// audited is the session that the client signed in with last, if signedIn.
	audited  *auth.Session
	signedIn bool

	lines   [gateCount]admission.Client // guarded by each of the gates
	waits   [waitKinds]waitShare        // guarded by each of Server.waits
	shares  [shareKinds]int             // guarded by each of Server.shares
	wasted  Allowance                   // guarded by the table of peers
	quota   connQuota
	flooded atomic.Bool
	closed  atomic.Bool
}

// newConn returns a connection of a peer, whose turns at the gates it shares. The
// connections of this machine, all of which have one address, have turns of their own.
func newConn(s *Server, conn net.Conn, p *Peer) *Conn {
	c := &Conn{Conn: conn, server: s, peer: p}
	if !p.loopback {
		for k := range c.lines {
			c.lines[k].Peer = &p.lines[k]
		}
	}
	return c
}

// NewConn returns a connection that came by no listener. It has an address of its own,
// and does not count against the limits of connections.
func NewConn(s *Server, conn net.Conn) *Conn { return newConn(s, conn, new(Peer)) }

type connKey struct{}

// WithConn returns a context of work for a connection.
func WithConn(ctx context.Context, c *Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// ConnKey is the key of the *Conn in the context of its work, for implementations of
// contexts.
func ConnKey() any { return connKey{} }

// ConnOf returns the connection that the work of a context is for.
func ConnOf(ctx context.Context) *Conn {
	c, _ := ctx.Value(connKey{}).(*Conn)
	return c
}

// Read implements net.Conn. What was peeked comes first.
func (c *Conn) Read(p []byte) (int, error) {
	if len(c.peeked) > 0 {
		n := copy(p, c.peeked)
		c.peeked = c.peeked[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

// Peeked returns the bytes that were read to recognise the protocol. From then on Read
// does not return them.
func (c *Conn) Peeked() []byte {
	peeked := c.peeked
	c.peeked = nil
	return peeked
}

// Socket returns the socket that the bytes of a plain connection come from, or nil if the
// connection is to be read and written by its own methods.
func (c *Conn) Socket() *rawconn.Conn {
	if c.server.options.TLS != nil {
		return nil
	}
	return c.server.socketOf(c.Accepted())
}

// socketOf returns nil if a connection is to be read and written by its own methods.
func (s *Server) socketOf(conn net.Conn) *rawconn.Conn {
	if s.options.NetOnly {
		return nil
	}
	return rawconn.New(conn)
}

// SignIn returns the session of a token that the client shows, or, for an empty one, that of
// its certificate; nil: it has shown nothing, or need not. Used by one goroutine at a
// time.
func (c *Conn) SignIn(token string) *auth.Session {
	if c.server.options.Auth == nil {
		return nil
	}
	session := c.certificate
	if token != "" {
		if !c.session.Shows(token) {
			c.session = c.server.options.Auth.SignIn(token)
		}
		session = c.session
	}
	if !c.signedIn || session != c.audited {
		c.signedIn, c.audited = true, session
		c.auditSignIn(session)
	}
	return session
}

func (c *Conn) auditSignIn(session *auth.Session) {
	e := audit.Event{Kind: audit.SignIn, Peer: c.Name()}
	if identity, err := session.Identity(time.Now()); err != nil {
		e.Kind, e.Reason = audit.SignInFailed, err.Error()
	} else {
		e.Identity = identity.Name
	}
	c.server.options.Audit(e)
}

// Accepted returns the connection as the listener returned it, without TLS.
func (c *Conn) Accepted() net.Conn {
	if c.accepted != nil {
		return c.accepted.Conn
	}
	return c.Conn
}

// Peer returns the address that the connection comes from.
func (c *Conn) Peer() *Peer { return c.peer }

// HandshakeEnds returns when the handshake must be over.
func (c *Conn) HandshakeEnds() time.Time { return c.handshakeEnds }

// Moved notes that something has come. A connection on which nothing comes is the first to
// be evicted.
func (c *Conn) Moved() {
	if c.accepted != nil {
		c.accepted.moves.Add(1)
	}
}

// Use notes what uses the connection. Until then it is evicted without a word.
func (c *Conn) Use(u User) {
	if c.accepted != nil {
		c.accepted.use(u)
	}
}

// Refused returns why there is no place for the connection, or nil if there is one. Its
// protocol tells the client and ends it.
func (c *Conn) Refused() *Error {
	if c.accepted == nil {
		return nil
	}
	c.server.peers.Lock()
	reason := c.accepted.refused
	c.server.peers.Unlock()
	if reason == noReason {
		return nil
	}
	return refusedConnection(reason)
}

// Waste counts work that the client began and did not go on with. It reports whether that
// is too much, and the connection is to be ended.
func (c *Conn) Waste() (flood bool) { return c.server.waste(c) }

// Flooded reports whether Waste has returned true.
func (c *Conn) Flooded() bool { return c.flooded.Load() }

// EnterCall takes a share of the calls that are being served, if the connection may have
// one more.
func (c *Conn) EnterCall() bool { return c.server.shares[shareOfCalls].enter(c) }

// LeaveCall gives it back.
func (c *Conn) LeaveCall() { c.server.shares[shareOfCalls].leave(c) }

// Calls returns how many calls of the connection are being served.
func (c *Conn) Calls() int {
	own, _ := c.server.shares[shareOfCalls].holding(c)
	return own
}

// Close implements net.Conn. TLS tells the client that the connection ends, and would wait
// for five seconds for one that does not read.
func (c *Conn) Close() error {
	c.closed.Store(true)
	c.leaveQuotas()
	if c.accepted != nil && c.server.options.TLS != nil {
		hurry := time.AfterFunc(c.server.options.Lifetimes.ShutdownWait, func() { _ = c.Accepted().Close() })
		defer hurry.Stop()
	}
	return c.Conn.Close()
}

// Name returns where the connection comes from, for logs.
func (c *Conn) Name() string {
	if c == nil || c.Conn == nil || c.RemoteAddr() == nil {
		return ""
	}
	return c.RemoteAddr().String()
}

// State returns what a protocol keeps for the peer, made by create at first. It lasts as
// long as the server remembers the peer. The key is of a type of the protocol's own.
func (p *Peer) State(key any, create func() any) any {
	if state, ok := p.states.Load(key); ok {
		return state
	}
	state, _ := p.states.LoadOrStore(key, create())
	return state
}

// Loopback reports whether the address is that of all clients of this machine, which is
// no peer to be limited.
func (p *Peer) Loopback() bool { return p.loopback }
