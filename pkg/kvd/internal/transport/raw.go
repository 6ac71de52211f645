package transport

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/rawconn"
)

// rawTransport sends frames one after another on a connection of their own.
type rawTransport struct {
	conn  net.Conn
	plain net.Conn // beneath TLS, whose farewell could block; else conn
	// socket has conn read and written; nil if that is none, or TLS.
	socket *rawconn.Conn
	in     *bufio.Reader
	err    error // of the connection, met by the receiver
}

// readBytes is the buffer before a raw connection's receiver: what a server
// answers to a full window in one read. Guessed.
const readBytes = 64 << 10

// newRawTransport makes the transport. With netOnly it is read and written by package net.
func newRawTransport(conn, plain net.Conn, netOnly bool) *rawTransport {
	c := &rawTransport{conn: conn, plain: plain}
	if conn == plain && !netOnly {
		c.socket = rawconn.New(conn)
	}
	c.in = bufio.NewReaderSize(c, readBytes)
	return c
}

// Read implements io.Reader for the buffer, and keeps the connection's error.
func (c *rawTransport) Read(p []byte) (n int, err error) {
	if c.socket != nil {
		n, err = c.socket.Read(p)
	} else {
		n, err = c.conn.Read(p)
	}
	if err != nil {
		c.err = err
	}
	return n, err
}

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
	err := r.Read(c.in, maxReceiveBytes)
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

// unavailable is an error of the network.
func unavailable(err error) error { return status.Error(codes.Unavailable, err.Error()) }

func (c *rawTransport) finish() { c.close() }

// close closes the connection; that it was broken before is no news.
func (c *rawTransport) close() { _ = c.plain.Close() }

// helloTimeout bounds what comes after connecting: TLS and the preamble. A server
// that speaks something else may say nothing at all.
const helloTimeout = 2 * time.Second

var (
	// errOtherProtocol: the server can be reached but does not speak raw frames.
	errOtherProtocol = errors.New("the server does not speak raw frames")
	// errNoAnswer: the server can be reached but does not answer. It may wait for
	// another protocol, or stand still.
	errNoAnswer = errors.New("the server does not answer")
)

// dialRaw makes a raw connection. Its errors are errOtherProtocol, errNoAnswer and
// errHungUp; every other error is that the server could not be reached.
func (c *conn) dialRaw(ctx context.Context) (frameTransport, error) {
	connecting, cancel := context.WithTimeout(ctx, c.client.connectTimeout())
	defer cancel()
	plain, err := c.raw.dial(connecting)
	if err != nil {
		return nil, unavailable(err)
	}
	greeting, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	conn, err := greet(greeting, plain, c.raw.tls)
	if err != nil {
		return nil, err
	}
	return newRawTransport(conn, plain, c.client.options.NetOnly), nil
}

// greet agrees with the server on raw frames. After an error the connection is
// closed.
func greet(ctx context.Context, plain net.Conn, config *tls.Config) (net.Conn, error) {
	stop := context.AfterFunc(ctx, func() { _ = plain.Close() }) // its reader and writer then fail
	conn, err := hello(ctx, plain, config)
	if !stop() {
		err = errHungUp
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = errNoAnswer
		}
	}
	if err != nil {
		_ = plain.Close() // it is of no use, whatever else is wrong with it
		return nil, err
	}
	return conn, nil
}

// hello says which protocol is meant and waits for the same answer.
func hello(ctx context.Context, conn net.Conn, config *tls.Config) (net.Conn, error) {
	if config != nil {
		secure := tls.Client(conn, config)
		if err := secure.HandshakeContext(ctx); err != nil {
			return nil, otherwise(err)
		}
		if secure.ConnectionState().NegotiatedProtocol != frame.ALPN {
			return nil, errOtherProtocol
		}
		conn = secure
	}
	if _, err := io.WriteString(conn, frame.Preamble); err != nil {
		return nil, otherwise(err)
	}
	var answer [len(frame.Preamble)]byte
	for i := range answer {
		if _, err := io.ReadFull(conn, answer[i:i+1]); err != nil {
			return nil, otherwise(err)
		}
		if answer[i] != frame.Preamble[i] {
			return nil, errOtherProtocol
		}
	}
	return conn, nil
}

// errHungUp: the server closed the connection in place of an answer. It may speak
// something else, or be about to stop.
var errHungUp = errors.New("the server hung up")

// otherwise judges why there was no answer. A TLS alert is one.
func otherwise(err error) error {
	var network net.Error
	var op *net.OpError
	alert := errors.As(err, &op) && (op.Op == "remote error" || op.Op == "local error")
	if !alert && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrClosedPipe) || errors.As(err, &network)) {
		return errHungUp
	}
	return errOtherProtocol
}
