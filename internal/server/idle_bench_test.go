package server

import (
	"context"
	"io"
	"net"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/pkg/kvdpb/frame"
)

// BenchmarkIdleConnections opens connections, has each be of use once, and says what
// one of them then holds: -benchtime 4000x is with 4,000 of them. Sockets alone have
// said nothing yet; what they take of the heap, the client's ends too, is in every
// other figure.
func BenchmarkIdleConnections(b *testing.B) {
	get := frameOf(frame.ReadFrame, frame.Op{Kind: frame.Get, Key: []byte("user00000000000042")}, 1)
	puts := frameOf(frame.WriteFrame, frame.Op{Kind: frame.Put, Key: []byte("user00000000000042"), Value: instantValue}, 64)
	many := ""
	for range maxFramesInFlight {
		many += puts
	}
	for _, kind := range []struct {
		name string
		said []string
		hear []int // of what is answered, that many bytes at least
	}{
		{"sockets", nil, nil},
		{"gRPC", []string{preface + settings, ping}, []int{1, 1}},
		{"raw", []string{frame.Preamble, get}, []int{len(frame.Preamble), 1}},
		{"raw busy once", []string{frame.Preamble, many}, []int{len(frame.Preamble), maxFramesInFlight * 64}},
	} {
		b.Run(kind.name, func(b *testing.B) {
			s := newServer(&meetingStore{instantStore: instantStore{limitsOnly{limits: kv.DefaultLimits}}},
				Options{Connections: 1 << 20, PeerConnections: 1 << 20, Streams: 1 << 20}, defaultLifetimes)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(b, err)
			served := make(chan error, 1)
			go func() { served <- s.Serve(l) }()
			conns := make([]net.Conn, b.N)
			before := held()
			for i := range conns {
				conn, err := net.Dial("tcp", l.Addr().String())
				require.NoError(b, err)
				conns[i] = conn
				for i, words := range kind.said {
					_, err := io.WriteString(conn, words)
					require.NoError(b, err)
					_, err = io.ReadFull(conn, make([]byte, kind.hear[i]))
					require.NoError(b, err)
				}
			}
			after := held()
			for i, unit := range []string{"heap-B/conn", "stack-B/conn", "goroutines/conn"} {
				b.ReportMetric((after[i]-before[i])/float64(b.N), unit)
			}
			for _, conn := range conns {
				require.NoError(b, conn.Close())
			}
			ctx, cut := context.WithCancel(context.Background())
			cut()
			_ = s.Shutdown(ctx) // some may be there still
			require.NoError(b, <-served)
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

// held is the memory of heap and stacks, and the number of goroutines.
func held() [3]float64 {
	for range 3 { // pools are emptied by two
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return [3]float64{float64(m.HeapInuse), float64(m.StackInuse), float64(runtime.NumGoroutine())}
}

// meetingStore writes when as many writes as a pipeline has under way have met.
type meetingStore struct {
	instantStore
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
	if s.n == maxFramesInFlight {
		s.n = 0
		close(met)
	}
	s.mu.Unlock()
	<-met
	return s.instantStore.Write(ctx, writes)
}
