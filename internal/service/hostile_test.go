package service_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/testwait"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// hostile is a client that speaks HTTP/2 frame by frame.
type hostile struct {
	net.Conn
	framer *http2.Framer
	last   uint32 // stream
	heads  bytes.Buffer
	encode *hpack.Encoder

	read   sync.WaitGroup
	goAway chan string // what the server said, closed when it has ended the connection
}

// attack opens a connection, on which all that the server says is read, and shown to see.
func (f *fixture) attack(t testing.TB, see ...func(http2.Frame)) *hostile {
	t.Helper()
	conn, err := f.listener.Dial()
	require.NoError(t, err)
	h := &hostile{Conn: conn, framer: http2.NewFramer(conn, conn), goAway: make(chan string, 1)}
	h.encode = hpack.NewEncoder(&h.heads)
	_, err = io.WriteString(conn, http2.ClientPreface)
	require.NoError(t, err)
	require.NoError(t, h.framer.WriteSettings())
	h.read.Go(func() {
		defer close(h.goAway)
		in := http2.NewFramer(io.Discard, conn)
		for {
			got, err := in.ReadFrame()
			if err != nil {
				return
			}
			for _, f := range see {
				f(got)
			}
			if g, ok := got.(*http2.GoAwayFrame); ok {
				h.goAway <- fmt.Sprintf("%v: %s", g.ErrCode, g.DebugData())
			}
		}
	})
	t.Cleanup(h.leave)
	return h
}

// leave ends the connection; that it was ended before is no news.
func (h *hostile) leave() {
	_ = h.Close()
	h.read.Wait()
}

// open opens a stream without a body.
func (h *hostile) open(method string) error {
	h.heads.Reset()
	for _, field := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "x"},
		{"content-type", "application/grpc"}, {"te", "trailers"}, {"grpc-timeout", "99H"},
	} {
		if err := h.encode.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}); err != nil {
			return err
		}
	}
	h.last += 2
	return h.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: h.last - 1, BlockFragment: h.heads.Bytes(), EndHeaders: true})
}

// call makes a unary call and does not wait for its answer.
func (h *hostile) call(method string, message []byte) error {
	if err := h.open(method); err != nil {
		return err
	}
	data := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
	return h.framer.WriteData(h.last-1, true, data)
}

// honestRounds of honest's 32 callers meet what else there is in every state.
const honestRounds = 3

// honest makes calls of each kind, some at the same time, and returns how many there were.
// None may fail.
func (f *fixture) honest(t testing.TB, rounds int) (calls int) {
	t.Helper()
	const callers = 32
	conn := f.dial(t)
	client, ctx := kvdpb.NewKVServiceClient(conn), context.Background()
	var all sync.WaitGroup
	var done atomic.Int64
	for i := range callers {
		all.Go(func() {
			key := []byte{byte('a' + i)}
			for range rounds {
				_, err := client.Put(ctx, &kvdpb.PutRequest{Item: &kvdpb.Item{Key: key, Value: bytes.Repeat(key, 5000)}})
				if !assert.NoError(t, err) {
					return
				}
				got, err := client.Get(ctx, &kvdpb.GetRequest{Key: key})
				if !assert.NoError(t, err) || !assert.Len(t, got.Item.Value, 5000) {
					return
				}
				done.Add(2)
			}
		})
	}
	all.Wait()
	stream, err := client.Pipeline(ctx)
	require.NoError(t, err)
	p := &pipeline{t: t, stream: stream}
	for i := range rounds {
		p.send(getOp(uint64(i), "a"))
		assert.Nil(t, p.result().Status)
		done.Add(1)
	}
	p.close()
	answer, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	require.Equal(t, healthpb.HealthCheckResponse_SERVING, answer.Status)
	require.EqualValues(t, rounds*(2*callers+1), done.Load())
	return int(done.Load())
}

func (f *fixture) waits(t testing.TB, n int64) {
	t.Helper()
	testwait.Until(t, func() bool { return f.Stats().Waiting == n })
}

// Streams of which the request does not come keep no call out, however many there are, of
// whatever method.
func TestStreamsWithoutARequestKeepNobodyOut(t *testing.T) {
	for _, method := range []string{kvdpb.KVService_Put_FullMethodName, kvdpb.KVService_Pipeline_FullMethodName, kvdpb.KVService_Scan_FullMethodName} {
		t.Run(methodName(method), func(t *testing.T) {
			f := startWith(t, kv.DefaultLimits, service.Options{BufferBytes: 64 << 20})
			const conns = 7
			open := func(n int) {
				for range n {
					h := f.attack(t)
					for range 256 {
						require.NoError(t, h.open(method))
					}
				}
			}
			open(conns)
			f.waits(t, conns*256)
			f.honest(t, honestRounds)
			f.waits(t, conns*256) // they were there all the time

			if testsize.Reduced() && method != kvdpb.KVService_Pipeline_FullMethodName {
				return
			}
			open(17 - conns) // more than may wait
			f.waits(t, 4096)
			f.honest(t, honestRounds)
			assert.Greater(t, f.Stats().Waiting, int64(4000), "they were there all the time")
			assert.Positive(t, f.Stats().Shed["idle_streams"])
		})
	}
}

func methodName(full string) string { return full[len("/kvd.v1.KVService/"):] }

// Nor do watches of health.
func TestHealthIsAnsweredWhateverWaits(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{})
	for range 2 {
		h := f.attack(t)
		for range 256 {
			require.NoError(t, h.open("/grpc.health.v1.Health/Watch"))
		}
	}
	f.waits(t, 256)
	f.honest(t, 1)
	assert.Greater(t, f.Stats().Waiting, int64(250))
}

// What has come of a request counts, and what a client announces does not.
func TestRequestsThatComeInPartKeepNobodyOut(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{BufferBytes: 32 << 20})
	part := make([]byte, 5+16<<10-5)
	binary.BigEndian.PutUint32(part[1:], 8<<20) // the length of the message
	sent := 0
	for sent < 48<<20 {
		h := f.attack(t)
		for range 64 {
			if h.open(kvdpb.KVService_Put_FullMethodName) != nil {
				break // the server has ended it
			}
			if h.framer.WriteData(h.last-1, false, part) != nil {
				break
			}
			sent += len(part)
		}
		if sent == 64*len(part) {
			testwait.Until(t, func() bool { return f.Stats().WaitingBytes > 0 })
		}
	}
	testwait.Until(t, func() bool { return f.Stats().Shed["idle_streams"] > 0 })
	f.honest(t, honestRounds)
	assert.LessOrEqual(t, f.Stats().WaitingBytes, int64(16<<20)+int64(len(part)))
	assert.Greater(t, f.Stats().WaitingBytes, int64(4<<20), "they were there all the time")
}

// Raw frames whose lengths lie hold no more than has come of them.
func TestLyingLengthsOfRawFramesKeepNobodyOut(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{BufferBytes: 64 << 20})
	const conns = 44
	for range conns {
		conn, err := f.listener.Dial()
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		lie := binary.LittleEndian.AppendUint32([]byte(frame.Preamble), 8<<20)
		_, err = conn.Write(append(lie, make([]byte, 28-len(lie))...))
		require.NoError(t, err)
		_, err = io.ReadFull(conn, make([]byte, len(frame.Preamble)))
		require.NoError(t, err)
	}
	f.waits(t, conns)
	f.honest(t, honestRounds)
	stats := f.Stats()
	assert.EqualValues(t, conns, stats.Waiting, "they were there all the time")
	assert.LessOrEqual(t, stats.WaitingBytes+stats.Bytes, int64(conns*64<<10))
}

// Streams that a client opens and resets at once end its connection, and it is told why;
// one that connects again gets less.
func TestRapidResetsEndTheConnection(t *testing.T) {
	f := startWith(t, kv.DefaultLimits, service.Options{})
	flood := func() (resets int, said string) {
		h := f.attack(t)
		defer h.leave()
		for {
			if h.open(kvdpb.KVService_Get_FullMethodName) != nil || h.framer.WriteRSTStream(h.last-1, http2.ErrCodeCancel) != nil {
				return resets, <-h.goAway
			}
			if resets++; resets > 1_000_000 {
				return resets, "nothing"
			}
		}
	}
	stop := make(chan struct{})
	var resets, ended atomic.Int64
	var all sync.WaitGroup
	defer all.Wait()
	defer close(stop)
	for range 2 {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				n, said := flood()
				resets.Add(int64(n))
				if !assert.Contains(t, said, "ENHANCE_YOUR_CALM: too many streams that were reset") {
					return
				}
				ended.Add(1)
			}
		})
	}
	connections := int64(4)
	if testsize.Reduced() {
		connections = 2
	}
	testwait.Until(t, func() bool { return ended.Load() >= connections })
	before := ended.Load()
	calls := f.honest(t, honestRounds)
	testwait.Until(t, func() bool { return ended.Load() > before })
	t.Logf("%d honest calls beside %d resets on %d connections", calls, resets.Load(), ended.Load())
	assert.Positive(t, f.Stats().Shed["flood"])
}

// So do other frames that make work and ask for nothing.
func TestFloodsOfFramesEndTheConnection(t *testing.T) {
	get, err := proto.Marshal(&kvdpb.GetRequest{Key: []byte("k")})
	require.NoError(t, err)
	for name, send := range map[string]func(h *hostile) error{
		"settings": func(h *hostile) error { return h.framer.WriteSettings() },
		"windows":  func(h *hostile) error { return h.framer.WriteWindowUpdate(0, 1) },
		"priority": func(h *hostile) error {
			return h.framer.WritePriority(1, http2.PriorityParam{})
		},
		"unknown": func(h *hostile) error { return h.framer.WriteRawFrame(0xbe, 0, 0, nil) },
		"empty data": func(h *hostile) error {
			if h.last == 0 {
				if err := h.open(kvdpb.KVService_Put_FullMethodName); err != nil {
					return err
				}
			}
			return h.framer.WriteData(h.last-1, false, nil)
		},
		// Each answer allows a few frames, not many.
		"windows beside calls": func(h *hostile) error {
			if err := h.call(kvdpb.KVService_Get_FullMethodName, get); err != nil {
				return err
			}
			for range 10 {
				if err := h.framer.WriteWindowUpdate(0, 1); err != nil {
					return err
				}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := startWith(t, kv.DefaultLimits, service.Options{})
			f.put(t, "k", "v")
			h := f.attack(t)
			for sent := 0; send(h) == nil; sent++ {
				if sent >= 1_000_000 { // not an assertion: this runs often
					t.Fatal("the server takes them all")
				}
			}
			said := <-h.goAway
			assert.Contains(t, said, "ENHANCE_YOUR_CALM: too many frames that ask for nothing")
			f.honest(t, 1)
		})
	}
}

// A client all of whose calls are cancelled now and then is none of those.
func TestCancelledCallsAreNoFlood(t *testing.T) {
	store, entered, leave := waiting()
	f := start(t, store, func() *service.Server { return service.New(store, service.Options{}, protocols...) })
	for range 3 {
		ctx, cancel := context.WithCancel(context.Background())
		var all sync.WaitGroup
		for range 256 {
			all.Go(func() {
				_, err := f.kv.Get(ctx, &kvdpb.GetRequest{Key: []byte("k")})
				assert.Equal(t, codes.Canceled, status.Code(err))
			})
		}
		for range 256 {
			<-entered
		}
		cancel()
		all.Wait()
	}
	leave()
	f.put(t, "k", "v")
	assert.Zero(t, f.Stats().Shed["flood"])
	assert.EqualValues(t, 1, f.Stats().Accepted)
}
