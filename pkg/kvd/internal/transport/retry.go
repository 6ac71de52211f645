package transport

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

const (
	// maxAttempts bounds the tries of one call, the first included, and one more for each
	// endpoint after the first.
	maxAttempts = 6
	// backoffBase and backoffMax bound the wait before a try: the n-th waits a
	// random time up to base * 2^n ("full jitter", M. Brooker, 2015), after what the
	// server asked for, since a whole frame is told the same. Six tries last a third
	// of a second on average, enough for a stream to be made anew and short enough for
	// a user who mistyped the address.
	backoffBase = 20 * time.Millisecond
	backoffMax  = time.Second
)

func (c *Network) maxAttempts() int { return maxAttempts + c.endpoints - 1 }

// retryBudget keeps retries from becoming the load: each success earns a tenth of
// a retry. It starts full, so that the calls in flight when a server restarts may
// all be tried again, those of a pipeline too. Safe for concurrent use.
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

// attempts is the state of one call between its tries.
type attempts struct {
	client   *Network
	deadline time.Time // zero: none, or the client's, see bound
	own      bool      // the deadline is that of the caller's context
	n        int       // tries so far
	before   error     // why the last try that failed for the moment did, nil if none
	conn     *conn     // of the last try, nil before the first
	timer    callTimer // of a call that is timed

	// Of a write. A write without a request id is not tried again once it is in doubt.
	write     bool
	requestID requestID
	doubt     bool // a try may have happened, or may yet
	// lasting says that a condition of the write, once it failed, fails for ever.
	lasting bool
	// anew says that the server evaluates each try anew, so that a conflict of one says
	// nothing of another.
	anew bool
}

func (c *Network) attempts(ctx context.Context) attempts {
	a := attempts{client: c}
	a.deadline, a.own = ctx.Deadline()
	return a
}

// bound gives a call without a deadline the client's timeout, counted from begun. The first
// try in a frame needs none, because the connection's watchdog bounds it.
func (a *attempts) bound(begun time.Time) {
	if timeout := a.client.options.Timeout; timeout > 0 && a.deadline.IsZero() {
		a.deadline = begun.Add(timeout)
	}
}

// within returns the context of a try in a frame: that of the call, which the
// client's deadline ends too once there is one.
func (a *attempts) within(ctx context.Context) (context.Context, context.CancelFunc) {
	if a.deadline.IsZero() || a.own {
		return ctx, func() {}
	}
	return context.WithDeadline(ctx, a.deadline)
}

// writeAttempts is attempts for a write, which gets a request id.
func (c *Network) writeAttempts(ctx context.Context) attempts {
	a := c.attempts(ctx)
	a.write, a.requestID = true, c.requestIDs.next()
	return a
}

// sign puts the request id of the write into the options of its next attempt.
func (a *attempts) sign(o *frame.Options) {
	o.ClientID, o.Sequence = a.requestID.client, a.requestID.sequence
	if a.doubt {
		o.Retried, o.KnownVersion = true, a.requestID.known
	}
}

// requestOptions are the options of the next try outside frames.
func (a *attempts) requestOptions(d kvdpb.Durability) *kvdpb.RequestOptions {
	var o frame.Options
	a.sign(&o)
	return &kvdpb.RequestOptions{
		ClientId: o.ClientID, Sequence: o.Sequence, Durability: d,
		Retried: o.Retried, KnownVersion: o.KnownVersion, WantTimings: a.timer.on(),
	}
}

// succeeded is called when a try did.
func (a *attempts) succeeded() {
	a.client.budget.earn()
	a.timer.stop(a.n + 1)
}

// again decides after a fault: it waits and returns nil if the call should be
// tried again, else it returns the error of the call.
func (a *attempts) again(ctx context.Context, f *fault) error {
	wait, err := a.next(f)
	if err != nil {
		return err
	}
	if err := backend.Pause(ctx, wait); err != nil {
		return a.interrupted(err, f)
	}
	return nil
}

// next decides after a fault: it returns how long to wait before the call is tried
// again, or the error of the call.
func (a *attempts) next(f *fault) (wait time.Duration, err error) {
	a.n++
	a.judge(f)
	if f.err == context.DeadlineExceeded && a.before != nil {
		// The time ran out on tries that could not have helped: say why as well.
		f.err = fmt.Errorf("%w: %w", f.err, a.before)
	}
	if f.transient {
		a.before = f.err
	}
	if errors.Is(f.err, backend.ErrUnavailable) {
		a.client.moveOn(a.conn)
	}
	if !f.transient || a.doubt && !a.requestID.given() || a.n == a.client.maxAttempts() {
		a.timer.stop(a.n)
		return 0, f.error(a.doubt, a.n)
	}
	wait = f.retryAfter + rand.N(min(backoffBase<<a.n, backoffMax))
	if !a.deadline.IsZero() && time.Until(a.deadline) <= wait || !a.client.budget.spend() {
		a.timer.stop(a.n)
		return 0, f.error(a.doubt, a.n)
	}
	return wait, nil
}

// interrupted is the error of a call whose context ended, with err, while it waited
// to be tried again after f.
func (a *attempts) interrupted(err error, f *fault) error {
	a.timer.stop(a.n)
	return (&fault{err: err, message: f.message, reason: f.reason}).error(a.doubt, a.n)
}

// judge notes what a fault says about all tries so far. One that did nothing
// does not clear up an earlier one that was lost: that may be on its way still.
func (a *attempts) judge(f *fault) {
	never := f.never && !a.anew || a.lasting && f.reason == kvdpb.ReasonConditionFailed
	a.doubt = a.write && !never && (a.doubt || !f.undone)
}

// left is the time until the deadline: at least a nanosecond, and 0 if there is
// no deadline.
func (a *attempts) left() time.Duration {
	if a.deadline.IsZero() {
		return 0
	}
	return max(time.Until(a.deadline), 1)
}

// timeoutMillis is a time left as a frame carries it, rounded up.
func timeoutMillis(left time.Duration) uint32 {
	return uint32(min((left+time.Millisecond-1)/time.Millisecond, 1<<31))
}
