package service_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	"github.com/kvd-db/kvd/internal/testwait"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// withLines are the protocols of the server and a new one.
var withLines = append([]service.NewProtocol{newLines}, protocols...)

// lineClient asks by lines.
type lineClient struct {
	net.Conn
	in *bufio.Reader
}

func lineClientOf(t *testing.T, conn net.Conn, err error) *lineClient {
	t.Helper()
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() }) // the server may have
	require.NoError(t, conn.SetDeadline(testwait.Deadline()))
	return &lineClient{conn, bufio.NewReader(conn)}
}

func dialLines(t *testing.T, address string) *lineClient {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	return lineClientOf(t, conn, err)
}

func (c *lineClient) ask(t *testing.T, line string) string {
	t.Helper()
	_, err := io.WriteString(c, line+"\n")
	require.NoError(t, err)
	answer, err := c.in.ReadString('\n')
	require.NoError(t, err)
	return strings.TrimSpace(answer)
}

// A new protocol has the port, the limits of requests, the errors, the counters and the
// slow log of all others, and one store with them.
func TestANewProtocolIsServedLikeTheOthers(t *testing.T) {
	store := servicetest.New(smallLimits)
	f := start(t, store, func() *service.Server {
		return service.New(store, service.Options{SlowTime: 1, SlowEntries: 10}, withLines...)
	})
	c := dialLines(t, f.tcp(t))
	assert.Equal(t, "ok", c.ask(t, "put k v"))
	assert.Equal(t, "ok v", c.ask(t, "get k"))
	value, found := f.get(t, "k", 0)
	assert.Equal(t, []any{"v", true}, []any{value, found}, "by gRPC")
	f.put(t, "k", "w")
	assert.Equal(t, "ok w", c.ask(t, "get k"))
	assert.Equal(t, "ok", c.ask(t, "del k"))

	assert.Equal(t, "KEY_NOT_FOUND key not found", c.ask(t, "get k"))
	assert.Regexp(t, "^TOO_LARGE ", c.ask(t, "put much-too-long v"))
	assert.Regexp(t, "^INVALID_REQUEST .*want get, put or del", c.ask(t, "please"))
	store.OnWrite = func(context.Context, []*kv.Write) error { return &kv.OverloadError{Reason: "inbox_full"} }
	assert.Regexp(t, "^OVERLOADED ", c.ask(t, "put k v"))
	store.OnWrite = func(context.Context, []*kv.Write) error { return io.ErrUnexpectedEOF }
	assert.Regexp(t, "^INTERNAL .*request id", c.ask(t, "put k v"))

	testwait.Until(t, func() bool { return f.requests("Line.Put", codes.Internal) == 1 })
	for method, counts := range map[string]map[codes.Code]uint64{
		"Line.Get":    {codes.OK: 2, codes.NotFound: 1, codes.InvalidArgument: 1},
		"Line.Put":    {codes.OK: 1, codes.InvalidArgument: 1, codes.ResourceExhausted: 1, codes.Internal: 1},
		"Line.Delete": {codes.OK: 1},
	} {
		for code, n := range counts {
			assert.Equal(t, n, f.requests(method, code), "%s %v", method, code)
		}
	}
	stats := f.Stats()
	assert.EqualValues(t, 1, stats.Shed["store"])
	testwait.Until(t, func() bool { return f.Stats().Bytes == 0 })
	testwait.Until(t, func() bool {
		slow, _, _ := f.SlowRequests(1)
		return slow[0].Method.String() == "Line.Put" && slow[0].Code == service.Internal
	})
	slow, _, _ := f.SlowRequests(1)
	assert.Equal(t, []any{"k", c.LocalAddr().String()}, []any{string(slow[0].Key), slow[0].Peer})
}

// Admission bounds what it gives the store, and a connection has a line of its own there.
func TestANewProtocolWaitsForAdmission(t *testing.T) {
	store, entered, leave := waiting()
	f := start(t, store, func() *service.Server {
		return service.New(store, service.Options{ReadOps: 1}, withLines...)
	})
	address := f.tcp(t)
	inside, outside := dialLines(t, address), dialLines(t, address)
	answers := make(chan string, 1)
	go func() { answers <- inside.ask(t, "get k") }()
	<-entered
	assert.Regexp(t, "^OVERLOADED ", outside.ask(t, "get k"), "it waited too long")
	assert.EqualValues(t, 1, f.Stats().Shed["queue_time"])
	leave()
	<-answers
}

// Its connections count like all others: one too many replaces one that idles, which is
// told so in the words of its protocol.
func TestANewProtocolIsWithinTheLimitsOfConnections(t *testing.T) {
	store := servicetest.New(kv.DefaultLimits)
	f := start(t, store, func() *service.Server {
		return service.New(store, service.Options{PeerConnections: 1}, withLines...)
	})
	address := f.tcp(t)
	first := dialLines(t, address)
	assert.Equal(t, "ok", first.ask(t, "put k v"))
	client := clientOf(t, address)
	testwait.Until(t, func() bool { // the first has its answer a moment before the server sees it idle
		_, err := client.Get(testContext(t), &kvdpb.GetRequest{Key: []byte("k")})
		return err == nil
	})
	told, err := first.in.ReadString('\n')
	require.NoError(t, err)
	assert.Regexp(t, "^SHUTTING_DOWN the connection idled", told)
	_, err = first.in.ReadString('\n')
	require.ErrorIs(t, err, io.EOF)
}

// In TLS it is named by its ALPN. A shutdown ends its connections.
func TestANewProtocolInTLS(t *testing.T) {
	certificate, pool := servicetest.Certificate(t)
	store := servicetest.New(kv.DefaultLimits)
	s := service.New(store, service.Options{TLS: &tls.Config{Certificates: []tls.Certificate{certificate}}}, withLines...)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := serveOn(s, l)
	conn, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{RootCAs: pool, ServerName: "kvd.test", NextProtos: []string{"kvd-lines"}})
	c := lineClientOf(t, conn, err)
	assert.Equal(t, "ok", c.ask(t, "put k v"))
	assert.Equal(t, "ok v", c.ask(t, "get k"))
	require.NoError(t, s.Shutdown(testContext(t)))
	_, err = c.in.ReadString('\n')
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, <-served)
}
