package server

import (
	"context"
	"errors"
	"io"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"

	"github.com/kvd-db/kvd/pkg/kvdpb/frame"
)

// reception is where a new connection says what it is. gRPC takes it for the
// credentials of its connections, and asks it about each on a goroutine of its
// own, under the deadline of the handshake. A connection of raw frames is taken
// away from gRPC; any other goes on as if nobody had listened to it.
//
// So there is one port, one listener and one handshake of TLS, whose protocol
// (ALPN) then says what the connection is. Plain connections are told by their
// first byte.
type reception struct {
	server *Server
	credentials.TransportCredentials
}

func newReception(s *Server) credentials.TransportCredentials {
	security := insecure.NewCredentials()
	if s.options.TLS != nil {
		config := s.options.TLS.Clone()
		config.NextProtos = []string{frame.ALPN, "h2"} // the first one that the client knows
		security = credentials.NewTLS(config)
	}
	return &reception{s, security}
}

// Clone implements credentials.TransportCredentials.
func (r *reception) Clone() credentials.TransportCredentials {
	return &reception{r.server, r.TransportCredentials.Clone()}
}

// ServerHandshake implements credentials.TransportCredentials.
func (r *reception) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secured, info, err := r.TransportCredentials.ServerHandshake(conn)
	if err != nil {
		return nil, nil, err
	}
	raw := false
	if s, ok := info.(credentials.TLSInfo); ok {
		raw = s.State.NegotiatedProtocol == frame.ALPN
	} else if secured, raw, err = r.server.listenFirst(secured); err != nil {
		return nil, nil, err
	}
	if !raw {
		return secured, &connection{AuthInfo: info}, nil
	}
	if err := exchangePreambles(secured); err != nil {
		return nil, nil, err
	}
	accepted := conn.(*countedConn)
	accepted.take()
	r.server.raw.Go(func() { r.server.serveRaw(secured, accepted) })
	return nil, nil, credentials.ErrConnDispatched
}

// listenFirst tells by its first byte whether a connection carries raw frames.
// That byte is read again from what is returned.
func (s *Server) listenFirst(conn net.Conn) (_ net.Conn, raw bool, err error) {
	c := &heardConn{Conn: conn, unread: 1}
	if _, err := io.ReadFull(conn, c.first[:]); err != nil {
		return nil, false, err
	}
	if c.first[0] == frame.Preamble[0] {
		return c, true, nil
	}
	c.ready = newReadyReader(s.socketOf(conn.(*countedConn).Conn))
	return c, false, nil
}

// heardConn is a connection of which the first byte has been heard already.
type heardConn struct {
	net.Conn
	first  [1]byte
	unread int
	ready  *readyReader // of a socket that gRPC reads from
}

func (c *heardConn) Read(b []byte) (int, error) {
	if c.unread > 0 {
		c.unread -= copy(b, c.first[:])
		return 1 - c.unread, nil
	}
	return c.Conn.Read(b)
}

// ReadOnReady waits until something comes, and returns memory of the pool with it.
// gRPC reads so where it can, and else keeps 32 KiB for each connection; of itself it
// can where it finds a socket of package net.
func (c *heardConn) ReadOnReady(size int, pool mem.BufferPool) (data *[]byte, n int, err error) {
	if c.ready != nil && c.unread == 0 {
		return c.ready.read(size, pool)
	}
	data = pool.Get(size)
	if n, err = c.Read(*data); err != nil {
		pool.Put(data)
		return nil, 0, err
	}
	return data, n, nil
}

var errPreamble = errors.New("not the preamble of raw frames")

// exchangePreambles reads the client's preamble and answers with the version to
// speak: the client's, or if that is newer, the server's.
func exchangePreambles(conn net.Conn) error {
	const version = len(frame.Preamble) - 1
	var hello [len(frame.Preamble)]byte
	if _, err := io.ReadFull(conn, hello[:]); err != nil {
		return err
	}
	if string(hello[:version]) != frame.Preamble[:version] || hello[version] < frame.Preamble[version] {
		return errPreamble
	}
	_, err := io.WriteString(conn, frame.Preamble)
	return err
}

// ClientHandshake is never called.
func (r *reception) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("a server's credentials")
}
