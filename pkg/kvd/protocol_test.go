package kvd

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// scripted is a server whose Pipeline does what a test says.
type scripted struct {
	kvdpb.UnimplementedKVServiceServer
	mu     sync.Mutex
	opened int
	script func(opened int, stream kvdpb.KVService_PipelineServer) error
}

func (s *scripted) Pipeline(stream kvdpb.KVService_PipelineServer) error {
	s.mu.Lock()
	s.opened++
	opened := s.opened
	s.mu.Unlock()
	return s.script(opened, stream)
}

func openScripted(t *testing.T, script func(int, kvdpb.KVService_PipelineServer) error) *Client {
	t.Helper()
	l := bufconn.Listen(1 << 16)
	s := grpc.NewServer(grpc.WaitForHandlers(true))
	kvdpb.RegisterKVServiceServer(s, &scripted{script: script})
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		assert.NoError(t, <-served)
	})
	db, err := Open("memory", WithDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	return db
}

func answerAll(r *kvdpb.PipelineRequest) *kvdpb.PipelineResponse {
	response := &kvdpb.PipelineResponse{}
	for _, op := range r.Ops {
		result := &kvdpb.PipelineResponse_Result{Tag: op.Tag}
		switch op.Op.(type) {
		case *kvdpb.PipelineRequest_Op_Get:
			result.Result = &kvdpb.PipelineResponse_Result_Get{Get: &kvdpb.GetResponse{Item: &kvdpb.Item{Value: []byte("v")}}}
		case *kvdpb.PipelineRequest_Op_Put:
			result.Result = &kvdpb.PipelineResponse_Result_Put{Put: &kvdpb.PutResponse{}}
		}
		response.Results = append(response.Results, result)
	}
	return response
}

func serveFrames(stream kvdpb.KVService_PipelineServer) error {
	for {
		r, err := stream.Recv()
		if err != nil {
			return nil
		}
		if err := stream.Send(answerAll(r)); err != nil {
			return err
		}
	}
}

// A stream that ends under an operation is retried for a read, and leaves a
// write in doubt, unless the server refused the stream at the door.
func TestAStreamThatEnds(t *testing.T) {
	overloaded := status.New(codes.ResourceExhausted, "no")
	for name, test := range map[string]struct {
		end       error
		uncertain bool
	}{
		"in order":     {nil, true},
		"by an error":  {status.Error(codes.Unavailable, "gone"), true},
		"by a reset":   {status.Error(codes.Canceled, "cut off"), true},
		"at the door":  {withReason(t, overloaded, kvdpb.ReasonOverloaded), false},
		"by a restart": {withReason(t, status.New(codes.Unavailable, "bye"), kvdpb.ReasonShuttingDown), true},
	} {
		t.Run(name, func(t *testing.T) {
			db := openScripted(t, func(opened int, stream kvdpb.KVService_PipelineServer) error {
				if opened%2 == 1 {
					_, err := stream.Recv()
					if err != nil {
						return err
					}
					return test.end
				}
				return serveFrames(stream)
			})
			value, err := db.Get(context.Background(), []byte("k"))
			require.NoError(t, err)
			assert.Equal(t, "v", string(value))
			err = db.Put(context.Background(), []byte("k"), nil)
			if test.uncertain {
				require.ErrorIs(t, err, ErrUncertain)
				require.ErrorIs(t, err, ErrUnavailable)
				return
			}
			require.NoError(t, err)
		})
	}
}

func withReason(t *testing.T, s *status.Status, reason string) error {
	t.Helper()
	s, err := s.WithDetails(&errdetails.ErrorInfo{Reason: reason, Domain: kvdpb.ErrorDomain})
	require.NoError(t, err)
	return s.Err()
}

// A server that breaks the protocol gives errors, never wrong answers.
func TestAServerThatBreaksTheProtocol(t *testing.T) {
	for name, distort := range map[string]func(*kvdpb.PipelineResponse){
		"unknown tag":  func(r *kvdpb.PipelineResponse) { r.Results[0].Tag = 999 },
		"huge tag":     func(r *kvdpb.PipelineResponse) { r.Results[0].Tag = 1 << 63 },
		"no result":    func(r *kvdpb.PipelineResponse) { r.Results[0].Result = nil },
		"another kind": func(r *kvdpb.PipelineResponse) { r.Results[0].Result = &kvdpb.PipelineResponse_Result_Delete{} },
	} {
		t.Run(name, func(t *testing.T) {
			db := openScripted(t, func(_ int, stream kvdpb.KVService_PipelineServer) error {
				for {
					r, err := stream.Recv()
					if err != nil {
						return nil
					}
					response := answerAll(r)
					distort(response)
					if err := stream.Send(response); err != nil {
						return err
					}
				}
			})
			_, err := db.Get(context.Background(), []byte("k"))
			require.ErrorIs(t, err, ErrInternal)
			err = db.Put(context.Background(), []byte("k"), nil)
			require.ErrorIs(t, err, ErrUncertain)
		})
	}
}

// An answer too many ends the stream, but those before it count.
func TestAnAnswerTooMany(t *testing.T) {
	db := openScripted(t, func(_ int, stream kvdpb.KVService_PipelineServer) error {
		r, err := stream.Recv()
		if err != nil {
			return nil
		}
		response := answerAll(r)
		response.Results = append(response.Results, response.Results...)
		if err := stream.Send(response); err != nil {
			return err
		}
		<-stream.Context().Done()
		return nil
	})
	for range 3 {
		value, err := db.Get(context.Background(), []byte("k"))
		require.NoError(t, err)
		assert.Equal(t, "v", string(value))
	}
}

// A stream that is going away takes no further frame, gets the answers that it
// still owes, and is then closed by the client.
func TestAStreamThatIsGoingAway(t *testing.T) {
	closed := make(chan struct{})
	var first *kvdpb.PipelineRequest
	told, moved := make(chan struct{}), make(chan struct{})
	db := openScripted(t, func(opened int, stream kvdpb.KVService_PipelineServer) error {
		if opened > 1 {
			return serveFrames(stream)
		}
		var err error
		if first, err = stream.Recv(); err != nil {
			return err
		}
		if err := stream.Send(&kvdpb.PipelineResponse{GoingAway: true}); err != nil {
			return err
		}
		close(told)
		<-moved
		if err := stream.Send(answerAll(first)); err != nil {
			return err
		}
		_, err = stream.Recv()
		assert.ErrorContains(t, err, "EOF")
		close(closed)
		return nil
	})
	move := sync.OnceFunc(func() { close(moved) })
	t.Cleanup(move) // or a failure below would leave the server waiting
	slow := make(chan error, 1)
	go func() { slow <- db.Put(context.Background(), []byte("slow"), nil) }()
	<-told
	l := db.conns[0].writes
	require.Eventually(t, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.mu.current == nil && !l.mu.opening && len(l.mu.queue) == 0
	}, 5*time.Second, 10*time.Microsecond)
	for range 3 {
		require.NoError(t, db.Put(context.Background(), []byte("next"), nil))
	}
	move()
	require.NoError(t, <-slow)
	<-closed
}
