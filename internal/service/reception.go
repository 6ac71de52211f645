package service

import (
	"context"
	"errors"
	"io"
	"net"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/kvd-db/kvd/internal/frame"
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
	accepted := conn.(*countedConn)
	raw := false
	var heard []byte
	var ready *readyReader
	if s, ok := info.(credentials.TLSInfo); ok {
		accepted.greeted.Store(true)
		raw = s.State.NegotiatedProtocol == frame.ALPN
	} else {
		heard = make([]byte, 1)
		if _, err := io.ReadFull(secured, heard); err != nil {
			return nil, nil, err
		}
		accepted.greeted.Store(true)
		raw = heard[0] == frame.Preamble[0]
		ready = newReadyReader(r.server.socketOf(accepted.Conn))
	}
	if !raw {
		of := newConnection(accepted.peer)
		of.AuthInfo, of.refused = info, r.server.refusedFor(accepted)
		c := r.server.newHTTP2Conn(secured, of, ready, heard)
		c.accepted = accepted
		accepted.use(c)
		of.end = func(why error) { c.endWith(h2EnhanceYourCalm, why.Error()) }
		if of.refused != noReason {
			// Its calls are refused one by one, so that each tells its caller why.
			time.AfterFunc(r.server.lifetimes.handshake, func() { _ = c.Close() })
		}
		return c, of, nil
	}
	if err := exchangePreambles(secured, heard); err != nil {
		return nil, nil, err
	}
	accepted.take()
	r.server.raw.Go(func() { r.server.serveRaw(secured, accepted) })
	return nil, nil, credentials.ErrConnDispatched
}

// refusedFor returns why there is no place for a connection.
func (s *Server) refusedFor(c *countedConn) int {
	s.peers.Lock()
	defer s.peers.Unlock()
	return c.refused
}

var errPreamble = errors.New("not the preamble of raw frames")

// exchangePreambles reads the client's preamble and answers with the version to
// speak: the client's, or if that is newer, the server's. Some bytes of it may have been
// read before.
func exchangePreambles(conn net.Conn, heard []byte) error {
	const version = len(frame.Preamble) - 1
	var hello [len(frame.Preamble)]byte
	if _, err := io.ReadFull(conn, hello[copy(hello[:], heard):]); err != nil {
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
