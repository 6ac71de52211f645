package service_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	"github.com/kvd-db/kvd/internal/testwait"
)

// HTTP/2 as bytes: what a client begins with, and a ping. See RFC 9113.
const (
	preface  = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	settings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	ping     = "\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678"
	pong     = "\x00\x00\x08\x06\x01\x00\x00\x00\x0012345678"
)

// said returns everything that a server with these lifetimes says to a client
// that says no more than this, until the server closes the connection.
func said(t *testing.T, life service.Lifetimes, client string) string {
	t.Helper()
	s := service.New(servicetest.LimitsOnly{L: kv.DefaultLimits}, service.Options{Lifetimes: life}, protocols...)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	defer func() {
		require.NoError(t, s.Shutdown(context.Background()))
		require.NoError(t, <-served)
	}()
	conn, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	require.NoError(t, conn.SetDeadline(testwait.Deadline()))
	_, err = io.WriteString(conn, client)
	require.NoError(t, err)
	answer, err := io.ReadAll(conn)
	if !errors.Is(err, syscall.ECONNRESET) { // what closing is called if bytes were left unread
		require.NoError(t, err, "the server left the connection open")
	}
	testwait.Until(t, func() bool { return s.Stats().Connections == 0 })
	return string(answer)
}

// A client that connects and does not come to the point is cut off.
func TestHandshakesAreBounded(t *testing.T) {
	life := service.Lifetimes{Handshake: 30 * time.Millisecond}
	for _, begun := range []string{"", preface[:10], preface, preface + settings[:5], frame.Preamble[:1], frame.Preamble[:7]} {
		said(t, life, begun)
	}
	s := service.New(servicetest.LimitsOnly{}, service.Options{}, protocols...)
	assert.LessOrEqual(t, s.Options().Lifetimes.Handshake, 5*time.Second)
}

func TestIdleConnectionsAreClosed(t *testing.T) {
	t.Parallel() // gRPC gives the client six seconds to leave
	life := service.Lifetimes{}
	life.ConnIdle = 30 * time.Millisecond
	said(t, life, preface+settings)
}

func TestOldConnectionsAreClosed(t *testing.T) {
	t.Parallel() // gRPC gives the client six seconds to leave
	life := service.Lifetimes{}
	life.ConnAge = 30 * time.Millisecond
	said(t, life, preface+settings)
}

// A connection of raw frames that idles, or is old, is told that it is going away,
// and is closed if its client stays.
func TestRawConnectionsEnd(t *testing.T) {
	goingAway := (&frame.Response{GoingAway: true}).AppendCompact([]byte(frame.Preamble))
	for _, shorten := range []func(*service.Lifetimes){
		func(life *service.Lifetimes) { life.ConnIdle = 30 * time.Millisecond },
		func(life *service.Lifetimes) { life.ConnAge = 30 * time.Millisecond },
	} {
		life := service.Lifetimes{}
		life.CloseWait = 30 * time.Millisecond
		shorten(&life)
		assert.Equal(t, string(goingAway), said(t, life, frame.Preamble))
	}
}

// A peer that has gone without a word is noticed.
func TestPeersThatDoNotAnswerPingsAreCutOff(t *testing.T) {
	life := service.Lifetimes{}
	life.PingAfter, life.PingWait = time.Second, 30*time.Millisecond // gRPC takes no less than a second
	assert.Contains(t, said(t, life, preface+settings), ping[:8], "it was asked")
}

// A client may ping, but not all the time.
func TestPingFloodsAreCutOff(t *testing.T) {
	flood := preface + settings
	for range 10 {
		flood += ping
	}
	answer := said(t, service.Lifetimes{}, flood)
	assert.Contains(t, answer, pong, "the first one is answered")
	assert.Contains(t, answer, "too_many_pings")
}

// A shutdown whose grace period is over does not wait for a handshake.
func TestAShutdownCutsHandshakes(t *testing.T) {
	certificate, _ := servicetest.Certificate(t)
	for name, o := range map[string]service.Options{
		"plain": {},
		"TLS":   {TLS: &tls.Config{Certificates: []tls.Certificate{certificate}}},
	} {
		t.Run(name, func(t *testing.T) {
			o.Lifetimes.Handshake = time.Hour
			s := service.New(servicetest.LimitsOnly{L: kv.DefaultLimits}, o, protocols...)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			served := serveOn(s, l)
			conn, err := net.Dial("tcp", l.Addr().String())
			require.NoError(t, err)
			testwait.Until(t, func() bool { return s.Stats().Connections == 1 })
			ctx, cut := context.WithCancel(context.Background())
			cut()
			require.ErrorIs(t, s.Shutdown(ctx), context.Canceled)
			require.NoError(t, <-served)
			require.NoError(t, conn.SetDeadline(testwait.Deadline()))
			_, err = conn.Read(make([]byte, 1))
			require.ErrorIs(t, err, io.EOF)
			require.NoError(t, conn.Close())
			assert.Zero(t, s.Stats().Connections)
		})
	}
}

// A client whose TLS names no protocol of the server is refused.
func TestTLSWithoutAProtocolIsRefused(t *testing.T) {
	certificate, pool := servicetest.Certificate(t)
	s := service.New(servicetest.LimitsOnly{L: kv.DefaultLimits}, service.Options{TLS: &tls.Config{Certificates: []tls.Certificate{certificate}}}, protocols...)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := serveOn(s, l)
	for _, names := range [][]string{nil, {"http/1.1"}} {
		conn, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{RootCAs: pool, ServerName: "kvd.test", NextProtos: names})
		if err == nil {
			require.NoError(t, conn.SetDeadline(testwait.Deadline()))
			_, err = conn.Read(make([]byte, 1))
			_ = conn.Close() // the server has closed it
		}
		require.Error(t, err, "%v", names)
	}
	require.NoError(t, s.Shutdown(testContext(t)))
	require.NoError(t, <-served)
}
