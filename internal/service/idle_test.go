package service_test

import (
	"context"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	"github.com/kvd-db/kvd/internal/testwait"
)

// idler is a client that is of use once and idles then.
type idler struct {
	name string
	said []string
	hear []int // of what is answered to each, that many bytes at least

	most       float64 // bytes of heap that the server may hold for it
	goroutines float64
}

// maxFrames is how many frames of one connection are served at the same time.
const maxFrames = 8

// idlers are all kinds of them. Sockets have said nothing yet; what they take of the
// heap, the client's ends too, is in the figures of every other kind.
func idlers() []idler {
	get := frameOf(frame.ReadFrame, frame.Op{Kind: frame.Get, Key: []byte("user00000000000042")}, 1)
	puts := frameOf(frame.WriteFrame, frame.Op{Kind: frame.Put, Key: []byte("user00000000000042"), Value: servicetest.InstantValue}, 64)
	return []idler{
		{"sockets", nil, nil, 3 << 10, 1},
		{"gRPC", []string{preface + settings, ping}, []int{1, 1}, 12 << 10, 3},
		{"raw", []string{frame.Preamble, get}, []int{len(frame.Preamble), 1}, 6 << 10, 1},
		{"raw, busy once", []string{frame.Preamble, strings.Repeat(puts, maxFrames)}, []int{len(frame.Preamble), maxFrames * 64}, 12 << 10, 8},
	}
}

// hold has so many clients idle, and returns what the process then holds for each:
// bytes of heap and of stacks, and goroutines.
func (k *idler) hold(t testing.TB, n int) (each [3]float64) {
	s := service.New(&meetingStore{Instant: servicetest.NewInstant()},
		service.Options{Connections: n, PeerConnections: n}, protocols...)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	conns := make([]net.Conn, n)
	before := held()
	for i := range conns {
		conn, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		conns[i] = conn
		for j, words := range k.said {
			_, err := io.WriteString(conn, words)
			require.NoError(t, err)
			_, err = io.ReadFull(conn, make([]byte, k.hear[j]))
			require.NoError(t, err)
		}
	}
	testwait.Until(t, func() bool { return s.Stats().Connections == int64(n) }, "all are accepted")
	for i, after := range held() {
		each[i] = (after - before[i]) / float64(n)
	}
	for _, conn := range conns {
		require.NoError(t, conn.Close())
	}
	ctx, cut := context.WithCancel(context.Background())
	cut()
	_ = s.Shutdown(ctx) // some may be there still
	require.NoError(t, <-served)
	return each
}

// held is the memory of heap and stacks, and the number of goroutines.
func held() [3]float64 {
	for range 3 { // pools are emptied by two
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return [3]float64{float64(m.HeapAlloc), float64(m.StackInuse), float64(runtime.NumGoroutine())}
}

// BenchmarkIdleConnections says what one connection holds that idles: of 4,000 with
// -benchtime 4000x.
func BenchmarkIdleConnections(b *testing.B) {
	for _, kind := range idlers() {
		b.Run(kind.name, func(b *testing.B) {
			each := kind.hold(b, b.N)
			for i, unit := range []string{"heap-B/conn", "stack-B/conn", "goroutines/conn"} {
				b.ReportMetric(each[i], unit)
			}
		})
	}
}

// No connection that idles holds a buffer, or what it once had under way.
func TestAnIdleConnectionHoldsLittle(t *testing.T) {
	for _, kind := range idlers() {
		t.Run(kind.name, func(t *testing.T) {
			const n = 200
			each := kind.hold(t, n)
			assert.Less(t, each[0], kind.most)
			assert.InDelta(t, kind.goroutines, each[2], 10./n) // some of the server itself
		})
	}
}

func frameOf(kind frame.FrameKind, op frame.Op, n int) string {
	var b frame.Builder
	b.Reset(kind)
	for i := range n {
		op.Tag = uint64(i)
		b.Add(&op)
	}
	return string(b.Finish(frame.Header{ID: 1, TimeoutMillis: 5000}))
}

// meetingStore writes when as many writes as a pipeline has under way have met.
type meetingStore struct {
	servicetest.Instant
	mu  sync.Mutex
	met chan struct{}
	n   int
}

func (s *meetingStore) Write(ctx context.Context, writes []*kv.Write) error {
	s.mu.Lock()
	if s.n++; s.n == 1 {
		s.met = make(chan struct{})
	}
	met := s.met
	if s.n == maxFrames {
		s.n = 0
		close(met)
	}
	s.mu.Unlock()
	<-met
	return s.Instant.Write(ctx, writes)
}
