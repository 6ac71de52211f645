package service_test

import (
	"context"
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	"github.com/kvd-db/kvd/internal/testwait"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// clientOf returns a client by gRPC with a connection of its own.
func clientOf(t *testing.T, address string) kvdpb.KVServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, conn.Close()) })
	return kvdpb.NewKVServiceClient(conn)
}

// limited is a server that allows two connections over TCP: the fixture's own is not, and
// is another peer.
func limited(t *testing.T, store *servicetest.Store, o service.Options) (f *fixture, address string) {
	t.Helper()
	f = start(t, store, func() *service.Server { return service.New(store, o, protocols...) })
	f.put(t, "own", "v")
	return f, f.tcp(t)
}

var connectionLimits = map[string]service.Options{
	"connections":      {Connections: 3},
	"peer_connections": {PeerConnections: 2},
}

// A connection too many takes the place of one that idles, which is told so.
func TestAConnectionTooManyReplacesAnIdleOne(t *testing.T) {
	for reason, o := range connectionLimits {
		t.Run(reason, func(t *testing.T) {
			store, _, leave := waiting()
			leave()
			f, address := limited(t, store, o)
			silent, err := net.Dial("tcp", address)
			require.NoError(t, err)
			raw := dialRaw(t, address)
			for range 3 {
				client := clientOf(t, address)
				for range 3 {
					_, err := client.Get(testContext(t), &kvdpb.GetRequest{Key: []byte("k")})
					require.Equal(t, codes.NotFound, status.Code(err))
				}
			}
			assert.Positive(t, f.Stats().Shed[reason])
			assert.LessOrEqual(t, f.Stats().Connections, int64(3))

			_, err = silent.Read(make([]byte, 1))
			require.ErrorIs(t, err, io.EOF)
			require.NoError(t, silent.Close())
			var r frame.Response
			require.NoError(t, raw.receive(&r))
			assert.True(t, r.Refused)
			assert.Contains(t, r.Results[0].Message, "the connection idled and was closed to make room")
			assert.NotEqual(t, kvdpb.ReasonOverloaded, r.Results[0].Reason, "what was sent may have been done")
			require.ErrorIs(t, raw.receive(&r), io.EOF)
		})
	}
}

// Connections that are in use keep their places, and the one too many is told why there is
// none for it, however it speaks.
func TestAConnectionTooManyIsToldWhy(t *testing.T) {
	for reason, o := range connectionLimits {
		t.Run(reason, func(t *testing.T) {
			store, entered, leave := waiting()
			f, address := limited(t, store, o)
			raw := dialRaw(t, address)
			var b frame.Builder
			b.Reset(frame.ReadFrame)
			b.Add(&frame.Op{Kind: frame.Get, Key: []byte("k")})
			require.NoError(t, raw.send(b.Finish(frame.Header{ID: 1})))
			<-entered
			answers := make(chan error, 1)
			go func() {
				_, err := clientOf(t, address).Get(testContext(t), &kvdpb.GetRequest{Key: []byte("k")})
				answers <- err
			}()
			<-entered

			_, err := clientOf(t, address).Get(testContext(t), &kvdpb.GetRequest{Key: []byte("k")})
			info, retryAfter := requireFailure(t, err, codes.ResourceExhausted, "OVERLOADED")
			assert.Equal(t, reason, info.Metadata["cause"])
			assert.Contains(t, err.Error(), "connections as it may have")
			assert.Positive(t, retryAfter)

			var r frame.Response
			require.NoError(t, dialRaw(t, address).receive(&r))
			assert.True(t, r.Refused)
			assert.Equal(t, kvdpb.ReasonOverloaded, r.Results[0].Reason)
			assert.Contains(t, r.Results[0].Message, "connections as it may have")

			// Beyond some, they are closed without a word.
			for range 100 {
				conn, err := net.Dial("tcp", address)
				require.NoError(t, err)
				defer func() { _ = conn.Close() }()
			}
			testwait.Until(t, func() bool { return f.Stats().Shed[reason] >= 102 })
			assert.EqualValues(t, 3, f.Stats().Connections)

			leave()
			assert.Equal(t, codes.NotFound, status.Code(<-answers))
			require.NoError(t, raw.receive(&r))
			require.Len(t, r.Results, 1)
			assert.Equal(t, "KEY_NOT_FOUND", r.Results[0].Reason)
		})
	}
}

// What idles is told by gRPC, too, why it ends.
func TestAnIdleConnectionOfGRPCIsToldWhy(t *testing.T) {
	store, _, leave := waiting()
	leave()
	f, address := limited(t, store, service.Options{PeerConnections: 1})
	conn, err := net.Dial("tcp", address)
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = io.WriteString(conn, preface+settings)
	require.NoError(t, err)
	// Once it has acknowledged the settings the server has read everything: a connection
	// that is closed with bytes unread is reset, and what it was told may be lost.
	in := http2.NewFramer(conn, conn)
	for acknowledged := false; !acknowledged; {
		f, err := in.ReadFrame()
		require.NoError(t, err)
		settings, ok := f.(*http2.SettingsFrame)
		acknowledged = ok && settings.IsAck()
	}
	_, err = clientOf(t, address).Get(context.Background(), &kvdpb.GetRequest{Key: []byte("k")})
	require.Equal(t, codes.NotFound, status.Code(err))
	said, err := io.ReadAll(conn)
	require.NoError(t, err)
	assert.Contains(t, string(said), "the connection idled and was closed to make room")
	assert.EqualValues(t, 2, f.Stats().Connections)
}

// A connection that has begun its handshake and does not go on is closed at once, too, when
// another one needs its place.
func TestAConnectionInItsHandshakeIsReplaced(t *testing.T) {
	for reason, o := range connectionLimits {
		t.Run(reason, func(t *testing.T) {
			f, address := limited(t, servicetest.New(kv.DefaultLimits), o)
			var begun []net.Conn
			for i := range 10 {
				conn, err := net.Dial("tcp", address)
				require.NoError(t, err)
				begun = append(begun, conn)
				_, err = conn.Write([]byte(frame.Preamble[:1]))
				require.NoError(t, err)
				testwait.Until(t, func() bool { return f.Stats().Accepted >= uint64(i+2) })
			}
			for _, conn := range begun[:len(begun)-2] {
				_, err := conn.Read(make([]byte, 1))
				require.Error(t, err)
			}
			for _, conn := range begun {
				require.NoError(t, conn.Close())
			}
		})
	}
}
