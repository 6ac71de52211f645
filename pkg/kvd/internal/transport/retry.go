package transport

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

const (
	// maxAttempts bounds the attempts at one call, including the first. Each endpoint after the
	// first one adds one.
	maxAttempts = 6
	// backoffBase and backoffMax bound the wait before an attempt: after n attempts a random time
	// up to base * 2^n ("full jitter", M. Brooker, 2015). The wait that the server asked for is
	// added, because the server tells a whole frame the same. Six attempts last a third of a
	// second on average: enough to make a stream, and not too long if the address is wrong.
	backoffBase = 20 * time.Millisecond
	backoffMax  = time.Second
	// maxDoublings of the base exceed backoffMax.
	maxDoublings = 6
)

func (c *Network) maxAttempts() int { return maxAttempts + c.endpoints - 1 }

// A call that nodes of a cluster refuse because they do not lead waits for a leader: a cluster takes
// up to two seconds to choose another one. If the node that refuses knows which one leads, another
// endpoint is asked at once: each of them once, since what that node knows may be about a leader that
// has just ended. See anotherWay. If there is no other endpoint, the node is asked to forward the call.
const (
	// leaderAttempts bounds the attempts. With the waits they last some five seconds.
	leaderAttempts = 48
	// leaderWait bounds the wait before an attempt, for each waiting call: together they try some
	// hundreds of times a second, and one of them on its own soon after there is a leader.
	leaderWait      = 5 * time.Millisecond
	leaderWaitAlone = 200 * time.Millisecond
)

// leaderSearch lets the calls that wait for a leader go on as soon as one of them has found it. Safe
// for concurrent use.
type leaderSearch struct {
	waiting atomic.Int64
	mu      sync.Mutex
	found   chan struct{} // closed, and replaced, when a write succeeds while calls wait
}

// most returns the bound of the next wait.
func (s *leaderSearch) most() time.Duration {
	return min(max(leaderWaitAlone, time.Duration(s.waiting.Load())*leaderWait), backoffMax)
}

// pause waits for d, until another call has found the leader, or until ctx ends, whose error it then
// returns.
func (s *leaderSearch) pause(ctx context.Context, d time.Duration) error {
	s.waiting.Add(1)
	defer s.waiting.Add(-1)
	s.mu.Lock()
	found := s.found
	s.mu.Unlock()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-found:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// succeeded is called when a write has succeeded.
func (s *leaderSearch) succeeded() {
	if s.waiting.Load() == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.found)
	s.found = make(chan struct{})
}

// retryBudget bounds the load of retries: each success earns a tenth of a retry. It starts full, so
// that all calls in flight can be tried again when a server restarts, those of a pipeline too: see
// retries. Safe for concurrent use.
type retryBudget struct{ tenths atomic.Int64 }

const (
	fullBudget = maxAhead * retryCost
	retryCost  = 10 // tenths of a retry
)

func newRetryBudget() *retryBudget {
	b := new(retryBudget)
	b.tenths.Store(fullBudget)
	return b
}

func (b *retryBudget) earn() {
	if b.tenths.Load() < fullBudget {
		b.tenths.Add(1)
	}
}

func (b *retryBudget) spend() bool {
	if b.tenths.Add(-retryCost) >= 0 {
		return true
	}
	b.tenths.Add(retryCost)
	return false
}

// attempts is the state of one call between its attempts.
type attempts struct {
	client   *Network
	deadline time.Time  // zero: none, or the watchdog bounds the call, see bound
	own      bool       // the deadline is that of the caller's context
	n        int        // attempts so far
	before   error      // of the last attempt with a transient fault, nil if none
	conn     *conn      // of the last attempt, nil before the first
	via      *frameConn // that brought the answer of the last attempt, nil if none did
	timer    callTimer  // of a call that is timed
	cluster  bool       // a node refused the call because another one leads
	// direct counts the attempts since the last wait that were made at once at another endpoint because
	// another node leads, and directs all that were made at once.
	direct, directs int
	// forwards says that a server that does not lead its cluster forwards the call to the node that does,
	// if it is a gRPC call.
	forwards bool
	// asCall: an attempt was a gRPC call, or the next one has to be, since the server forwards no frames.
	asCall bool
	// forward: the next attempt, or the last one, is a call that the server forwards: the only endpoint, or
	// the first one of several of which none leads.
	forward bool
	// paid: the next retry is part of one that the budget has been charged for.
	paid bool

	// Of a write. A write without a request id is not tried again once it is in doubt.
	write     bool
	requestID requestID
	doubt     bool // an attempt may have been applied, or may still be
	// lasting says that a condition of the write, once it fails, always fails.
	lasting bool
	// anew says that the server evaluates each attempt by itself, so a conflict of one attempt
	// says nothing about another.
	anew bool
}

func (c *Network) attempts(ctx context.Context) attempts {
	a := attempts{client: c}
	a.deadline, a.own = ctx.Deadline()
	return a
}

// bound gives a call without a deadline the client's timeout, counted from begun. The first attempt
// in a frame needs no deadline, because the watchdog of the connection bounds it.
func (a *attempts) bound(begun time.Time) {
	if timeout := a.client.options.Timeout; timeout > 0 && a.deadline.IsZero() {
		a.deadline = begun.Add(timeout)
	}
}

// unanswered makes the next endpoint current for later calls if the attempt, which began then, has
// waited for as long as another endpoint needs, and its time ran out without an answer: the endpoint
// is stopped, or is a node of a cluster that the others cannot reach.
func (a *attempts) unanswered(f *fault, begun time.Time) {
	if errors.Is(f.err, context.DeadlineExceeded) && time.Since(begun) >= silenceOfSeveral {
		a.client.moveOn(a.conn)
	}
}

// within returns the context of an attempt in a frame: that of the call, with the deadline that bound
// has set.
func (a *attempts) within(ctx context.Context) (context.Context, context.CancelFunc) {
	if a.deadline.IsZero() || a.own {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, a.deadline)
}

// writeAttempts is attempts for a write, which gets a request id.
func (c *Network) writeAttempts(ctx context.Context) attempts {
	a := c.attempts(ctx)
	a.write, a.forwards, a.requestID = true, true, c.requestIDs.next()
	return a
}

// renew gives a write another request id, after the only attempt that may have come to the server was
// refused because it came so late, or the client had seen so little, that it may have been an attempt at a
// write that was applied. The refused attempt did nothing, and another one under its id, if the network
// has doubled it, will be refused too.
func (a *attempts) renew(f *fault) {
	a.client.requestIDs.observe(f.version)
	if f.transient = !a.doubt; f.transient {
		a.requestID = a.client.requestIDs.next()
	}
}

// sign puts the request id of the write into the options of its next attempt.
func (a *attempts) sign(o *frame.Options) {
	o.ClientID, o.Sequence = a.requestID.client, a.requestID.sequence
	if a.doubt {
		o.Retried, o.KnownVersion = true, a.requestID.known
	}
}

// requestOptions returns the options of the next attempt outside frames. It may come to the server
// through another one, that of a node of its cluster, which may be held up for longer than the server
// runs: so a first attempt tells what the client knows.
func (a *attempts) requestOptions(d kvdpb.Durability) *kvdpb.RequestOptions {
	var o frame.Options
	a.sign(&o)
	return &kvdpb.RequestOptions{
		ClientId: o.ClientID, Sequence: o.Sequence, Durability: d,
		Retried: o.Retried, KnownVersion: a.requestID.known, WantTimings: a.timer.on(),
	}
}

// succeeded is called when an attempt has succeeded.
func (a *attempts) succeeded() {
	a.client.budget.earn()
	if a.write {
		a.client.leader.succeeded()
	}
	a.timer.stop(a.n + 1)
}

// again decides what follows a fault. If the call should be tried again, it waits and returns nil,
// otherwise it returns the error of the call.
func (a *attempts) again(ctx context.Context, f *fault) error {
	wait, err := a.next(f)
	if err != nil {
		return err
	}
	pause := backend.Pause
	if a.cluster {
		pause = a.client.leader.pause
	}
	if err := pause(ctx, wait); err != nil {
		return a.interrupted(err, f)
	}
	return nil
}

// next decides what follows a fault: it returns the wait before the next attempt, or the error of the
// call.
func (a *attempts) next(f *fault) (wait time.Duration, err error) {
	a.n++
	a.judge(f)
	if f.reason == kvdpb.ReasonAttemptTooLate && a.write {
		a.renew(f)
	}
	if f.err == context.DeadlineExceeded && a.before != nil {
		// Earlier attempts failed for another reason: the error has both.
		f.err = fmt.Errorf("%w: %w", f.err, a.before)
	}
	if f.transient {
		a.before = f.err
	}
	if f.reason == kvdpb.ReasonNotLeader && (a.client.endpoints > 1 || a.forwards) {
		f.transient, a.cluster = true, true
		a.client.moveOn(a.conn)
	}
	if f.reason == kvdpb.ReasonStoreFailed && a.client.endpoints > 1 {
		f.transient = true // the disk of another node may be well
	}
	most, longest := a.client.maxAttempts(), backoffMax
	if a.cluster {
		most, longest = max(most, leaderAttempts), a.client.leader.most()
	}
	if errors.Is(f.err, backend.ErrUnavailable) || errors.Is(f.err, backend.ErrRecovered) { // another endpoint may be of the incarnation that the client knows
		a.client.moveOn(a.conn)
	}
	if !f.transient || a.doubt && !a.requestID.given() || a.n-a.directs >= most {
		a.timer.stop(a.n)
		return 0, f.error(a.doubt, a.n)
	}
	wait = f.retryAfter + rand.N(min(backoffBase<<min(a.n-a.directs, maxDoublings), longest))
	atOnce := f.elsewhere && a.anotherWay()
	if atOnce {
		wait = f.retryAfter
		a.directs++
	} else {
		a.direct, a.forward = 0, false
	}
	if !a.deadline.IsZero() && time.Until(a.deadline) <= wait || !atOnce && !a.paid && !a.client.budget.spend() {
		a.timer.stop(a.n)
		return 0, f.error(a.doubt, a.n)
	}
	return wait, nil
}

// anotherWay chooses the next attempt of a call that was refused because another node leads, and reports
// whether there is one before the next wait: at each other endpoint and then, if the leader is none of
// them, a call at the first one again, which has the leader perform it. The budget is not charged:
// otherwise a client that does not know the address of the leader would soon have spent it.
func (a *attempts) anotherWay() bool {
	switch {
	case a.forward: // in vain
		return false
	case a.direct < a.client.endpoints-1:
		a.direct++
		return true
	case a.forwards:
		a.forward, a.asCall = true, true
		return true
	}
	return false
}

// mayForward reports whether a call may be attempted again at a server that forwards it.
func (a *attempts) mayForward() bool { return a.forwards && (!a.doubt || a.requestID.given()) }

// interrupted returns the error of a call whose context ended with err while it waited after f.
func (a *attempts) interrupted(err error, f *fault) error {
	a.timer.stop(a.n)
	return (&fault{err: err, message: f.message, reason: f.reason}).error(a.doubt, a.n)
}

// judge updates doubt after a fault. An attempt that did nothing does not settle an earlier attempt
// that was lost, which may still reach the server.
func (a *attempts) judge(f *fault) {
	never := f.never && !a.anew || a.lasting && f.reason == kvdpb.ReasonConditionFailed
	a.doubt = a.write && !never && (a.doubt || !f.undone)
}

// left returns the time until the deadline, at least a nanosecond, or 0 if there is no deadline.
func (a *attempts) left() time.Duration {
	if a.deadline.IsZero() {
		return 0
	}
	return max(time.Until(a.deadline), 1)
}

// timeoutMillis returns a timeout as it is in a frame, rounded up.
func timeoutMillis(left time.Duration) uint32 {
	return uint32(min((left+time.Millisecond-1)/time.Millisecond, 1<<31))
}
