package pace

import (
	"context"
	"time"
)

const (
	// shortestRest is the shortest rest that is taken; shorter ones are added to the next.
	// Guessed: longer than the accuracy of timers, and short enough that the work before it
	// delays a request by less than a request itself may take.
	shortestRest = 10 * time.Millisecond
	// restCheck is how often a rest looks whether it should go on.
	restCheck = 20 * time.Millisecond
)

// WithRests returns a context for work of one goroutine that calls Rest between its steps: it
// then rests times() times as long as it has worked. times may change: 0 ends a rest soon. It
// must be safe for concurrent use.
//
// The context carries this, as it carries a deadline, because the work that rests is far below
// the code that knows whether other work waits.
func WithRests(ctx context.Context, times func() int) context.Context {
	return context.WithValue(ctx, restsKey{}, &rests{times: times, resumed: time.Now()})
}

type restsKey struct{}

type rests struct {
	times   func() int
	resumed time.Time // when the work began, or went on after its last rest
}

// Rest is called between two steps of some work. It waits if the context is one of WithRests
// and a rest is due.
//
// Errors: that of ctx.
func Rest(ctx context.Context) error {
	r, ok := ctx.Value(restsKey{}).(*rests)
	if !ok || ctx.Err() != nil {
		return ctx.Err()
	}
	return r.rest(ctx)
}

func (r *rests) rest(ctx context.Context) error {
	now := time.Now()
	times := r.times()
	if times == 0 {
		r.resumed = now // what was done without rests is not made up for
		return nil
	}
	end := now.Add(time.Duration(times) * now.Sub(r.resumed))
	if end.Sub(now) < shortestRest {
		return nil
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for left := end.Sub(now); left > 0 && r.times() > 0; left = time.Until(end) {
		timer.Reset(min(left, restCheck))
		select {
		case <-timer.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	r.resumed = time.Now()
	return nil
}
