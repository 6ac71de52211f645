package kvd

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

const (
	// maxAttempts bounds the tries of one call, the first included.
	maxAttempts = 6
	// backoffBase and backoffMax bound the wait before a try: the n-th waits a
	// random time up to base * 2^n ("full jitter", M. Brooker, 2015). Six tries
	// last a third of a second on average, enough for a stream to be made anew and
	// short enough for a person who mistyped the address.
	backoffBase = 20 * time.Millisecond
	backoffMax  = time.Second
)

// retryBudget keeps retries from becoming the load: each success earns a tenth of
// a retry. It starts full, so that the calls in flight when a server restarts may
// all be tried again. Safe for concurrent use.
type retryBudget struct{ tenths atomic.Int64 }

const (
	fullBudget = 1000 * 10 // tenths of a retry
	retryCost  = 10
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
	client   *Client
	op       string
	write    bool
	deadline time.Time // zero: none
	n        int       // tries so far
}

func (c *Client) attempts(ctx context.Context, op string, write bool) attempts {
	a := attempts{client: c, op: op, write: write}
	if d, has := ctx.Deadline(); has {
		a.deadline = d
	} else if c.config.timeout > 0 {
		a.deadline = time.Now().Add(c.config.timeout)
	}
	return a
}

// again decides after a fault: it waits and returns nil if the call should be
// tried again, else it returns the error of the call.
func (a *attempts) again(ctx context.Context, f *fault) error {
	a.n++
	if !f.transient || a.write && !f.undone || a.n == maxAttempts {
		return f.error(a.op, a.write, a.n)
	}
	wait := max(rand.N(min(backoffBase<<a.n, backoffMax)), f.retryAfter)
	if !a.deadline.IsZero() && time.Until(a.deadline) <= wait || !a.client.budget.spend() {
		return f.error(a.op, a.write, a.n)
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return (&fault{err: ctx.Err(), undone: f.undone, message: f.message, reason: f.reason}).error(a.op, a.write, a.n)
	}
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
