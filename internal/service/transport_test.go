package service_test

import (
	"bufio"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/test/bufconn"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/testwait"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// stream is what carries a pipeline at the client. Those that carry compact frames
// translate them into the generated code's words.
type stream interface {
	Send(*kvdpb.PipelineRequest) error
	Recv() (*kvdpb.PipelineResponse, error)
	CloseSend() error
}

// opener opens a pipeline to the server of a fixture.
type opener func(t testing.TB, f *fixture) *pipeline

// eachTransport runs a test over each way to carry a pipeline: messages of
// operations, messages of compact frames, and raw frames. In a compact frame all
// operations are reads, or all are writes of one durability.
func eachTransport(t *testing.T, test func(t *testing.T, open opener)) {
	for name, open := range map[string]opener{
		"operations": func(t testing.TB, f *fixture) *pipeline { return f.pipeline(t) },
		"compact":    func(t testing.TB, f *fixture) *pipeline { return f.compactPipeline(t) },
		"raw":        func(t testing.TB, f *fixture) *pipeline { return f.rawPipeline(t) },
	} {
		t.Run(name, func(t *testing.T) { test(t, open) })
	}
}

func (f *fixture) pipeline(t testing.TB) *pipeline {
	t.Helper()
	stream, err := f.kv.Pipeline(testContext(t))
	require.NoError(t, err)
	return &pipeline{t: t, stream: stream}
}

func (f *fixture) compactPipeline(t testing.TB) *pipeline {
	t.Helper()
	stream, err := f.kv.Pipeline(testContext(t))
	require.NoError(t, err)
	return &pipeline{t: t, stream: &translated{carrier: messages{stream}}}
}

func (f *fixture) rawPipeline(t testing.TB) *pipeline {
	t.Helper()
	return &pipeline{t: t, stream: &translated{carrier: f.raw(t)}}
}

// from is a listener whose connections all come from one address.
type from struct {
	net.Listener
	remote string
}

type fromConn struct {
	net.Conn
	remote from
}

func (l from) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return fromConn{conn, l}, nil
}

func (l from) Network() string          { return "tcp" }
func (l from) String() string           { return l.remote }
func (c fromConn) RemoteAddr() net.Addr { return c.remote }

// rawPipelineFrom opens a pipeline on a connection that seems to come from an address.
func (f *fixture) rawPipelineFrom(t testing.TB, remote string) *pipeline {
	t.Helper()
	l := bufconn.Listen(1 << 20)
	f.serveAlso(t, from{l, remote})
	conn, err := l.Dial()
	require.NoError(t, err)
	return &pipeline{t: t, stream: &translated{carrier: newRawConn(t, conn)}}
}

// tcp has the server listen on a port too, and returns its address.
func (f *fixture) tcp(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f.serveAlso(t, l)
	return l.Addr().String()
}

// serveAlso has the server serve on one more listener.
func (f *fixture) serveAlso(t testing.TB, l net.Listener) {
	served := serveOn(f.Server, l)
	t.Cleanup(func() {
		require.NoError(t, f.Shutdown(testContext(t)))
		require.NoError(t, <-served)
	})
}

// raw opens a connection of raw frames, on a port of its own.
func (f *fixture) raw(t testing.TB) *rawConn {
	t.Helper()
	return dialRaw(t, f.tcp(t))
}

func dialRaw(t testing.TB, address string) *rawConn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	require.NoError(t, err)
	return newRawConn(t, conn)
}

// rawConn is the client's end of a connection of raw frames.
type rawConn struct {
	net.Conn
	in *bufio.Reader
}

// newRawConn exchanges the preambles. The connection lasts as long as the test, and
// nothing on it more than ten seconds.
func newRawConn(t testing.TB, conn net.Conn) *rawConn {
	t.Helper()
	t.Cleanup(func() { _ = conn.Close() }) // some are closed earlier
	require.NoError(t, conn.SetDeadline(testwait.Deadline()))
	_, err := io.WriteString(conn, frame.Preamble)
	require.NoError(t, err)
	c := &rawConn{conn, bufio.NewReader(conn)}
	answer := make([]byte, len(frame.Preamble))
	_, err = io.ReadFull(c.in, answer)
	require.NoError(t, err)
	require.Equal(t, frame.Preamble, string(answer))
	return c
}

func (c *rawConn) send(data []byte) error {
	_, err := c.Write(data)
	return err
}

func (c *rawConn) receive(r *frame.Response) error { return r.Read(c.in, 1<<30) }

func (c *rawConn) closeSend() error { return c.Conn.(*net.TCPConn).CloseWrite() }

// messages carry compact frames by the generated code.
type messages struct {
	stream kvdpb.KVService_PipelineClient
}

func (m messages) send(data []byte) error {
	return m.stream.Send(&kvdpb.PipelineRequest{Frame: data})
}

func (m messages) receive(r *frame.Response) error {
	message, err := m.stream.Recv()
	if err != nil {
		return err
	}
	if message.GoingAway {
		*r = frame.Response{GoingAway: true}
		return nil
	}
	return r.DecodeCompact(message.Frame)
}

func (m messages) closeSend() error { return m.stream.CloseSend() }

// translated is a stream over whatever carries compact frames.
type translated struct {
	carrier interface {
		send(data []byte) error
		receive(r *frame.Response) error
		closeSend() error
	}
	builder frame.Builder
	id      uint32

	mu       sync.Mutex
	underWay map[uint32][]*kvdpb.PipelineRequest_Op
}

func (s *translated) CloseSend() error { return s.carrier.closeSend() }

func (s *translated) Send(r *kvdpb.PipelineRequest) error {
	header := frame.Header{}
	s.builder.Reset(frame.WriteFrame)
	if r.Ops[0].GetGet() != nil {
		s.builder.Reset(frame.ReadFrame)
	}
	for _, op := range r.Ops {
		one := frame.Op{TimeoutMillis: op.TimeoutMs}
		switch body := op.Op.(type) {
		case *kvdpb.PipelineRequest_Op_Get:
			one.Kind, one.Key, one.AtVersion, one.Epoch = frame.Get, body.Get.Key, body.Get.AtVersion, body.Get.Epoch
		case *kvdpb.PipelineRequest_Op_Put:
			one.Kind, one.Key, one.Value, one.TTLMillis = frame.Put, body.Put.Item.Key, body.Put.Item.Value, body.Put.Item.TtlMs
			one.ReturnPrevious = body.Put.ReturnPrevious
			one.Condition = translatedCondition(body.Put.Precondition)
			header.Durability = body.Put.Options.GetDurability()
		case *kvdpb.PipelineRequest_Op_Delete:
			one.Kind, one.Key, one.ReturnPrevious = frame.Delete, body.Delete.Key, body.Delete.ReturnPrevious
			one.Condition = translatedCondition(body.Delete.Precondition)
		}
		s.builder.Add(&one)
	}
	s.mu.Lock()
	s.id++
	header.ID = s.id
	if s.underWay == nil {
		s.underWay = map[uint32][]*kvdpb.PipelineRequest_Op{}
	}
	s.underWay[header.ID] = r.Ops
	s.mu.Unlock()
	return s.carrier.send(append([]byte(nil), s.builder.Finish(header)...))
}

func translatedCondition(p *kvdpb.Precondition) frame.Condition {
	switch kind := p.GetKind().(type) {
	case *kvdpb.Precondition_MustExist:
		return frame.Condition{Kind: frame.MustExist}
	case *kvdpb.Precondition_MustNotExist:
		return frame.Condition{Kind: frame.MustNotExist}
	case *kvdpb.Precondition_VersionEquals:
		return frame.Condition{Kind: frame.VersionEquals, Version: kind.VersionEquals}
	case *kvdpb.Precondition_ValueEquals:
		return frame.Condition{Kind: frame.ValueEquals, Value: kind.ValueEquals}
	}
	return frame.Condition{}
}

func (s *translated) Recv() (*kvdpb.PipelineResponse, error) {
	var r frame.Response
	if err := s.carrier.receive(&r); err != nil {
		return nil, err
	}
	message := &kvdpb.PipelineResponse{GoingAway: r.GoingAway}
	s.mu.Lock()
	ops := s.underWay[r.ID]
	s.mu.Unlock()
	for _, result := range r.Results {
		message.Results = append(message.Results, translatedResult(ops[result.Tag], &result))
	}
	return message, nil
}

func translatedResult(op *kvdpb.PipelineRequest_Op, r *frame.Result) *kvdpb.PipelineResponse_Result {
	one := &kvdpb.PipelineResponse_Result{Tag: op.Tag}
	if r.Code != 0 {
		one.Status = &kvdpb.Status{Code: r.Code, Reason: r.Reason, Message: r.Message, RetryAfterMs: r.RetryAfterMillis, Version: r.Version}
		return one
	}
	meta := &kvdpb.ResponseMeta{Version: r.Version, Deduplicated: r.Deduplicated}
	var item *kvdpb.Item
	if r.HasPrevious {
		item = &kvdpb.Item{Value: r.Value, Version: r.ItemVersion, TtlMs: r.TTLMillis}
	}
	switch op.Op.(type) {
	case *kvdpb.PipelineRequest_Op_Get:
		one.Result = &kvdpb.PipelineResponse_Result_Get{Get: &kvdpb.GetResponse{Item: item, Meta: meta}}
	case *kvdpb.PipelineRequest_Op_Put:
		one.Result = &kvdpb.PipelineResponse_Result_Put{Put: &kvdpb.PutResponse{Previous: item, Meta: meta}}
	default:
		one.Result = &kvdpb.PipelineResponse_Result_Delete{Delete: &kvdpb.DeleteResponse{Previous: item, Meta: meta}}
	}
	return one
}

// exchange sends a frame and returns the results of one answer.
func (c *rawConn) exchange(t testing.TB, data []byte) frame.Response {
	t.Helper()
	require.NoError(t, c.send(data))
	return c.answer(t)
}

func (c *rawConn) answer(t testing.TB) (r frame.Response) {
	t.Helper()
	require.NoError(t, c.receive(&r))
	return r
}

// requireEnd checks that the server has closed the connection in order.
func (c *rawConn) requireEnd(t testing.TB) {
	t.Helper()
	_, err := c.in.ReadByte()
	assert.ErrorIs(t, err, io.EOF)
}
