package service_test

import (
	"context"
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
