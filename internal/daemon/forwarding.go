package daemon

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/peer"
	"github.com/kvd-db/kvd/internal/reason"
	"github.com/kvd-db/kvd/internal/replica"
	"github.com/kvd-db/kvd/internal/service"
)

// forwarding has the node that leads perform writes of clients of this node. A write that no node has
// begun with is tried again until one leads, so that a client hears nothing of a transfer of the
// leadership, nor of most elections.
type forwarding struct {
	node    uint64
	leads   func() replica.Leads
	address func(node uint64) string // for clients
	// send has a node perform a write. Errors: those of peer.Network.Forward.
	send    func(ctx context.Context, leader uint64, w *service.ForwardedWrite) (*service.ForwardedAnswer, error)
	waiting atomic.Int64 // writes between two tries
}

const (
	// leaderWait bounds how long a write waits for a node that takes it: an election takes up to
	// two seconds, a transfer of the leadership some milliseconds.
	leaderWait = 2 * time.Second
	// maxWaiting bounds how many writes do. Their requests are charged to the memory for requests.
	maxWaiting = 1024
	// leaderPause and longestPause bound the pause before the node that is known to lead is asked
	// again: the first one is a few round trips, in which a transfer ends or a tenure begins.
	leaderPause, longestPause = 2 * time.Millisecond, 50 * time.Millisecond
)

// answerWait is how long a leader that was replaced may take to answer what it was sent before. One
// that has transferred the leadership has the answer by then; one that is paused or cut off could take as
// long as the client waits.
const answerWait = 500 * time.Millisecond

// errReplaced is why a call to a former leader ends.
var errReplaced = errors.New("another node leads by now")

// Forward implements service.Forwarder.
func (m *membership) Forward(ctx context.Context, w *service.ForwardedWrite) (*service.ForwardedAnswer, error) {
	return m.forwards.do(ctx, w)
}

func (f *forwarding) do(ctx context.Context, w *service.ForwardedWrite) (*service.ForwardedAnswer, error) {
	var patience context.Context // from the first refusal on
	for pause := leaderPause; ; pause = min(2*pause, longestPause) {
		now := f.leads()
		if now.Open {
			return nil, service.ErrLeads
		}
		answer, err := f.try(ctx, now.Node, w)
		if !refused(answer, err) {
			return answer, err
		}
		if patience == nil {
			var cancel context.CancelFunc
			patience, cancel = context.WithTimeout(ctx, leaderWait)
			defer cancel()
		}
		if !f.await(patience, now, pause) {
			return answer, err
		}
	}
}

// try has a node perform a write, if it is another one.
func (f *forwarding) try(ctx context.Context, leader uint64, w *service.ForwardedWrite) (*service.ForwardedAnswer, error) {
	if leader == 0 || leader == f.node {
		return nil, &kv.NotLeaderError{Leader: leader, Address: f.address(leader)}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go f.watch(ctx, leader, cancel)
	answer, err := f.send(ctx, leader, w)
	switch {
	case errors.Is(err, peer.ErrUnreachable):
	case errors.Is(err, kv.ErrInvalidArgument): // it is no member any more
	case errors.Is(err, errReplaced) && !errors.Is(err, kv.ErrUncertain): // it was not sent
	default:
		return answer, err
	}
	return nil, &kv.NotLeaderError{Leader: leader, Address: f.address(leader), Unreachable: true}
}

// watch cancels a call to a leader when another node has led for answerWait, unless ctx ends before.
func (f *forwarding) watch(ctx context.Context, leader uint64, cancel context.CancelCauseFunc) {
	for {
		now := f.leads()
		if now.Node != 0 && now.Node != leader {
			break
		}
		select {
		case <-now.Changed:
		case <-ctx.Done():
			return
		}
	}
	timer := time.NewTimer(answerWait)
	defer timer.Stop()
	select {
	case <-timer.C:
		cancel(errReplaced)
	case <-ctx.Done():
	}
}

// refused reports whether nothing was done because the node that was asked does not lead, or stops.
func refused(answer *service.ForwardedAnswer, err error) bool {
	if err != nil {
		return errors.Is(err, kv.ErrNotLeader)
	}
	return answer.Err != nil && (answer.Err.Reason == reason.NotLeader || answer.Err.Reason == reason.ShuttingDown)
}

// await returns when a write may be tried again, and reports false if it is not to be: too many wait, or
// it has waited for long enough.
func (f *forwarding) await(patience context.Context, then replica.Leads, pause time.Duration) bool {
	defer f.waiting.Add(-1)
	if f.waiting.Add(1) > maxWaiting {
		return false
	}
	var again <-chan time.Time // never, if there is no node to ask
	if then.Node != 0 && then.Node != f.node {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		again = timer.C
	}
	select {
	case <-then.Changed:
	case <-again:
	case <-patience.Done():
		return false
	}
	return true
}
