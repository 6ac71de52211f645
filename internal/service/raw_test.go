package service_test

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/testwait"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// framed builds a frame of its own memory.
func framed(kind frame.FrameKind, h frame.Header, ops ...frame.Op) []byte {
	var b frame.Builder
	b.Reset(kind)
	for i := range ops {
		b.Add(&ops[i])
	}
	return b.Finish(h)
}

func reads(id uint32, keys ...string) []byte {
	var ops []frame.Op
	for _, key := range keys {
		ops = append(ops, frame.Op{Kind: frame.Get, Key: []byte(key)})
	}
	return framed(frame.ReadFrame, frame.Header{ID: id}, ops...)
}

func write(id uint32, key, value string) []byte {
	return framed(frame.WriteFrame, frame.Header{ID: id}, frame.Op{Kind: frame.Put, Key: []byte(key), Value: []byte(value)})
}

// requireIdle waits until nothing is left of raw connections.
func (f *fixture) requireIdle(t testing.TB) {
	t.Helper()
	testwait.Until(t, func() bool {
		stats := f.Stats()
		return stats.Raw == 0 && stats.Bytes == 0 && stats.Streams == 0
	})
}

func TestCompactPipelinesAnswerEachOperation(t *testing.T) {
	for name, open := range map[string]func(*fixture, testing.TB) *pipeline{
		"messages": (*fixture).compactPipeline, "raw": (*fixture).rawPipeline,
	} {
		t.Run(name, func(t *testing.T) {
			f := startWith(t, kv.DefaultLimits, service.Options{})
			p := open(f, t)
			p.send(putOp(10, "a", "1"), putOp(11, "b", ""))
			assert.EqualValues(t, 1, p.result().GetPut().GetMeta().GetVersion())
			assert.EqualValues(t, 2, p.result().GetPut().GetMeta().GetVersion())
			p.send(getOp(1, "a"), getOp(2, "b"), getOp(3, "c"))
			r := p.result()
			assert.EqualValues(t, 1, r.Tag)
			assert.Equal(t, "1", string(r.GetGet().GetItem().GetValue()))
			assert.EqualValues(t, 1, r.GetGet().GetItem().GetVersion())
			assert.EqualValues(t, 2, r.GetGet().GetMeta().GetVersion(), "read at the newest version")
			r = p.result()
			assert.NotNil(t, r.GetGet().GetItem(), "an empty value is a value")
			assert.Empty(t, r.GetGet().GetItem().GetValue())
			r = p.result()
			assert.Equal(t, "KEY_NOT_FOUND", r.Status.GetReason())
			assert.EqualValues(t, 2, r.Status.GetVersion())
			p.send(deleteOp(1, "a"))
			assert.EqualValues(t, 3, p.result().GetDelete().GetMeta().GetVersion())
			p.close()

			stats := f.Stats()
			assert.EqualValues(t, 3, stats.Frames.Count())
			assert.EqualValues(t, 6, stats.Frames.Sum)
			if name == "raw" {
				assert.EqualValues(t, 3, stats.RawFrames)
				assert.EqualValues(t, 1, stats.RawAccepted)
				f.requireIdle(t)
			}
			assert.EqualValues(t, 2, f.requests("Pipeline.Get", codes.OK))
			assert.EqualValues(t, 2, f.requests("Pipeline.Put", codes.OK))
			testwait.Until(t, func() bool { return f.requests("Pipeline", codes.OK) == 1 })
		})
	}
}

// All reads of such a frame are one call of the store and have one version.
func TestReadsAtOneVersion(t *testing.T) {
	store := servicetest.New(smallLimits)
	var calls []int
	store.OnLookup = func(_ context.Context, reads []*kv.Lookup) error {
		calls = append(calls, len(reads))
		return nil
	}
	f := start(t, store, func() *service.Server { return service.New(store, service.Options{}, protocols...) })
	f.put(t, "a", strings.Repeat("x", 50))
	f.put(t, "b", "1")
	c := f.raw(t)
	get := func(key string, timeout uint32) frame.Op {
		return frame.Op{Kind: frame.Get, Key: []byte(key), TimeoutMillis: timeout}
	}
	r := c.exchange(t, framed(frame.ReadFrame, frame.Header{ID: 1, OneVersion: true}, get("a", 5), get("b", 60_000), get("too long a key", 0), get("c", 0)))
	require.Len(t, r.Results, 1, "what can never succeed is refused alone")
	assert.Equal(t, kvdpb.ReasonTooLarge, r.Results[0].Reason)
	assert.EqualValues(t, 2, r.Results[0].Tag)
	r = c.answer(t)
	require.Len(t, r.Results, 3)
	for _, result := range r.Results {
		assert.EqualValues(t, 2, result.Version)
	}
	assert.EqualValues(t, 3, r.Results[2].Tag)
	assert.Equal(t, kvdpb.ReasonKeyNotFound, r.Results[2].Reason)
	assert.Equal(t, []int{3}, calls)

	for _, keys := range [][]frame.Op{
		{get("a", 0), get("a", 0), get("a", 0)},                           // too many bytes
		{get("b", 0), get("b", 0), get("b", 0), get("b", 0), get("b", 0)}, // too many keys
	} {
		r = c.exchange(t, framed(frame.ReadFrame, frame.Header{ID: 2, OneVersion: true}, keys...))
		require.Len(t, r.Results, len(keys))
		for _, result := range r.Results {
			assert.Equal(t, kvdpb.ReasonTooLarge, result.Reason)
		}
	}
}

func TestSkippedOperationsAreNotPerformed(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{})
	c := f.raw(t)
	r := c.exchange(t, framed(frame.WriteFrame, frame.Header{ID: 9},
		frame.Op{Kind: frame.Put, Key: []byte("a"), Skipped: true}, frame.Op{Kind: frame.Put, Key: []byte("b")}, frame.Op{Kind: frame.Delete, Key: []byte("c"), Skipped: true}))
	assert.EqualValues(t, 9, r.ID)
	assert.Equal(t, []frame.Result{{Tag: 0, Skipped: true}, {Tag: 2, Skipped: true}}, r.Results)
	r = c.answer(t)
	assert.Equal(t, []frame.Result{{Tag: 1, Version: 1}}, r.Results)
	assert.Equal(t, 1, f.store.Len())
	r = c.exchange(t, framed(frame.ReadFrame, frame.Header{ID: 10}, frame.Op{Kind: frame.Get, Key: []byte("b"), Skipped: true}))
	assert.Equal(t, []frame.Result{{Skipped: true}}, r.Results)
}

func TestTimingsAreSentToThoseWhoAsk(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{})
	c := f.raw(t)
	r := c.exchange(t, framed(frame.ReadFrame, frame.Header{Timed: true}, frame.Op{Kind: frame.Get, Key: []byte("k")}))
	require.Len(t, r.Timings, frame.TimingCount)
	assert.Positive(t, r.Timings[frame.TimingStore])
	assert.GreaterOrEqual(t, r.Timings[frame.TimingServer], r.Timings[frame.TimingStore])
	r = c.exchange(t, reads(2, "k"))
	assert.Empty(t, r.Timings)
}

// A client that sends what is not a frame is told why and closed; others do not notice.
func TestAMalformedFrameEndsItsConnectionAlone(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{})
	address := f.tcp(t)
	other := dialRaw(t, address)
	good := reads(1, "k")
	unknown := append([]byte(nil), good...)
	unknown[4] = 9
	huge := append(binary.LittleEndian.AppendUint32(nil, 1<<32-1), good[4:]...)
	for name, test := range map[string]struct {
		data   []byte
		reason string
	}{
		"unknown kind":       {unknown, kvdpb.ReasonInvalidRequest},
		"shorter than it is": {append([]byte{3, 0, 0, 0}, good...), kvdpb.ReasonInvalidRequest},
		"too large":          {huge, kvdpb.ReasonTooLarge},
		"after a good one":   {append(append([]byte(nil), good...), unknown...), kvdpb.ReasonInvalidRequest},
	} {
		t.Run(name, func(t *testing.T) {
			c := dialRaw(t, address)
			r := c.exchange(t, test.data)
			if !r.Refused {
				require.Equal(t, kvdpb.ReasonKeyNotFound, r.Results[0].Reason, "what came before is answered")
				r = c.answer(t)
			}
			require.True(t, r.Refused)
			assert.Equal(t, test.reason, r.Results[0].Reason)
			assert.EqualValues(t, codes.InvalidArgument, r.Results[0].Code)
			assert.NotEmpty(t, r.Results[0].Message)
			require.NoError(t, c.closeSend())
			c.requireEnd(t)
			r = other.exchange(t, good)
			assert.Equal(t, kvdpb.ReasonKeyNotFound, r.Results[0].Reason)
		})
	}
	stream, err := f.kv.Pipeline(testContext(t))
	require.NoError(t, err)
	require.NoError(t, stream.Send(&kvdpb.PipelineRequest{Frame: unknown}))
	_, err = stream.Recv()
	requireFailure(t, err, codes.InvalidArgument, "INVALID_REQUEST")
	testwait.Until(t, func() bool { return f.requests("Pipeline", codes.InvalidArgument) == 5 })
}

func TestPreambles(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{})
	address := f.tcp(t)
	say := func(hello string) string {
		conn, err := net.Dial("tcp", address)
		require.NoError(t, err)
		defer func() { require.NoError(t, conn.Close()) }()
		require.NoError(t, conn.SetDeadline(testwait.Deadline()))
		_, err = io.WriteString(conn, hello)
		require.NoError(t, err)
		require.NoError(t, conn.(*net.TCPConn).CloseWrite())
		answer, err := io.ReadAll(conn)
		require.NoError(t, err)
		return string(answer)
	}
	assert.Equal(t, frame.Preamble, say(frame.Preamble))
	assert.Equal(t, frame.PreambleOf(frame.VersionIncarnation)+"\x00", say(frame.Preamble[:7]+"\xff"), "a newer client is told our version, and that the server belongs to no cluster")
	assert.Empty(t, say(frame.Preamble[:7]+"\x00"), "there was no version 0")
	assert.Empty(t, say("\x00kvdfrM\x01"))
	assert.Empty(t, say("\x00kv"))
}

// A frame that begins and does not go on ends its connection, an idle connection
// does not; and neither does one that has no room for a frame.
func TestAFrameThatStandsStillEndsItsConnection(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{Deadline: 50 * time.Millisecond})
	data := write(1, "k", strings.Repeat("x", 100_000))
	for _, n := range []int{1, 3, 4, 19, 30, len(data) - 1} {
		c := f.raw(t)
		require.NoError(t, c.send(data[:n]))
		c.requireEnd(t)
	}
	f.requireIdle(t)
	assert.EqualValues(t, 6, f.requests("Pipeline", codes.DeadlineExceeded))
}

func TestRawBytesAreBounded(t *testing.T) {
	store, entered, leave := waiting()
	f := start(t, store, func() *service.Server { return service.New(store, service.Options{BufferBytes: 10_000}, protocols...) })
	c := f.raw(t)
	require.NoError(t, c.send(reads(1, strings.Repeat("x", 3000))))
	<-entered
	assert.Greater(t, f.Stats().Bytes, int64(3000))
	for _, size := range []int{97_000, 200_000} {
		r := c.exchange(t, write(2, "k", strings.Repeat("x", size)))
		assert.EqualValues(t, 2, r.ID)
		assert.Equal(t, kvdpb.ReasonOverloaded, r.Results[0].Reason)
		assert.Positive(t, r.Results[0].RetryAfterMillis)
	}
	leave()
	r := c.answer(t)
	assert.EqualValues(t, 1, r.ID)
	testwait.Until(t, func() bool { return f.Stats().Bytes == 0 })
	r = c.exchange(t, write(3, "k", strings.Repeat("x", 40_000)))
	assert.Zero(t, r.Results[0].Code)
	testwait.Until(t, func() bool { return f.Stats().Bytes == 0 })
	assert.EqualValues(t, 2, f.Stats().Shed["bytes"])
}

// A raw connection is bounded as a connection, and takes no call of gRPC from others: many
// may idle.
func TestRawConnectionsAreBounded(t *testing.T) {
	for reason, options := range map[string]service.Options{
		"connections":      {Connections: 3, Streams: 1}, // one is the fixture's
		"peer_connections": {PeerConnections: 2, Streams: 1},
	} {
		t.Run(reason, func(t *testing.T) {
			f := startWith(t, kv.DefaultLimits, options)
			f.put(t, "k", "v")
			address := f.tcp(t)
			for range 2 {
				r := dialRaw(t, address).exchange(t, reads(1, "k"))
				assert.Equal(t, "v", string(r.Results[0].Value))
			}
			f.put(t, "k", "there is room for a call")
			dialRaw(t, address).exchange(t, reads(1, "k")) // in place of one that idles
			assert.EqualValues(t, 1, f.Stats().Shed[reason])
			testwait.Until(t, func() bool { return f.Stats().Raw == 2 && f.Stats().Connections == 3 })
		})
	}
}

// A client that asks and does not listen is cut off.
func TestARawClientThatDoesNotReadIsCutOff(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{Deadline: 200 * time.Millisecond})
	f.put(t, "k", string(make([]byte, 1<<20)))
	c := f.raw(t)
	testwait.Until(t, func() bool { return f.Stats().RawAccepted == 1 }) // else it may seem idle
	for id := range uint32(40) {
		if err := c.send(reads(id, "k")); err != nil {
			break // it is cut off already
		}
	}
	f.requireIdle(t)
	assert.EqualValues(t, 1, f.requests("Pipeline", codes.DeadlineExceeded))
}

// Clients that vanish in the middle of whatever they do harm no other and leave
// nothing: goleak and the gauges are the judges.
func TestClientsThatVanishHarmNobody(t *testing.T) {
	vanish := 1000
	if testsize.Reduced() {
		vanish = 100
	}
	f := startWith(t, kv.DefaultLimits, service.Options{})
	address := f.tcp(t)
	dial := func() *rawConn { return dialRaw(t, address) }
	f.put(t, "big", string(make([]byte, 300_000)))
	stop := make(chan struct{})
	var others sync.WaitGroup
	for worker := range 3 {
		c := dial()
		require.NoError(t, c.SetDeadline(testwait.Deadline()))
		others.Go(func() {
			for id := uint32(0); ; id++ {
				select {
				case <-stop:
					return
				default:
				}
				value := fmt.Sprintf("%d of %d", id, worker)
				key := fmt.Sprint("other", worker)
				r := c.exchange(t, write(2*id, key, value))
				if !assert.Zero(t, r.Results[0].Code) || !assert.Equal(t, 2*id, r.ID) {
					return
				}
				r = c.exchange(t, reads(2*id+1, key))
				if !assert.Equal(t, value, string(r.Results[0].Value)) || !assert.Equal(t, 2*id+1, r.ID) {
					return
				}
			}
		})
	}
	small, large := reads(1, "big", "big"), write(2, "k", strings.Repeat("x", 50_000))
	for i := range vanish {
		c := dial()
		var err error
		switch i % 5 {
		case 0:
			err = c.send(small[:2])
		case 1:
			err = c.send(large[:10_000])
		case 2:
			err = c.send(small)
		case 3: // in the middle of the answer
			if err = c.send(small); err == nil {
				_, err = c.in.ReadByte()
			}
		case 4:
			err = c.send(append(append([]byte(nil), large...), small[:22]...))
		}
		require.NoError(t, err)
		if i%2 == 0 {
			require.NoError(t, c.Conn.(*net.TCPConn).SetLinger(0)) // a reset
		}
		require.NoError(t, c.Close())
	}
	close(stop)
	others.Wait()
	testwait.Until(t, func() bool {
		stats := f.Stats()
		return stats.Raw == 3 && stats.Bytes == 0 && stats.Streams == 0
	})
	assert.Zero(t, f.Stats().Panics)
}

// One port takes both, in plain text and by TLS, whose protocol says which.
func TestRawAndGRPCShareAPort(t *testing.T) {
	certificate, pool := servicetest.Certificate(t)
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("TLS %t", secure), func(t *testing.T) {
			store := servicetest.New(kv.DefaultLimits)
			options, client := service.Options{}, insecure.NewCredentials()
			if secure {
				options.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
				client = credentials.NewTLS(&tls.Config{RootCAs: pool, ServerName: "kvd.test"})
			}
			f := start(t, store, func() *service.Server { return service.New(store, options, protocols...) })
			address := f.tcp(t)
			conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(client))
			require.NoError(t, err)
			defer func() { require.NoError(t, conn.Close()) }()
			dial := func(protocols ...string) (*tls.Conn, error) {
				return tls.Dial("tcp", address, &tls.Config{RootCAs: pool, ServerName: "kvd.test", NextProtos: protocols})
			}
			var raw *rawConn
			if secure {
				both, err := dial("h2", frame.ALPN)
				require.NoError(t, err)
				require.Equal(t, frame.ALPN, both.ConnectionState().NegotiatedProtocol)
				raw = newRawConn(t, both)
			} else {
				raw = dialRaw(t, address)
			}
			var who peer.Peer
			for id := range uint32(20) {
				key, value := []byte(fmt.Sprint(id)), []byte(fmt.Sprint(id))
				_, err := kvdpb.NewKVServiceClient(conn).Put(testContext(t), &kvdpb.PutRequest{Item: &kvdpb.Item{Key: key, Value: value}}, grpc.Peer(&who))
				require.NoError(t, err)
				r := raw.exchange(t, reads(id, string(key)))
				require.Equal(t, value, r.Results[0].Value)
			}
			stats := f.Stats()
			assert.EqualValues(t, 2, stats.Connections)
			assert.EqualValues(t, 1, stats.Raw)
			if !secure {
				return
			}
			assert.Equal(t, "tls", who.AuthInfo.AuthType())
			_, err = dial("http/0.9")
			require.Error(t, err)
			none, err := dial()
			if err == nil { // the server closes it then
				require.NoError(t, none.SetDeadline(testwait.Deadline()))
				_, err = none.Read(make([]byte, 1))
				require.NoError(t, none.Close())
			}
			require.Error(t, err)
			other, err := dial(frame.ALPN)
			require.NoError(t, err)
			require.NoError(t, other.SetDeadline(testwait.Deadline()))
			_, err = io.WriteString(other, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
			require.NoError(t, err)
			_, err = io.ReadAll(other)
			require.NoError(t, err, "frames begin with a preamble in TLS too")
			require.NoError(t, other.Close())
		})
	}
}

// A shutdown lets frames under way finish and refuses those that still come.
func TestShutdownFinishesRawFrames(t *testing.T) {
	store := servicetest.New(kv.DefaultLimits)
	entered, gate := make(chan struct{}, 1), make(chan struct{})
	store.OnWrite = func(context.Context, []*kv.Write) error {
		entered <- struct{}{}
		<-gate
		return nil
	}
	f := start(t, store, func() *service.Server { return service.New(store, service.Options{}, protocols...) })
	c := f.raw(t)
	require.NoError(t, c.send(write(1, "k", "v")))
	<-entered
	stopped := make(chan error, 1)
	go func() { stopped <- f.Shutdown(testContext(t)) }()
	r := c.answer(t)
	assert.True(t, r.GoingAway)
	r = c.exchange(t, write(2, "late", "v"))
	assert.EqualValues(t, 2, r.ID)
	assert.Equal(t, kvdpb.ReasonShuttingDown, r.Results[0].Reason)
	close(gate)
	r = c.answer(t)
	assert.EqualValues(t, 1, r.ID)
	assert.Zero(t, r.Results[0].Code)
	require.NoError(t, c.closeSend())
	c.requireEnd(t)
	require.NoError(t, <-stopped)
	assert.Equal(t, 1, store.Len())
	assert.Zero(t, f.Stats().Connections)
}

// One whose client does not leave is cut off in time, and at once when the grace period
// ends.
func TestShutdownEndsRawConnections(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{})
	c := f.raw(t)
	c.exchange(t, write(1, "k", "v"))
	require.NoError(t, f.Shutdown(testContext(t)))
	r := c.answer(t)
	assert.True(t, r.GoingAway)
	c.requireEnd(t)

	store, entered, _ := waiting()
	f = start(t, store, func() *service.Server { return service.New(store, service.Options{}, protocols...) })
	c = f.raw(t)
	require.NoError(t, c.send(reads(1, "k")))
	<-entered
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, f.Shutdown(ctx), context.Canceled)
	stats := f.Stats()
	assert.Zero(t, stats.Connections)
	assert.Zero(t, stats.Bytes)
	assert.Zero(t, stats.Streams)
}

// A client whose connection a shutdown cuts is told so, and never that it cancelled
// what it waits for. An idle connection may have ended in order before that.
func TestAHardShutdownTellsRawConnectionsWhy(t *testing.T) {
	store, entered, _ := waiting()
	f := start(t, store, func() *service.Server { return service.New(store, service.Options{}, protocols...) })
	busy, idle := f.raw(t), f.raw(t)
	idle.exchange(t, write(1, "k", "v"))
	require.NoError(t, busy.send(reads(1, "k")))
	<-entered
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.ErrorIs(t, f.Shutdown(ctx), context.Canceled)
	told := func(c *rawConn) (refused, goingAway bool) {
		for {
			var r frame.Response
			err := c.receive(&r)
			if errors.Is(err, io.EOF) {
				return refused, goingAway
			}
			require.NoError(t, err)
			for _, result := range r.Results {
				assert.Equal(t, "SHUTTING_DOWN", result.Reason)
				assert.EqualValues(t, codes.Unavailable, result.Code)
			}
			refused, goingAway = refused || r.Refused, goingAway || r.GoingAway
		}
	}
	refused, _ := told(busy)
	assert.True(t, refused)
	refused, goingAway := told(idle)
	assert.True(t, refused || goingAway)
}

// A panic of the store fails one operation's group.
func TestAPanicFailsItsFrameAlone(t *testing.T) {
	store := servicetest.New(kv.DefaultLimits)
	store.OnLookup = func(_ context.Context, reads []*kv.Lookup) error {
		if string(reads[0].Key) == "panic" {
			panic("now")
		}
		return nil
	}
	f := start(t, store, func() *service.Server { return service.New(store, service.Options{}, protocols...) })
	c := f.raw(t)
	r := c.exchange(t, reads(1, "panic"))
	assert.Equal(t, kvdpb.ReasonInternal, r.Results[0].Reason)
	r = c.exchange(t, reads(2, "k"))
	assert.Equal(t, kvdpb.ReasonKeyNotFound, r.Results[0].Reason)
	assert.EqualValues(t, 1, f.Stats().Panics)
}
