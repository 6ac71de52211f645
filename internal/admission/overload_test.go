package admission

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/kvd-db/kvd/internal/kv"
)

// service is something that serves bound operations in each serviceTime, behind a
// gate.
type service struct {
	*Gate
	begun time.Time
	mu    sync.Mutex
	log   []outcome
}

const serviceTime = 5 * time.Millisecond

// outcome is what became of one frame.
type outcome struct {
	client  *Client
	ops     int
	arrived time.Duration // since begun, as wait is from then on
	wait    time.Duration
	err     error
}

func newService(bound int) *service {
	return &service{Gate: New(Bounds{Size{bound, 1 << 30}, Size{1 << 20, 1 << 30}}), begun: time.Now()}
}

// call serves a frame and logs what became of it.
func (s *service) call(ctx context.Context, c *Client, n int) error {
	o := outcome{client: c, ops: n, arrived: time.Since(s.begun)}
	o.err = s.Enter(ctx, c, ops(n))
	o.wait = time.Since(s.begun) - o.arrived
	if o.err == nil {
		// Spread, or all would leave in the same moment for ever.
		time.Sleep(serviceTime/2 + rand.N(serviceTime))
		s.Leave(ops(n))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, o)
	return o.err
}

// tally is what became of the frames of a client, or of all if it is nil, that
// arrived in a span.
type tally struct {
	served, refused int // frames
	ops             int // served
	longest         time.Duration
}

func (s *service) tally(c *Client, from, to time.Duration) (t tally) {
	for _, o := range s.log {
		if c != nil && o.client != c || o.arrived < from || o.arrived >= to {
			continue
		}
		if _, ok := errors.AsType[*kv.OverloadError](o.err); ok {
			t.refused++
		}
		if o.err != nil {
			continue // refused, or given up by its caller as the test ended
		}
		t.served++
		t.ops += o.ops
		t.longest = max(t.longest, o.wait)
	}
	return t
}

// An open loop, which a closed one hides, of five times what can be served: 10,000
// frames per second where 2,000 can be, and half of that afterwards.
func TestFiveTimesTheCapacity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const frameOps, capacity = 64, 2 // frames per ms
		s := newService(frameOps * capacity * int(serviceTime/time.Millisecond))
		var clients [50]Client
		var all sync.WaitGroup
		load := func(gap, span time.Duration) {
			for begun := time.Now(); time.Since(begun) < span; time.Sleep(rand.N(2 * gap)) {
				all.Go(func() { _ = s.call(t.Context(), &clients[rand.IntN(len(clients))], frameOps) }) // logged
			}
		}
		const overload = time.Second
		load(100*time.Microsecond, overload)
		load(time.Millisecond, 500*time.Millisecond)
		all.Wait()
		burst := time.Since(s.begun)
		for range 80 { // 40 ms of work at once
			all.Go(func() { _ = s.call(t.Context(), &clients[0], frameOps) }) // logged
		}
		all.Wait()

		// It takes two intervals to see that the queue stands: until the eldest is
		// above the target, and from then on.
		const known = 2 * interval
		during := s.tally(nil, known, overload)
		const possible = capacity * int((overload-known)/time.Millisecond)
		assert.GreaterOrEqual(t, during.served, possible*8/10, "of %d that can be served", possible)
		assert.Greater(t, during.refused, during.served, "five times the capacity came")
		assert.LessOrEqual(t, during.longest, target+time.Millisecond)
		assert.LessOrEqual(t, s.tally(nil, 0, known).longest, interval)

		after := s.tally(nil, overload+20*time.Millisecond, burst)
		assert.Positive(t, after.served)
		assert.Zero(t, after.refused)
		assert.Less(t, after.longest, serviceTime)
		assert.Zero(t, s.tally(nil, burst, time.Hour).refused, "bursts are taken up again")
		assert.Zero(t, s.Stats().Inside)
		t.Logf("served %d of %d, refused %d, longest wait %v; at first %+v, afterwards %+v",
			during.served, possible, during.refused, during.longest, s.tally(nil, 0, known), after)
	})
}

// closed is a closed loop of so many callers with frames of n operations. One that
// is refused comes back when it was told.
func (s *service) closed(ctx context.Context, all *sync.WaitGroup, callers int, c *Client, n int) {
	for range callers {
		all.Go(func() {
			for ctx.Err() == nil {
				if refused, ok := errors.AsType[*kv.OverloadError](s.call(ctx, c, n)); ok {
					time.Sleep(refused.RetryAfter)
				}
			}
		})
	}
}

func TestSharesDoNotDependOnFrames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Eight large frames fit. Of four the share is a tenth smaller, more or less.
		s := newService(8000)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var large, small Client
		var all sync.WaitGroup
		s.closed(ctx, &all, 40, &large, 1000)
		s.closed(ctx, &all, 1000, &small, 40)
		all.Wait()
		l, m := s.tally(&large, 0, time.Hour), s.tally(&small, 0, time.Hour)
		assert.InEpsilon(t, l.ops, m.ops, 0.1)
		t.Logf("large frames %+v, small ones %+v", l, m)
	})
}

func TestWhoFloodsWaitsForItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(4096)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var flood, light Client
		var all sync.WaitGroup
		s.closed(ctx, &all, 800, &flood, 250)
		all.Go(func() {
			for ctx.Err() == nil {
				time.Sleep(time.Millisecond)
				_ = s.call(ctx, &light, 4) // logged
			}
		})
		all.Wait()
		f, l := s.tally(&flood, 0, time.Hour), s.tally(&light, 0, time.Hour)
		assert.Positive(t, f.refused)
		assert.Greater(t, l.served, 100)
		assert.Zero(t, l.refused)
		assert.Less(t, l.longest, serviceTime, "a turn of the flood, at most")
		t.Logf("flood %+v, light %+v", f, l)
	})
}
