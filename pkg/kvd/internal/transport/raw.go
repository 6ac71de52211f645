package transport

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/rawconn"
)

// rawTransport sends frames on a connection of their own, one after the other.
type rawTransport struct {
	conn  net.Conn
	plain net.Conn // beneath TLS, whose Close could block; without TLS it is conn
	// socket reads and writes conn; nil if conn is no socket, or uses TLS.
	socket *rawconn.Conn
	in     *bufio.Reader
	calls  bool
	err    error // of the connection, for the receiver
	yields bool  // arrival is running, so an interrupt ends Read
	look   func() error
	spare  [1]byte // for look
}

// readBytes is the size of the receive buffer: the answers to a full window fit. Guessed.
const readBytes = 64 << 10

// newRawTransport returns a transport. With netOnly it uses package net for all I/O.
func newRawTransport(conn, plain net.Conn, netOnly bool) *rawTransport {
	c := &rawTransport{conn: conn, plain: plain}
	if conn == plain && !netOnly {
		c.socket = rawconn.New(conn)
	}
	c.look = c.nothing
	c.in = bufio.NewReaderSize(c, readBytes)
	return c
}

// Read implements io.Reader for the buffer. It keeps the error of the connection.
func (c *rawTransport) Read(p []byte) (n int, err error) {
	if c.socket != nil {
		n, err = c.readSocket(p)
	} else {
		n, err = c.conn.Read(p)
	}
	if err != nil && err != errInterrupted {
		c.err = err
	}
	return n, err
}

// errInterrupted is what Read returns to arrival after an interrupt.
var errInterrupted = errors.New("interrupted")

// readSocket ends the deadline that an interrupt has set. One that came too late for arrival is ignored.
func (c *rawTransport) readSocket(p []byte) (n int, err error) {
	for {
		n, err = c.socket.Read(p)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
		if err = c.conn.SetReadDeadline(time.Time{}); err != nil {
			return 0, err
		}
		if c.yields {
			return 0, errInterrupted
		}
	}
}

func (c *rawTransport) takesCalls() bool { return c.calls }

func (c *rawTransport) send(b *frame.Builder, h frame.Header) (left bool, err error) {
	rest := b.Finish(h)
	if c.socket != nil {
		n, err := c.socket.WriteSome(rest)
		if rest = rest[n:]; len(rest) == 0 || err != nil {
			return len(rest) == 0, err
		}
	}
	n, err := c.conn.Write(rest)
	return n == len(rest), err
}

func (c *rawTransport) receive(r *frame.Response) error {
	return c.failed(r.Read(c.in, maxReceiveBytes))
}

// failed returns what an error of receiving means; err may be nil.
func (c *rawTransport) failed(err error) error {
	switch {
	case err == nil:
		return nil
	case c.err == nil:
		return status.Error(codes.Internal, err.Error())
	case errors.Is(err, io.EOF):
		return io.EOF
	}
	return unavailable(c.err)
}

// arrival implements callerTransport.
func (c *rawTransport) arrival() (whole bool, err error) {
	c.yields = true
	_, err = c.in.Peek(1)
	c.yields = false
	switch {
	case err == errInterrupted:
		return false, nil
	case err != nil:
		return false, c.failed(err)
	}
	return frame.Arrived(c.in, maxReceiveBytes), nil
}

// interrupt implements callerTransport. If the connection is closed, arrival has ended.
func (c *rawTransport) interrupt() { _ = c.conn.SetReadDeadline(time.Unix(1, 0)) }

// quiet implements callerTransport.
func (c *rawTransport) quiet() bool {
	for c.in.Buffered() == 0 {
		err := c.socket.Await(c.look)
		if !errors.Is(err, os.ErrDeadlineExceeded) || c.conn.SetReadDeadline(time.Time{}) != nil {
			return err == nil
		}
	}
	return false
}

// nothing, which Await calls, returns nil if there is nothing to read. So Await never waits.
func (c *rawTransport) nothing() error {
	if _, err := c.socket.ReadNow(c.spare[:]); err == syscall.EAGAIN {
		return nil
	}
	return io.EOF
}

// unavailable returns err as an error of the network.
func unavailable(err error) error { return status.Error(codes.Unavailable, err.Error()) }

func (c *rawTransport) finish() { c.close() }

// close closes the connection. An error would only say that it was broken before.
func (c *rawTransport) close() { _ = c.plain.Close() }

// helloTimeout bounds the time after connecting, for TLS and the preamble. A server of another
// protocol may not answer at all.
const helloTimeout = 2 * time.Second

var (
	// errOtherProtocol: the server can be reached but does not speak raw frames.
	errOtherProtocol = errors.New("the server does not speak raw frames")
	// errNoAnswer: the server can be reached but does not answer. It may expect another
	// protocol, or hang.
	errNoAnswer = errors.New("the server does not answer")
)

// dialRaw makes a connection for raw frames of the newest version that the server has. It returns
// errOtherProtocol, errNoAnswer, errHungUp, or another error if the server could not be reached.
func (c *conn) dialRaw(ctx context.Context) (frameTransport, error) {
	transport, err := c.dialVersion(ctx, frame.VersionIncarnation)
	if errors.Is(err, errTokenOnly) {
		return c.dialVersion(ctx, frame.VersionPlain)
	}
	return transport, err
}

// dialVersion makes a connection for raw frames of this version, or of an older one if the server has
// no newer one.
func (c *conn) dialVersion(ctx context.Context, version byte) (frameTransport, error) {
	connecting, cancel := context.WithTimeout(ctx, c.client.connectTimeout())
	defer cancel()
	plain, err := c.raw.dial(connecting)
	if err != nil {
		return nil, unavailable(err)
	}
	greeting, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	token, err := c.client.options.token()
	if err != nil {
		_ = plain.Close() // nothing was sent on it
		return nil, err
	}
	conn, version, err := greet(greeting, plain, c.raw.tls, version, token, c.client.meet)
	if err != nil {
		return nil, err
	}
	transport := newRawTransport(conn, plain, c.client.options.NetOnly)
	transport.calls = version >= frame.VersionCalls
	return transport, nil
}

// greet agrees with the server on raw frames, and on their version, which is at most newest. meet judges
// the incarnation that the server tells. After an error greet has closed the connection.
func greet(ctx context.Context, plain net.Conn, config *tls.Config, newest byte, token string, meet func(string) error) (conn net.Conn, version byte, err error) {
	stop := context.AfterFunc(ctx, func() { _ = plain.Close() }) // ends reads and writes
	conn, version, err = hello(ctx, plain, config, newest, token, meet)
	if !stop() {
		err = errHungUp
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = errNoAnswer
		}
	}
	if err != nil {
		_ = plain.Close() // the first error counts
		return nil, 0, err
	}
	return conn, version, nil
}

// errTokenOnly: the server speaks version 2, which needs a token, and the client has none. It also
// speaks version 1.
var errTokenOnly = errors.New("the server wants a token or version 1 of frames")

// hello sends the preamble, waits for the server's, which has the version, and signs in if that has a
// sign-in.
func hello(ctx context.Context, conn net.Conn, config *tls.Config, newest byte, token string, meet func(string) error) (_ net.Conn, version byte, err error) {
	if config != nil {
		secure := tls.Client(conn, config)
		if err := secure.HandshakeContext(ctx); err != nil {
			return nil, 0, otherwise(err)
		}
		if secure.ConnectionState().NegotiatedProtocol != frame.ALPN {
			return nil, 0, errOtherProtocol
		}
		conn = secure
	}
	if _, err := io.WriteString(conn, frame.PreambleOf(newest)); err != nil {
		return nil, 0, otherwise(err)
	}
	const last = frame.PreambleBytes - 1
	var answer [frame.PreambleBytes]byte
	for i := range answer {
		if _, err := io.ReadFull(conn, answer[i:i+1]); err != nil {
			return nil, 0, otherwise(err)
		}
		if i < last && answer[i] != frame.Preamble[i] {
			return nil, 0, errOtherProtocol
		}
	}
	switch version = answer[last]; {
	case version < frame.VersionPlain || version > newest:
		return nil, 0, errOtherProtocol
	case version == frame.VersionPlain:
		return conn, version, nil
	case version == frame.VersionSignIn && token == "":
		return nil, 0, errTokenOnly
	case version >= frame.VersionIncarnation:
		told, err := frame.ReadIncarnation(conn)
		if err != nil {
			return nil, 0, otherwise(err)
		}
		if err := meet(told); err != nil {
			return nil, 0, err
		}
	}
	if _, err := conn.Write(frame.AppendSignIn(nil, token)); err != nil {
		return nil, 0, otherwise(err)
	}
	return conn, version, nil
}

// errHungUp: the server closed the connection without an answer. It may speak another protocol, or
// be about to stop.
var errHungUp = errors.New("the server hung up")

// otherwise classifies the error of a greeting. A TLS alert counts as an answer.
func otherwise(err error) error {
	var network net.Error
	var op *net.OpError
	alert := errors.As(err, &op) && (op.Op == "remote error" || op.Op == "local error")
	if !alert && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe) || errors.As(err, &network)) {
		return errHungUp
	}
	return errOtherProtocol
}
