package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	peerpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/peer/v1"
)

const (
	smallQueueBytes   = 4 << 20
	appendsQueueBytes = 64 << 20 // what a leader sends a follower ahead of its acknowledgements

	// A stream that ends is made again after a pause, which grows from minPause to maxPause
	// while that fails, and varies by up to half, so that nodes do not come all at once.
	minPause = 50 * time.Millisecond
	maxPause = 2 * time.Second
	// connectWait is how long a connection and the Hello of the other node may take.
	connectWait = 5 * time.Second
)

// lane sends messages of one kind to one node, over a connection of its own: what is long does
// not delay what is urgent.
type lane struct {
	network *Network
	to      *member
	link    *link // that it belongs to
	kind    peerpb.Lane
	queue   *queue
	conn    *grpc.ClientConn
	called  chan struct{} // has a value if the node has called this one since the last pause
}

// run keeps a stream to the node until ctx ends.
func (l *lane) run(ctx context.Context) {
	pause := l.link.pause
	for there := false; ; { // there: the node has answered, and was not missed since
		connected, err := l.stream(ctx)
		if ctx.Err() != nil {
			return
		}
		if connected {
			pause = l.network.firstPause
		}
		_, none := errors.AsType[unavailable](err)
		if there = there || connected; none && there && !connected {
			l.network.gone(l.to.id)
			there = false
		}
		l.network.report(l, err)
		select {
		case <-time.After(pause/2 + rand.N(pause)):
			pause = min(2*pause, maxPause)
		case <-l.called: // so it is there again
			pause = l.network.firstPause
		case <-ctx.Done():
			return
		}
		if !connected && l.network.elsewhere(l, pause) {
			return
		}
		// This pause is the one that counts. ResetConnectBackoff reads without a lock what gRPC
		// writes until the first attempt to connect has failed.
		if l.conn.GetState() == connectivity.TransientFailure {
			l.conn.ResetConnectBackoff()
		}
	}
}

// wake ends the pause of a lane, or the next one.
func (l *lane) wake() {
	select {
	case l.called <- struct{}{}:
	default:
	}
}

// stream makes a stream and sends what comes into the queue, until the stream or ctx ends.
func (l *lane) stream(ctx context.Context) (connected bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(connectWait, func() {
		cancel(fmt.Errorf("node %d at %s does not answer within %v", l.to.id, l.link.address, connectWait))
	})
	stream, err := l.open(ctx)
	if late.Stop(); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return false, err
	}
	l.queue.setOpen(true)
	defer l.queue.setOpen(false)
	l.network.report(l, nil)
	ended := make(chan error, 1)
	go func() {
		ended <- endOf(stream.RecvMsg(new(peerpb.MessagesResponse)))
		cancel(nil)
	}()
	err = l.send(ctx, stream)
	cancel(nil)
	if why := <-ended; err == nil || errors.Is(err, io.EOF) {
		err = why // io.EOF says that the stream has ended, and not why
	}
	return true, err
}

// open makes a stream to the node, and waits until that has said which one it is.
func (l *lane) open(ctx context.Context) (grpc.ClientStreamingClient[peerpb.Packet, peerpb.MessagesResponse], error) {
	me := l.network.calls(l.to.id, l.kind)
	stream, err := peerpb.NewPeerServiceClient(l.conn).Messages(metadata.NewOutgoingContext(ctx, me.metadata()))
	if err != nil {
		return nil, explain(err)
	}
	header, err := stream.Header()
	if err == nil && len(header.Get(helloKey)) == 0 { // it was refused
		err = endOf(stream.RecvMsg(new(peerpb.MessagesResponse)))
	}
	if err != nil {
		return nil, explain(err)
	}
	if err := checkAnswer(header, me); err != nil {
		return stream, err
	}
	return stream, l.network.judgeAnswer(header)
}

// checkAnswer checks the Hello with which a node answers.
func checkAnswer(header metadata.MD, me identity) error {
	hello, err := readHello(header)
	if err != nil {
		return err
	}
	if hello.cluster != me.cluster || hello.from != me.to || hello.to != me.from || hello.lane != me.lane {
		return fmt.Errorf("node %d of cluster %016x answers, want node %d of cluster %016x: an address is wrong", hello.from, hello.cluster, me.to, me.cluster)
	}
	if err := hello.fits(me.from, me.layout); err != nil {
		return err
	}
	if err := hello.began(me.from, me.first); err != nil {
		return err
	}
	return hello.sameIncarnation(me.from, me.incarnation)
}

// judgeAnswer refuses a node that answers with another data directory than it had: what is sent to it
// follows what it has lost. It learns by its own calls that it must not take part.
func (n *Network) judgeAnswer(header metadata.MD) error {
	judge := n.judge.Load()
	if judge == nil {
		return nil
	}
	hello, err := readHello(header)
	if err != nil {
		return err
	}
	return (*judge)(hello.from, hello.store)
}

// send sends what comes into the queue.
func (l *lane) send(ctx context.Context, stream grpc.ClientStreamingClient[peerpb.Packet, peerpb.MessagesResponse]) error {
	for {
		select {
		case <-l.queue.wake:
		case <-ctx.Done():
			return nil
		}
		messages, bytes := l.queue.take()
		err := packets(l.network.options.Group, messages, stream.Send)
		l.queue.sent(bytes)
		if err != nil {
			return err
		}
		l.to.sentMessages.Add(uint64(len(messages)))
		l.to.sentBytes.Add(uint64(bytes))
	}
}

// errEnded says that the other node has ended a stream, which it does when it closes.
var errEnded = errors.New("the other node has ended the stream")

func endOf(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return errEnded
	}
	return explain(err)
}

// unavailable is the error of a call for which there is no connection, or whose connection ended.
type unavailable struct{ error }

// explain returns the text of an error of gRPC.
func explain(err error) error {
	s, ok := status.FromError(err)
	switch {
	case ok && s.Code() == expelled:
		return fmt.Errorf("%w: %s", ErrExpelled, s.Message())
	case ok && s.Code() == codes.Unavailable:
		return unavailable{errors.New(shorten(s.Message()))}
	case ok:
		return errors.New(shorten(s.Message()))
	}
	return err
}

// shorten returns what the network says of the text of a connection that cannot be made.
func shorten(message string) string {
	_, cause, found := strings.Cut(message, `desc = "transport: Error while dialing: `)
	if cause, quoted := strings.CutSuffix(cause, `"`); found && quoted {
		return cause
	}
	return message
}
