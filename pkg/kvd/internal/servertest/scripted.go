package servertest

import (
	"bufio"
	"context"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/pkg/kvd/internal/memlisten"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// Scripted is a server that does what a test says.
type Scripted struct {
	kvdpb.UnimplementedKVServiceServer
	kvdpb.UnimplementedTxnServiceServer
	mu     sync.Mutex
	opened int

	// Frames serves the n-th connection for frames, from 1; nil: each operation succeeds.
	Frames func(n int, conn FrameConn) error
	// Unary answers every other call: those by gRPC, and those in frames.
	Unary func(request any) (response any, err error)
}

// FrameConn is the server's end of a connection for frames, whose frames a script sees as if they
// were in protobuf.
type FrameConn interface {
	Recv() (*kvdpb.PipelineRequest, error)
	Send(*kvdpb.PipelineResponse) error
	Context() context.Context
}

func (s *Scripted) serve(conn FrameConn) error {
	s.mu.Lock()
	s.opened++
	opened := s.opened
	s.mu.Unlock()
	if s.Frames == nil {
		return ServeFrames(conn)
	}
	return s.Frames(opened, conn)
}

func (s *Scripted) Pipeline(stream kvdpb.KVService_PipelineServer) error {
	return s.serve(&translated{
		ctx: stream.Context(),
		receive: func(r *frame.Request) error {
			m, err := stream.Recv()
			if err != nil {
				return err
			}
			return r.DecodeCompact(m.Frame)
		},
		send: func(r *frame.Response) error {
			return stream.Send(&kvdpb.PipelineResponse{Frame: r.AppendCompact(nil)})
		},
	})
}

// ServeRaw serves a raw connection.
func (s *Scripted) ServeRaw(conn net.Conn) {
	defer func() { _ = conn.Close() }() // or by the client
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	in := bufio.NewReader(conn)
	if greet(conn, in) != nil {
		return
	}
	var sending sync.Mutex
	send := func(r *frame.Response) error {
		sending.Lock()
		defer sending.Unlock()
		_, err := conn.Write(r.AppendCompact(nil))
		return err
	}
	var calls sync.WaitGroup
	defer calls.Wait()
	// With room, so that a script that takes nothing more learns that the client has gone.
	arrived := make(chan *frame.Request, 16)
	go func() {
		defer cancel() // the client has gone
		defer close(arrived)
		for {
			var r frame.Request
			if err := r.Read(in, 1<<20); err != nil {
				return
			}
			if r.Ops[0].Kind == frame.Call {
				calls.Go(func() { _ = send(s.answerCalls(&r)) }) // or the client has gone
				continue
			}
			select {
			case arrived <- &r:
			case <-ctx.Done():
				return
			}
		}
	}()
	err := s.serve(&translated{ctx: ctx, send: send, receive: func(r *frame.Request) error {
		got, ok := <-arrived
		if !ok {
			return io.EOF
		}
		*r = *got
		return nil
	}})
	if info := infoOf(err); info.GetReason() == kvdpb.ReasonOverloaded {
		_ = send(&frame.Response{Refused: true, Results: []frame.Result{{Code: int32(status.Code(err)), Reason: info.Reason}}})
	}
	_ = conn.Close()
	for range arrived { // until the reader has ended
	}
}

// greet agrees with the client on the newest version of frames.
func greet(conn io.Writer, in io.Reader) error {
	var hello [frame.PreambleBytes]byte
	if _, err := io.ReadFull(in, hello[:]); err != nil {
		return err
	}
	version := min(frame.Version(hello), frame.VersionCalls)
	if _, err := io.WriteString(conn, frame.PreambleOf(version)); err != nil || version == frame.VersionPlain {
		return err
	}
	_, err := frame.ReadAnySignIn(in)
	return err
}

// translated is a connection whose compact frames are shown as protobuf ones. A tag there
// is the id of the frame times frame.MaxOps plus the position.
type translated struct {
	ctx     context.Context
	receive func(*frame.Request) error
	send    func(*frame.Response) error

	mu    sync.Mutex
	kinds map[uint64]frame.Kind
}

func (l *translated) Context() context.Context { return l.ctx }

func (l *translated) Recv() (*kvdpb.PipelineRequest, error) {
	var r frame.Request
	if err := l.receive(&r); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.kinds == nil {
		l.kinds = make(map[uint64]frame.Kind)
	}
	m := &kvdpb.PipelineRequest{}
	for i := range r.Ops {
		op := &r.Ops[i]
		shown := &kvdpb.PipelineRequest_Op{Tag: uint64(r.ID)*frame.MaxOps + op.Tag}
		l.kinds[shown.Tag] = op.Kind
		options := &kvdpb.RequestOptions{
			ClientId: op.ClientID, Sequence: op.Sequence, Durability: op.Durability,
			Retried: op.Retried, KnownVersion: op.KnownVersion,
		}
		switch op.Kind {
		case frame.Get:
			shown.Op = &kvdpb.PipelineRequest_Op_Get{Get: &kvdpb.GetRequest{Key: op.Key, AtVersion: op.AtVersion, Epoch: op.Epoch}}
		case frame.Put:
			item := &kvdpb.Item{Key: op.Key, Value: op.Value, TtlMs: op.TTLMillis}
			shown.Op = &kvdpb.PipelineRequest_Op_Put{Put: &kvdpb.PutRequest{Item: item, Options: options}}
		default:
			shown.Op = &kvdpb.PipelineRequest_Op_Delete{Delete: &kvdpb.DeleteRequest{Key: op.Key, Options: options}}
		}
		m.Ops = append(m.Ops, shown)
	}
	return m, nil
}

// Send sends results as frames, one for each run of tags that ascend.
func (l *translated) Send(m *kvdpb.PipelineResponse) error {
	if m.GoingAway {
		return l.send(&frame.Response{Compact: true, GoingAway: true})
	}
	var r frame.Response
	flush := func() error {
		if len(r.Results) == 0 {
			return nil
		}
		err := l.send(&r)
		r = frame.Response{}
		return err
	}
	for _, shown := range m.Results {
		id, at := uint32(shown.Tag/frame.MaxOps), shown.Tag%frame.MaxOps
		if n := len(r.Results); n > 0 && (r.ID != id || r.Results[n-1].Tag >= at) {
			if err := flush(); err != nil {
				return err
			}
		}
		r.ID = id
		r.Results = append(r.Results, l.result(shown, at))
	}
	return flush()
}

// result is a result in a compact frame. One of another kind than was asked is an
// item for a write and none for a read; one that is not there says that the
// operation was skipped.
func (l *translated) result(shown *kvdpb.PipelineResponse_Result, at uint64) frame.Result {
	l.mu.Lock()
	kind := l.kinds[shown.Tag]
	l.mu.Unlock()
	if s := shown.Status; s != nil {
		return frame.Result{Tag: at, Code: s.Code, Reason: s.Reason, Message: s.Message, Version: s.Version, RetryAfterMillis: s.RetryAfterMs}
	}
	r := frame.Result{Tag: at, Version: max(shown.GetGet().GetMeta().GetVersion(), shown.GetPut().GetMeta().GetVersion(), shown.GetDelete().GetMeta().GetVersion())}
	var of frame.Kind
	switch body := shown.Result.(type) {
	case nil:
		return frame.Result{Tag: at, Skipped: true}
	case *kvdpb.PipelineResponse_Result_Get:
		of, r.HasPrevious, r.Value = frame.Get, true, body.Get.GetItem().GetValue()
	case *kvdpb.PipelineResponse_Result_Put:
		of = frame.Put
	case *kvdpb.PipelineResponse_Result_Delete:
		of = frame.Delete
	}
	if of != kind {
		r.HasPrevious = kind != frame.Get
	}
	return r
}

// Dialer serves until the test ends, over connections in memory, and returns what makes them.
func (s *Scripted) Dialer(t testing.TB) func(context.Context, string) (net.Conn, error) {
	t.Helper()
	pipe := memlisten.Listen(1 << 16)
	s.Listen(t, pipe)
	return func(ctx context.Context, _ string) (net.Conn, error) { return pipe.DialContext(ctx) }
}

// Listen serves until the test ends.
func (s *Scripted) Listen(t testing.TB, l net.Listener) {
	t.Helper()
	split := &splitter{Listener: l, raw: s.ServeRaw}
	t.Cleanup(split.end)
	s.ListenGRPC(t, split)
}

// ListenGRPC serves gRPC only, until the test ends.
func (s *Scripted) ListenGRPC(t testing.TB, l net.Listener) {
	t.Helper()
	server := grpc.NewServer(grpc.WaitForHandlers(true), grpc.UnaryInterceptor(
		func(_ context.Context, request any, _ *grpc.UnaryServerInfo, _ grpc.UnaryHandler) (any, error) {
			return s.Unary(request)
		}))
	kvdpb.RegisterKVServiceServer(server, s)
	kvdpb.RegisterTxnServiceServer(server, s)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		assert.NoError(t, <-served)
	})
}

// splitter hands connections for raw frames to raw and the others on.
type splitter struct {
	net.Listener
	raw func(net.Conn)

	mu    sync.Mutex
	conns []net.Conn
	all   sync.WaitGroup
}

func (s *splitter) Accept() (net.Conn, error) {
	for {
		conn, err := s.Listener.Accept()
		if err != nil {
			return nil, err
		}
		s.mu.Lock()
		s.conns = append(s.conns, conn)
		s.mu.Unlock()
		in := bufio.NewReader(conn)
		first, err := in.Peek(1)
		if err == nil && first[0] != frame.Preamble[0] {
			return peeked{conn, in}, nil
		}
		s.all.Go(func() { s.raw(peeked{conn, in}) })
	}
}

// end cuts all connections and waits until none is served.
func (s *splitter) end() {
	s.mu.Lock()
	for _, conn := range s.conns {
		_ = conn.Close() // or it is closed
	}
	s.mu.Unlock()
	s.all.Wait()
}

type peeked struct {
	net.Conn
	in *bufio.Reader
}

func (p peeked) Read(b []byte) (int, error) { return p.in.Read(b) }

// AnswerAll returns a success for each operation of a frame.
func AnswerAll(r *kvdpb.PipelineRequest) *kvdpb.PipelineResponse {
	response := &kvdpb.PipelineResponse{}
	for _, op := range r.Ops {
		result := &kvdpb.PipelineResponse_Result{Tag: op.Tag}
		switch op.Op.(type) {
		case *kvdpb.PipelineRequest_Op_Get:
			result.Result = &kvdpb.PipelineResponse_Result_Get{Get: &kvdpb.GetResponse{Item: &kvdpb.Item{Value: []byte("v")}}}
		case *kvdpb.PipelineRequest_Op_Put:
			result.Result = &kvdpb.PipelineResponse_Result_Put{Put: &kvdpb.PutResponse{}}
		case *kvdpb.PipelineRequest_Op_Delete:
			result.Result = &kvdpb.PipelineResponse_Result_Delete{Delete: &kvdpb.DeleteResponse{}}
		}
		response.Results = append(response.Results, result)
	}
	return response
}

// ServeFrames answers each frame with a success.
func ServeFrames(conn FrameConn) error {
	for {
		r, err := conn.Recv()
		if err != nil {
			return nil
		}
		if err := conn.Send(AnswerAll(r)); err != nil {
			return err
		}
	}
}

// WithReason returns the error of a status with a reason of kvd and its metadata: keys and values
// in turn.
func WithReason(t testing.TB, s *status.Status, reason string, metadata ...string) error {
	t.Helper()
	info := &errdetails.ErrorInfo{Reason: reason, Domain: kvdpb.ErrorDomain, Metadata: make(map[string]string)}
	for i := 0; i < len(metadata); i += 2 {
		info.Metadata[metadata[i]] = metadata[i+1]
	}
	s, err := s.WithDetails(info)
	require.NoError(t, err)
	return s.Err()
}

// infoOf returns the reason of kvd and its metadata in an error, nil if it has none.
func infoOf(err error) *errdetails.ErrorInfo {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok {
			return info
		}
	}
	return nil
}
