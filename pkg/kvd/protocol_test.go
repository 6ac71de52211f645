package kvd

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kvd-db/kvd/pkg/kvd/internal/servertest"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

func openScripted(t *testing.T, script func(int, servertest.FrameConn) error, opts ...Option) *Client {
	t.Helper()
	return openOn(t, &servertest.Scripted{Frames: script}, opts...)
}

// A stream that ends under an operation is retried for a read and for a write
// with a name, and leaves one without in doubt, unless the server refused the
// stream at the door.
func TestAStreamThatEnds(t *testing.T) {
	overloaded := status.New(codes.ResourceExhausted, "no")
	for name, test := range map[string]struct {
		end       error
		uncertain bool
	}{
		"in order":     {nil, true},
		"by an error":  {status.Error(codes.Unavailable, "gone"), true},
		"by a reset":   {status.Error(codes.Canceled, "cut off"), true},
		"at the door":  {servertest.WithReason(t, overloaded, kvdpb.ReasonOverloaded), false},
		"by a restart": {servertest.WithReason(t, status.New(codes.Unavailable, "bye"), kvdpb.ReasonShuttingDown), true},
	} {
		t.Run(name, func(t *testing.T) {
			script := func(opened int, stream servertest.FrameConn) error {
				if opened%2 == 1 {
					_, err := stream.Recv()
					if err != nil {
						return err
					}
					return test.end
				}
				return servertest.ServeFrames(stream)
			}
			everyTransport(t, func(t *testing.T, opts ...Option) {
				require.NoError(t, openScripted(t, script, opts...).Put(context.Background(), []byte("k"), nil))

				value, err := openScripted(t, script, opts...).Get(context.Background(), []byte("k"))
				require.NoError(t, err)
				assert.Equal(t, "v", string(value))
				err = replace(context.Background(), openScripted(t, script, opts...), []byte("k"), nil)
				if test.uncertain {
					require.ErrorIs(t, err, ErrUncertain)
					require.ErrorIs(t, err, ErrUnavailable)
					return
				}
				require.NoError(t, err)
			})
		})
	}
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
			everyTransport(t, func(t *testing.T, opts ...Option) {
				t.Parallel() // some wait between their tries
				db := openScripted(t, func(_ int, stream servertest.FrameConn) error {
					for {
						r, err := stream.Recv()
						if err != nil {
							return nil
						}
						response := servertest.AnswerAll(r)
						distort(response)
						if err := stream.Send(response); err != nil {
							return err
						}
					}
				}, opts...)
				_, err := db.Get(context.Background(), []byte("k"))
				require.ErrorIs(t, err, ErrInternal)
				err = db.Put(context.Background(), []byte("k"), nil)
				require.ErrorIs(t, err, ErrUncertain)
			})
		})
	}
}

// An answer too many ends the stream, but those before it count.
func TestAnAnswerTooMany(t *testing.T) { everyTransport(t, anAnswerTooMany) }

func anAnswerTooMany(t *testing.T, opts ...Option) {
	db := openScripted(t, func(_ int, stream servertest.FrameConn) error {
		r, err := stream.Recv()
		if err != nil {
			return nil
		}
		response := servertest.AnswerAll(r)
		response.Results = append(response.Results, response.Results...)
		if err := stream.Send(response); err != nil {
			return err
		}
		<-stream.Context().Done()
		return nil
	}, opts...)
	for range 3 {
		value, err := db.Get(context.Background(), []byte("k"))
		require.NoError(t, err)
		assert.Equal(t, "v", string(value))
	}
}
