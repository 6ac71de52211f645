package peer

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testwait"
	peerpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/peer/v1"
)

// withDeadline returns the context of a write.
func withDeadline(t *testing.T) context.Context {
	ctx, cancel := context.WithDeadline(t.Context(), testwait.Deadline())
	t.Cleanup(cancel)
	return ctx
}

// echo performs a write: its answer is its message.
func echo(_ context.Context, f *Forwarded) error {
	message, err := f.Read()
	if err != nil {
		return err
	}
	return f.Answer(&peerpb.ForwardOutcome{Stages: []uint64{f.From, f.Head.GetBytes()}}, message)
}

func TestForward(t *testing.T) {
	n1, n2, _, _, _ := pair(t, nil)
	head := &peerpb.ForwardHead{Method: "m"}
	_, _, err := n1.Forward(withDeadline(t), 2, head, []byte("x"))
	require.ErrorIs(t, err, ErrUnreachable)
	require.NotErrorIs(t, err, kv.ErrUncertain)
	require.ErrorContains(t, err, "serves no clients yet")
	n2.ServeForwards(echo)
	for _, size := range []int{0, 1, packetBytes, packetBytes + 1, 3*packetBytes - 1} {
		message := bytes.Repeat([]byte("m"), size)
		outcome, answer, err := n1.Forward(withDeadline(t), 2, head, message)
		require.NoError(t, err)
		require.Equal(t, []uint64{1, uint64(size)}, outcome.GetStages())
		require.True(t, bytes.Equal(message, answer), "%d bytes", size)
	}
	_, _, err = n1.Forward(withDeadline(t), 9, head, nil)
	require.ErrorIs(t, err, kv.ErrInvalidArgument)
	_, _, err = n1.Forward(withDeadline(t), 2, head, make([]byte, maxMessageBytes+1))
	require.ErrorIs(t, err, kv.ErrTooLarge)
	_, _, err = n1.Forward(t.Context(), 2, head, nil)
	require.ErrorContains(t, err, "has a deadline")
	ended, cancel := context.WithCancel(withDeadline(t))
	cancel()
	_, _, err = n1.Forward(ended, 2, head, nil)
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, kv.ErrUncertain, "nothing was sent")

	n2.ServeForwards(func(context.Context, *Forwarded) error { return errors.New("of another version") })
	_, _, err = n1.Forward(withDeadline(t), 2, head, make([]byte, 3*packetBytes))
	require.ErrorIs(t, err, ErrUnreachable)
	require.ErrorContains(t, err, "of another version")
}

// A write whose way breaks has an unknown outcome from the moment on when all of it was sent.
func TestAForwardThatBreaks(t *testing.T) {
	n1, n2, _, _, p := pair(t, nil)
	began, ends := make(chan struct{}, 1), make(chan struct{})
	n2.ServeForwards(func(ctx context.Context, f *Forwarded) error {
		if _, err := f.Read(); err != nil {
			return err
		}
		began <- struct{}{}
		<-ctx.Done()
		ends <- struct{}{}
		return nil
	})
	type result struct{ err error }
	forward := func(ctx context.Context) <-chan result {
		done := make(chan result, 1)
		go func() {
			_, _, err := n1.Forward(ctx, 2, &peerpb.ForwardHead{}, []byte("m"))
			done <- result{err}
		}()
		return done
	}
	done := forward(withDeadline(t))
	<-began
	p.setCut(true)
	err := (<-done).err
	require.ErrorIs(t, err, kv.ErrUncertain)
	require.ErrorContains(t, err, "node 2 at ")
	<-ends
	_, _, err = n1.Forward(withDeadline(t), 2, &peerpb.ForwardHead{}, []byte("m"))
	require.ErrorIs(t, err, ErrUnreachable, "no connection")
	require.NotErrorIs(t, err, kv.ErrUncertain)
	p.setCut(false)
	connected(t, n1, true)

	ctx, cancel := context.WithCancelCause(withDeadline(t))
	testwait.Until(t, func() bool { // once there is a connection again
		done = forward(ctx)
		select {
		case <-began:
			return true
		case r := <-done:
			require.Error(t, r.err)
			return false
		}
	})
	cancel(errors.New("the client has gone"))
	err = (<-done).err
	require.ErrorIs(t, err, kv.ErrUncertain)
	require.ErrorContains(t, err, "the client has gone")
	<-ends
}

// What a node sends against the protocol is refused, and was not begun.
func TestForwardsThatAreMalformed(t *testing.T) {
	n1, n2, _, _, _ := pair(t, nil)
	n2.ServeForwards(echo)
	part := func(n int) *peerpb.ForwardRequest { return &peerpb.ForwardRequest{Part: make([]byte, n)} }
	head := func(bytes uint64) *peerpb.ForwardRequest {
		return &peerpb.ForwardRequest{Head: &peerpb.ForwardHead{Bytes: bytes}}
	}
	for want, requests := range map[string][]*peerpb.ForwardRequest{
		"does not say which write":       {part(1)},
		"limit is":                       {head(maxMessageBytes + 1)},
		"a part of 0 bytes after 0 of 2": {head(2), part(0)},
		"a part of 2 bytes after 1 of 2": {head(2), part(1), part(2)},
	} {
		ctx := metadata.NewOutgoingContext(withDeadline(t), n1.calls(2, noLane).metadata())
		stream, err := peerpb.NewPeerServiceClient(n1.member(2).link.Load().forwards).Forward(ctx)
		require.NoError(t, err)
		for _, r := range requests {
			require.NoError(t, stream.Send(r))
		}
		_, err = stream.Recv()
		require.ErrorContains(t, err, want)
		require.ErrorIs(t, n1.member(2).forwardError(ctx, err, true), ErrUnreachable)
	}
	_, err := gather(4, func() ([]byte, error) { return make([]byte, 3), nil })
	require.ErrorIs(t, err, kv.ErrInvalidArgument)
}
