package kvd

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	"github.com/kvd-db/kvd/pkg/kvd/internal/transport"
)

func TestOpenChecksItsOptions(t *testing.T) {
	for name, o := range map[string]Option{
		"no connections": WithConns(0),
		"timeout":        WithTimeout(-1),
		"durability":     WithDurability(Sync + 1),
		"operations":     WithBatching(Batching{MaxOps: 1025}),
		"bytes":          WithBatching(Batching{MaxBytes: -1}),
		"window":         WithBatching(Batching{Window: 9}),
		"logger":         WithLogger(nil),
	} {
		_, err := Open("localhost:1", o)
		require.ErrorIs(t, err, ErrInvalid, name)
	}
	_, err := Open("dns://%zz")
	require.ErrorIs(t, err, ErrInvalid)
}

// What cannot be the address of a server is refused by Open, with an example, and not by the first call.
func TestOpenRefusesATargetThatNamesNoAddress(t *testing.T) {
	for target, says := range map[string]string{
		"":                      "endpoint 1 is empty",
		" ":                     "endpoint 1 is empty",
		",":                     "endpoint 1 of 2 is empty",
		"kvds://":               "endpoint 1 is empty",
		"kvds://,":              "endpoint 1 of 2 is empty",
		"kvds://a:7070,":        "endpoint 2 of 2 is empty",
		"kvds://a:7070,kvds://": "endpoint 2 of 2 is empty",
		"a:7070,,b:7070":        "endpoint 2 of 3 is empty",
		"a:7070,b:7070,":        "endpoint 3 of 3 is empty",
		"a:":                    "no port",
		":":                     "no port",
		"a:0":                   "port",
		"a:65536":               "port",
		"a:-1":                  "port",
		"a:7070:7071":           "too many colons",
		"[]:7070":               "brackets",
		"a b:7070":              "space",
		"a:7070/path":           "slash",
		"kvds://a:7070/":        "slash",
		"a/b":                   "slash",
		"user@a:7070":           "@",
		"http://a:7070":         "scheme \"http\"",
		"kvd://a:7070":          "scheme \"kvd\"",
		"kvds://kvds://a:7070":  "scheme \"kvds\"",
		"tcp://a:7070":          "scheme \"tcp\"",
		"a:7070,http://b:7070":  "scheme \"http\"",
		"unix:":                 "path",
		"unix://socket":         "path",
		"dns:///":               "name",
		"passthrough:///":       "name",
	} {
		db, err := Open(target)
		if err == nil {
			assert.NoError(t, db.Close())
			t.Errorf("%q is opened", target)
			continue
		}
		assert.ErrorIs(t, err, ErrInvalid, "%q", target)
		assert.ErrorContains(t, err, says, "%q", target)
		assert.ErrorContains(t, err, fmt.Sprintf("%q", target), "it quotes the target")
		assert.ErrorContains(t, err, "db.example:7070", "%q: it has an example", target)
	}
}

// Every form of a target that may work is left to the first call.
func TestOpenTakesEveryTargetThatMayWork(t *testing.T) {
	dial := WithDialer(func(context.Context, string) (net.Conn, error) { return nil, net.ErrClosed })
	for target, opts := range map[string][]Option{
		"a": nil, "a:7070": nil, " a:7070 , b:7070 ": nil, "a:https": nil, "a_b.example:1": nil, "a:65535": nil,
		":7070": nil, "kvds://:7070": nil, // of this machine
		"127.0.0.1": nil, "::1": nil, "[::1]": nil, "[::1]:7070": nil,
		"kvds://a": nil, "kvds://a:7070,kvds://b:7070": nil, "kvds://[::1]:7070": nil,
		"unix:socket": nil, "unix:a b/socket": nil, "unix:///run/kvd.sock": nil, "unix-abstract:kvd": nil,
		"dns:///a:7070": nil, "dns:a:7070": nil, "dns://8.8.8.8/a:7070": nil, "passthrough:///a:7070": nil,
		"memory": {dial}, "": {dial}, "any name/at all": {dial}, "node0:1,node1:1": {dial},
	} {
		db, err := Open(target, opts...)
		if assert.NoError(t, err, "%q", target) {
			assert.NoError(t, db.Close())
		}
	}
}

func TestOpenRefusesANilOption(t *testing.T) {
	_, err := Open("localhost:1", WithConns(1), nil)
	require.ErrorIs(t, err, ErrInvalid)
	require.ErrorContains(t, err, "option 2 is nil")
}

func TestOpenDoesNotDial(t *testing.T) {
	dials := 0
	c := serve(t, nil, service.Options{})
	dial := c.dialer
	db := c.open(t, WithDialer(dial), func(*config) { dials++ })
	assert.Zero(t, c.server.Stats().Accepted)
	require.NoError(t, db.Ping(context.Background()))
	assert.EqualValues(t, 1, c.server.Stats().Accepted)
	assert.Equal(t, 1, dials)
}

// The durability that arrives is the write's own, else the client's.
func TestDurabilityIsChosenPerWrite(t *testing.T) {
	var mu sync.Mutex
	var levels []kv.Durability
	store := servicetest.New(kv.DefaultLimits)
	store.OnWrite = func(_ context.Context, writes []*kv.Write) error {
		mu.Lock()
		defer mu.Unlock()
		levels = append(levels, writes[0].Durability)
		return nil
	}
	c := serve(t, store, service.Options{})
	ctx := context.Background()
	for _, alone := range []bool{false, true} {
		batching := WithBatching(Batching{Disabled: alone})
		require.NoError(t, c.open(t, batching).Put(ctx, []byte("k"), nil))
		db := c.open(t, batching, WithDurability(Buffered))
		require.NoError(t, db.Put(ctx, []byte("k"), nil))
		require.NoError(t, db.Put(ctx, []byte("k"), nil, Durable(Sync)))
		require.NoError(t, db.Delete(ctx, []byte("k"), Durable(Memory)))
		require.ErrorIs(t, db.Put(ctx, []byte("k"), nil, Durable(9)), ErrInvalid)
		_, err := db.Apply(ctx, new(Batch).Delete([]byte("k")), Durable(9))
		require.ErrorIs(t, err, ErrInvalid)
	}
	want := []kv.Durability{kv.DurabilityDefault, kv.DurabilityBuffered, kv.DurabilitySync, kv.DurabilityMemory}
	assert.Equal(t, append(want, want...), levels)
}

func TestPingTellsReadyFromUp(t *testing.T) {
	c := serve(t, nil, service.Options{})
	db := c.open(t)
	require.NoError(t, db.Ping(context.Background()))
	c.server.SetReady(errors.New("no node leads"))
	err := db.Ping(context.Background())
	require.ErrorIs(t, err, ErrUnavailable)
	require.ErrorContains(t, err, "the server is up but not ready: no node leads")
}

func TestBatch(t *testing.T) {
	c := serve(t, nil, service.Options{})
	db := c.open(t)
	ctx := context.Background()
	var b Batch
	_, err := db.Apply(ctx, &b)
	require.ErrorIs(t, err, ErrInvalid)

	key, value := []byte("k"), []byte("v")
	b.Put(key, value).Delete([]byte("x"))
	key[0], value[0] = '?', '?' // copied
	assert.Equal(t, 2, b.Len())
	for range 2 {
		_, err = db.Apply(ctx, &b)
		require.NoError(t, err, "a batch stays as it is")
	}
	got, err := db.Get(ctx, []byte("k"))
	require.NoError(t, err)
	assert.Equal(t, "v", string(got))

	b.Put(nil, nil)
	_, err = db.Apply(ctx, &b)
	require.ErrorIs(t, err, ErrInvalid)
	b.Reset()
	assert.Zero(t, b.Len())
	_, err = db.Apply(ctx, b.Put([]byte("k"), make([]byte, 5<<20)))
	require.ErrorIs(t, err, ErrTooLarge)
}

func TestTLS(t *testing.T) {
	certificate, pool := servicetest.Certificate(t)
	c := serve(t, nil, service.Options{TLS: &tls.Config{Certificates: []tls.Certificate{certificate}}})
	ctx := context.Background()
	everyTransport(t, func(t *testing.T, opts ...Option) {
		var mu sync.Mutex
		var protocols []string
		config := &tls.Config{RootCAs: pool, ServerName: "kvd.test", VerifyConnection: func(s tls.ConnectionState) error {
			mu.Lock()
			defer mu.Unlock()
			protocols = append(protocols, s.NegotiatedProtocol)
			return nil
		}}
		db := c.open(t, append(opts, WithTLS(config))...)
		require.NoError(t, db.Put(ctx, []byte("k"), []byte("v")))
		want := frame.ALPN
		if len(opts) > 0 {
			want = "h2"
		}
		mu.Lock()
		defer mu.Unlock()
		assert.Equal(t, []string{want}, protocols)
	})
	for name, o := range map[string][]Option{
		"plain text":  nil,
		"unknown CA":  {WithTLS(&tls.Config{ServerName: "kvd.test"})},
		"other names": {WithTLS(&tls.Config{RootCAs: pool, ServerName: "other.test"})},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.open(t, o...).Put(ctx, []byte("k"), nil)
			require.ErrorIs(t, err, ErrUnavailable)
			require.NotErrorIs(t, err, ErrUncertain)
		})
	}
}

func TestTheLoggerHearsOfABrokenStream(t *testing.T) {
	c, entered, leave := held(t)
	defer leave()
	var log safeBuffer
	cuts := &cuttable{dial: c.dialer}
	db := c.open(t, WithDialer(cuts.dialer), WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	answer := make(chan error, 1)
	go func() { answer <- replace(context.Background(), db, []byte("secret"), []byte("secret")) }()
	<-entered
	cuts.cut()
	require.ErrorIs(t, <-answer, ErrUncertain)
	require.NoError(t, db.Close())
	assert.Contains(t, log.String(), "a stream ended with operations under way")
	assert.NotContains(t, log.String(), "secret")
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// What is asked for bounds all frames; else those that wait for the disk are larger.
func TestFramesThatWaitForTheDiskAreLarger(t *testing.T) {
	c, err := newConfig(nil)
	require.NoError(t, err)
	assert.Equal(t, transport.Limits{Ops: 256, Bytes: 64 << 10}, c.network().Frames)
	assert.Equal(t, transport.Limits{Ops: 512, Bytes: 128 << 10}, c.network().SyncedFrames)
	c, err = newConfig([]Option{WithBatching(Batching{MaxOps: 3, MaxBytes: 100})})
	require.NoError(t, err)
	assert.Equal(t, transport.Limits{Ops: 3, Bytes: 100}, c.network().Frames)
	assert.Equal(t, transport.Limits{Ops: 3, Bytes: 100}, c.network().SyncedFrames)
}

// The network gets what the options say.
func TestOptionsReachTheNetwork(t *testing.T) {
	secure := new(tls.Config)
	logger := slog.New(slog.DiscardHandler)
	c, err := newConfig([]Option{
		WithTLS(secure), WithConns(3), WithTimeout(7), WithBatching(Batching{Disabled: true, Window: 4}),
		WithoutRawFrames(), WithoutRawSockets(), WithLogger(logger),
	})
	require.NoError(t, err)
	assert.Equal(t, transport.Options{
		Conns: 3, Timeout: 7, Unframed: true, Frames: transport.Limits{Ops: 256, Bytes: 64 << 10}, SyncedFrames: transport.Limits{Ops: 512, Bytes: 128 << 10},
		Window: 4, GRPCOnly: true, NetOnly: true, Logger: logger, TLS: secure,
	}, c.network())
	dialed := false
	c, err = newConfig([]Option{WithDialer(func(context.Context, string) (net.Conn, error) {
		dialed = true
		return nil, net.ErrClosed
	})})
	require.NoError(t, err)
	_, err = c.network().Dialer(t.Context(), "")
	require.ErrorIs(t, err, net.ErrClosed)
	assert.True(t, dialed)
}
