package service

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"
)

// protocolDemux finds out which protocol a new connection speaks. There is one port, one
// listener and one handshake of TLS, whose ALPN then names the protocol. A plain
// connection is recognised by its first byte.
type protocolDemux struct {
	server    *Server
	tls       *tls.Config // nil: plain connections
	protocols []Protocol
}

func newProtocolDemux(s *Server, protocols []Protocol) *protocolDemux {
	d := &protocolDemux{server: s, protocols: protocols}
	if s.options.TLS != nil {
		d.tls = d.secure(s.options.TLS)
		if choose := d.tls.GetConfigForClient; choose != nil {
			d.tls.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
				chosen, err := choose(hello)
				if err != nil || chosen == nil {
					return nil, err
				}
				return d.secure(chosen), nil
			}
		}
	}
	return d
}

// secure returns a configuration with the protocols of the server and without old versions
// of TLS.
func (d *protocolDemux) secure(config *tls.Config) *tls.Config {
	config = config.Clone()
	config.MinVersion = tls.VersionTLS13
	config.NextProtos = nil
	for _, p := range d.protocols {
		config.NextProtos = append(config.NextProtos, p.ALPN()) // the first one that the client knows
	}
	return config
}

// serve serves a connection that was accepted, or closes it if it speaks no protocol. It
// returns when the handshake is over; the rest has a goroutine with a small stack.
func (d *protocolDemux) serve(a *acceptedConn) {
	c, protocol := d.handshake(a)
	if protocol == nil {
		_ = a.Close() // the client has not said what it wants, and learns nothing
		return
	}
	d.server.conns.Go(func() { protocol.Serve(c) })
}

var errNoProtocol = errors.New("no protocol of this server")

// handshake returns a nil protocol for a connection that does not say in time what it is.
func (d *protocolDemux) handshake(a *acceptedConn) (*Conn, Protocol) {
	s := d.server
	ends := time.Now().Add(s.options.Lifetimes.Handshake)
	if a.SetDeadline(ends) != nil {
		return nil, nil
	}
	uncut := context.AfterFunc(s.working, func() { _ = a.Close() })
	defer uncut()
	secured, peeked, protocol, err := d.recognise(a)
	if err != nil {
		return nil, nil
	}
	c := newConn(s, secured, a.peer)
	c.accepted, c.peeked, c.handshakeEnds = a, peeked, ends
	if conn, ok := secured.(*tls.Conn); ok && s.options.Auth != nil {
		if chains := conn.ConnectionState().VerifiedChains; len(chains) > 0 {
			c.certificate = s.options.Auth.SignInByCertificate(chains[0][0])
		}
	}
	return c, protocol
}

func (d *protocolDemux) recognise(a *acceptedConn) (secured net.Conn, peeked []byte, p Protocol, err error) {
	if d.tls == nil {
		peeked = make([]byte, 1)
		if _, err := io.ReadFull(a, peeked); err != nil {
			return nil, nil, nil, err
		}
		a.greeted.Store(true)
		p, err = d.find(func(p Protocol) bool { return p.Matches(peeked[0]) })
		return a, peeked, p, err
	}
	conn := tls.Server(a, d.tls)
	if err := conn.Handshake(); err != nil {
		return nil, nil, nil, err
	}
	a.greeted.Store(true)
	name := conn.ConnectionState().NegotiatedProtocol
	p, err = d.find(func(p Protocol) bool { return p.ALPN() == name })
	return conn, nil, p, err
}

func (d *protocolDemux) find(matches func(Protocol) bool) (Protocol, error) {
	for _, p := range d.protocols {
		if matches(p) {
			return p, nil
		}
	}
	return nil, errNoProtocol
}
