package kvd

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"

	"github.com/kvd-db/kvd/internal/testwait"
)

func openScripted(t *testing.T, script func(int, scriptedLink) error, opts ...Option) *Client {
	t.Helper()
	return (&scripted{pipeline: script}).open(t, opts...)
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
		"at the door":  {withReason(t, overloaded, kvdpb.ReasonOverloaded), false},
		"by a restart": {withReason(t, status.New(codes.Unavailable, "bye"), kvdpb.ReasonShuttingDown), true},
	} {
		t.Run(name, func(t *testing.T) {
			script := func(opened int, stream scriptedLink) error {
				if opened%2 == 1 {
					_, err := stream.Recv()
					if err != nil {
						return err
					}
					return test.end
				}
				return serveFrames(stream)
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
				db := openScripted(t, func(_ int, stream scriptedLink) error {
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
	db := openScripted(t, func(_ int, stream scriptedLink) error {
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
	}, opts...)
	for range 3 {
		value, err := db.Get(context.Background(), []byte("k"))
		require.NoError(t, err)
		assert.Equal(t, "v", string(value))
	}
}

// A stream that is going away takes no further frame, gets the answers that it
// still owes, and is then closed by the client.
func TestAStreamThatIsGoingAway(t *testing.T) { everyTransport(t, aStreamThatIsGoingAway) }

func aStreamThatIsGoingAway(t *testing.T, opts ...Option) {
	closed := make(chan struct{})
	var first *kvdpb.PipelineRequest
	told, moved := make(chan struct{}), make(chan struct{})
	db := openScripted(t, func(opened int, stream scriptedLink) error {
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
	}, opts...)
	move := sync.OnceFunc(func() { close(moved) })
	t.Cleanup(move) // or a failure below would leave the server waiting
	slow := make(chan error, 1)
	go func() { slow <- db.Put(context.Background(), []byte("slow"), nil) }()
	<-told
	c := networkOf(db).conns[0]
	testwait.Until(t, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.mu.link == nil && !c.mu.opening && !c.waitingLocked()
	})
	for range 3 {
		require.NoError(t, db.Put(context.Background(), []byte("next"), nil))
	}
	move()
	require.NoError(t, <-slow)
	<-closed
}
