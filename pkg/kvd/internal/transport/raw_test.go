package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/pkg/kvd/internal/memlisten"
	"github.com/kvd-db/kvd/pkg/kvd/internal/servertest"
)

func TestWhatTargetsMean(t *testing.T) {
	for target, want := range map[string][2]string{
		"localhost:7070":             {"tcp", "localhost:7070"},
		"[::1]:7070":                 {"tcp", "[::1]:7070"},
		":7070":                      {"tcp", ":7070"},
		"dns:///h:1":                 {"tcp", "h:1"},
		"dns:h:1":                    {"tcp", "h:1"},
		"passthrough:///h:1":         {"tcp", "h:1"},
		"unix:kvd.sock":              {"unix", "kvd.sock"},
		"unix:/run/kvd.sock":         {"unix", "/run/kvd.sock"},
		"unix:///run/kvd.sock":       {"unix", "/run/kvd.sock"},
		"unix://kvd.sock":            {},
		"unix-abstract:x":            {},
		"dns://8.8.8.8/h:1":          {},
		"h":                          {}, // gRPC knows a port
		"xds:///service":             {},
		"https://h:1":                {},
		"passthrough://authority/h:": {},
	} {
		network, address := addressOf(target)
		assert.Equal(t, want, [2]string{network, address}, target)
	}
}

// A host without a port means the port of kvd, and not that of HTTPS, which gRPC takes.
func TestAHostAloneHasThePortOfKvd(t *testing.T) {
	for target, want := range map[string]string{
		"localhost": "localhost:7070", "db.example.com": "db.example.com:7070", "127.0.0.1": "127.0.0.1:7070",
		"::1": "[::1]:7070", "[::1]": "[::1]:7070", "fe80::1%eth0": "fe80::1%eth0",
		"localhost:1": "localhost:1", "[::1]:1": "[::1]:1", ":7070": ":7070", "": "", "localhost:": "localhost:",
		"unix:socket": "unix:socket", "unix:///run/kvd": "unix:///run/kvd", "dns:///host": "dns:///host", "passthrough:host": "passthrough:host",
	} {
		assert.Equal(t, want, withPort(target), target)
	}
}

// grpcOnlyServer serves gRPC only, as a server without raw frames or a proxy does, and
// counts the connections that are made.
func grpcOnlyServer(t *testing.T) (dial dialer, dials *atomic.Int32) {
	pipe := memlisten.Listen(1 << 16)
	s := &servertest.Scripted{
		Frames: func(_ int, conn servertest.FrameConn) error { return servertest.ServeFrames(conn) },
		Unary:  servertest.Succeed,
	}
	s.ListenGRPC(t, pipe)
	dials = new(atomic.Int32)
	return func(ctx context.Context, _ string) (net.Conn, error) {
		dials.Add(1)
		return pipe.DialContext(ctx)
	}, dials
}

// A server that does not speak raw frames is spoken to by gRPC, and not asked again
// for a while.
func TestAServerOfGRPCOnly(t *testing.T) {
	dial, dials := grpcOnlyServer(t)
	db := openBy(t, dial, Options{Conns: 1})
	db.mustPut(t, "k", "")
	assert.EqualValues(t, 2, dials.Load())
	c := db.conns[0]
	end := func() {
		c.mu.Lock()
		fc := c.mu.current
		c.mu.Unlock()
		assert.IsType(t, &streamTransport{}, fc.transport)
		fc.transport.close()
		<-fc.done
	}
	end()
	db.mustPut(t, "k", "")
	assert.EqualValues(t, 2, dials.Load(), "it is remembered")
	end()
	c.mu.Lock()
	c.mu.grpc.until = time.Now()
	c.mu.Unlock()
	db.mustPut(t, "k", "")
	assert.EqualValues(t, 3, dials.Load(), "not for ever")
}

// A server that hangs up may be about to stop: gRPC is tried at once, and raw frames
// again the next time.
func TestAServerThatHangsUpIsAskedAgain(t *testing.T) {
	c := servertest.Serve(t, nil, service.Options{})
	dials := 0
	db := openBy(t, func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := c.Dial(ctx, address)
		if dials++; dials == 1 {
			return conn, errors.Join(err, conn.Close())
		}
		return conn, err
	}, Options{Conns: 1})
	db.mustPut(t, "k", "v")
	transport := db.transport()
	assert.IsType(t, &streamTransport{}, transport)
	db.conns[0].mu.Lock()
	assert.Zero(t, db.conns[0].mu.grpc.until)
	db.conns[0].mu.Unlock()
	transport.close()
	testwait.Until(t, func() bool { return db.transport() == nil })
	db.mustPut(t, "k", "v")
	assert.IsType(t, &rawTransport{}, db.transport())
}

func TestGRPCOnly(t *testing.T) {
	dial, dials := grpcOnlyServer(t)
	openBy(t, dial, Options{Conns: 1, GRPCOnly: true}).mustPut(t, "k", "")
	assert.EqualValues(t, 1, dials.Load())
}

// NetOnly disables raw system calls.
func TestNetOnly(t *testing.T) {
	for _, off := range []bool{false, true} {
		db := openAt(t, new(servertest.Map).Listen(t), Options{Conns: 1, NetOnly: off})
		db.mustPut(t, "k", "v")
		assert.Equal(t, off, db.transport().(*rawTransport).socket == nil)
	}
}

// What a peer says to the preamble tells what it speaks.
func TestGreetings(t *testing.T) {
	for name, test := range map[string]struct {
		say    string
		hangUp bool
		want   error
	}{
		"raw frames":     {say: frame.Preamble},
		"HTTP/2":         {say: "\x00\x00\x00\x04\x00\x00\x00\x00\x00", want: errOtherProtocol},
		"HTTP/1":         {say: "HTTP/1.1 400 Bad Request\r\n", want: errOtherProtocol},
		"nothing":        {want: errNoAnswer},
		"too little":     {say: frame.Preamble[:5], want: errNoAnswer},
		"hangs up":       {hangUp: true, want: errHungUp},
		"hangs up later": {say: frame.Preamble[:5], hangUp: true, want: errHungUp},
		"newer version":  {say: frame.Preamble[:7] + "\x04", want: errOtherProtocol},
		"needs a token":  {say: frame.PreambleOf(frame.VersionSignIn), want: errTokenOnly},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ours, theirs := net.Pipe()
				var server sync.WaitGroup
				server.Go(func() {
					defer func() { assert.NoError(t, theirs.Close()) }()
					var heard [len(frame.Preamble)]byte
					_, err := io.ReadFull(theirs, heard[:])
					assert.NoError(t, err)
					assert.Equal(t, frame.PreambleOf(frame.VersionCalls), string(heard[:]))
					if len(test.say) > 0 {
						_, _ = io.WriteString(theirs, test.say) // the client may not wait for the end
					}
					if !test.hangUp {
						_, _ = theirs.Read(heard[:]) // until the client has gone
					}
				})
				ctx, cancel := context.WithTimeout(context.Background(), helloTimeout)
				defer cancel()
				begun := time.Now()
				conn, version, err := greet(ctx, ours, nil, frame.VersionCalls, "", meetAny)
				if test.want == nil {
					require.NoError(t, err)
					assert.EqualValues(t, frame.VersionPlain, version)
					require.NoError(t, conn.Close())
				} else {
					require.ErrorIs(t, err, test.want)
				}
				assert.LessOrEqual(t, time.Since(begun), helloTimeout)
				server.Wait()
			})
		})
	}
}

// Over TLS the protocol is agreed on before the preamble.
func TestGreetingOverTLS(t *testing.T) {
	certificate, pool := servicetest.Certificate(t)
	for name, test := range map[string]struct {
		protocols []string
		name      string
		want      error
	}{
		"raw frames": {[]string{"h2", frame.ALPN}, "kvd.test", nil},
		"without":    {nil, "kvd.test", errOtherProtocol},
		"gRPC only":  {[]string{"h2"}, "kvd.test", errOtherProtocol},
		"other name": {[]string{frame.ALPN}, "other.test", errOtherProtocol}, // gRPC will say why
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := net.Pipe()
			var server sync.WaitGroup
			server.Go(func() {
				conn := tls.Server(theirs, &tls.Config{Certificates: []tls.Certificate{certificate}, NextProtos: test.protocols})
				defer func() { _ = theirs.Close() }() // or by the client
				var heard [len(frame.Preamble)]byte
				if _, err := io.ReadFull(conn, heard[:]); err == nil {
					_, err = io.WriteString(conn, frame.Preamble)
					assert.NoError(t, err)
				}
			})
			defer func() { require.NoError(t, ours.Close()) }()
			o := &Options{TLS: &tls.Config{RootCAs: pool}, Dialer: func(context.Context, string) (net.Conn, error) { return ours, nil }}
			_, _, err := greet(context.Background(), ours, o.rawTarget(test.name+":1").tls, frame.VersionPlain, "", meetAny)
			require.ErrorIs(t, err, test.want)
			server.Wait()
		})
	}
}

func TestTargetsOfSeveralEndpoints(t *testing.T) {
	for target, want := range map[string][]string{
		"a":                  {"a"},
		"a,b:1":              {"a", "b:1"},
		" a:1 ,\tb:1 ":       {"a:1", "b:1"},
		"unix:/x/y,[::1]:80": {"unix:/x/y", "[::1]:80"},
		"dns:///a:1,::1":     {"dns:///a:1", "::1"},
	} {
		got, err := new(Options).endpointsOf(target)
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
}
