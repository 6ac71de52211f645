package servertest

import (
	"bufio"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/kvd-db/kvd/internal/frame"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// Map serves a map by raw frames. It does as little as a server can, so that a benchmark
// measures the client.
type Map struct {
	mu      sync.Mutex
	values  map[string][]byte
	version uint64
	frames  int
}

// Listen serves on loopback until the test ends, and returns the address.
func (s *Map) Listen(t testing.TB) string {
	t.Helper()
	s.values = make(map[string][]byte)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { s.serve(conn) })
		}
	})
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		all.Wait()
	})
	return l.Addr().String()
}

// serve answers frames, one after the other, until the client goes.
func (s *Map) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }() // or by the client
	in := bufio.NewReaderSize(conn, 64<<10)
	if _, err := in.Discard(len(frame.Preamble)); err != nil {
		return
	}
	if _, err := io.WriteString(conn, frame.Preamble); err != nil {
		return
	}
	var r frame.Request
	var answers frame.Response
	var out []byte
	for r.Read(in, 8<<20) == nil {
		answers.ID, answers.Results = r.ID, answers.Results[:0]
		s.mu.Lock()
		s.frames++
		for i := range r.Ops {
			answers.Results = append(answers.Results, s.perform(&r.Ops[i]))
		}
		s.mu.Unlock()
		out = answers.AppendCompact(out[:0])
		if _, err := conn.Write(out); err != nil {
			return
		}
	}
}

// Frames returns the number of frames that were answered.
func (s *Map) Frames() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.frames
}

func (s *Map) perform(op *frame.Op) frame.Result {
	switch {
	case op.Skipped:
		return frame.Result{Tag: op.Tag, Skipped: true}
	case op.Kind == frame.Get:
		value, found := s.values[string(op.Key)]
		if !found {
			return frame.Result{Tag: op.Tag, Code: int32(codes.NotFound), Reason: kvdpb.ReasonKeyNotFound, Version: s.version}
		}
		return frame.Result{Tag: op.Tag, HasPrevious: true, Value: value, Version: s.version, ItemVersion: 1}
	}
	s.version++
	if op.Kind == frame.Delete {
		delete(s.values, string(op.Key))
	} else if value, found := s.values[string(op.Key)]; found && len(value) == len(op.Value) {
		copy(value, op.Value)
	} else {
		s.values[string(op.Key)] = append([]byte(nil), op.Value...)
	}
	return frame.Result{Tag: op.Tag, Version: s.version}
}
