package kvd

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// scripted is a server that does what a test says.
type scripted struct {
	kvdpb.UnimplementedKVServiceServer
	kvdpb.UnimplementedTxnServiceServer
	mu     sync.Mutex
	opened int

	// pipeline serves the n-th Pipeline stream, from 1.
	pipeline func(n int, stream kvdpb.KVService_PipelineServer) error
	// unary answers every other call.
	unary func(request any) (response any, err error)
}

func (s *scripted) Pipeline(stream kvdpb.KVService_PipelineServer) error {
	s.mu.Lock()
	s.opened++
	opened := s.opened
	s.mu.Unlock()
	return s.pipeline(opened, stream)
}

// open serves until the test ends, and returns a client.
func (s *scripted) open(t *testing.T, opts ...Option) *Client {
	t.Helper()
	l := bufconn.Listen(1 << 16)
	server := grpc.NewServer(grpc.WaitForHandlers(true), grpc.UnaryInterceptor(
		func(_ context.Context, request any, _ *grpc.UnaryServerInfo, _ grpc.UnaryHandler) (any, error) {
			return s.unary(request)
		}))
	kvdpb.RegisterKVServiceServer(server, s)
	kvdpb.RegisterTxnServiceServer(server, s)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		assert.NoError(t, <-served)
	})
	dial := WithDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) })
	db, err := Open("memory", append([]Option{dial}, opts...)...)
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
		case *kvdpb.PipelineRequest_Op_Delete:
			result.Result = &kvdpb.PipelineResponse_Result_Delete{Delete: &kvdpb.DeleteResponse{}}
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

func withReason(t *testing.T, s *status.Status, reason string, metadata ...string) error {
	t.Helper()
	info := &errdetails.ErrorInfo{Reason: reason, Domain: kvdpb.ErrorDomain, Metadata: make(map[string]string)}
	for i := 0; i < len(metadata); i += 2 {
		info.Metadata[metadata[i]] = metadata[i+1]
	}
	s, err := s.WithDetails(info)
	require.NoError(t, err)
	return s.Err()
}
