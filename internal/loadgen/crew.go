package loadgen

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// stopGrace is how long operations may continue after the end of a run before they are
// cancelled. Guessed: longer than any stall worth measuring, short enough for an
// operator who waits.
const stopGrace = 30 * time.Second

// crew runs the goroutines of a run: they start together and stop together, and the
// first error of one stops all.
type crew struct {
	opCtx     context.Context // for every operation; ends only after stopGrace
	cancelOps context.CancelFunc

	stopOnce sync.Once
	stopping atomic.Bool   // the same as stop, for the hot path
	stop     chan struct{} // closed when workers must begin no further operation
	halted   time.Time     // written before stop is closed
	failOnce sync.Once
	failure  error         // written before failed is closed
	failed   chan struct{} // closed at the first error of a worker
}

// newCrew returns a crew. The caller must call cancelOps at the end.
func newCrew() *crew {
	c := &crew{stop: make(chan struct{}), failed: make(chan struct{})}
	c.opCtx, c.cancelOps = context.WithCancel(context.Background())
	return c
}

// start runs body for each worker, in a goroutine of its own, and returns a channel
// that is closed when all have returned.
func (c *crew) start(count int, body func(worker int) error) <-chan struct{} {
	var wg sync.WaitGroup
	for i := range count {
		wg.Go(func() {
			if err := body(i); err != nil {
				c.fail(err)
			}
		})
	}
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	return done
}

// repeat runs one worker: it calls step, without pause or at the times of timetable,
// until the crew stops or, unless limit is 0, limit times.
func (c *crew) repeat(step Step, timetable *pace, limit uint64) error {
	for n := uint64(0); c.continues(n) && (limit == 0 || n < limit); n++ {
		var due int64
		if timetable != nil {
			var ok bool
			if due, ok = timetable.await(); !ok {
				return nil
			}
		}
		if err := step(c.opCtx, due); err != nil {
			return err
		}
	}
	return nil
}

// continues reports whether a worker that has done n steps does another one. A worker whose
// goroutine begins only after the end of the run does its first step all the same, so that a
// short run on a busy machine measures something, unless an error ended the run.
func (c *crew) continues(n uint64) bool {
	return !c.stopping.Load() || n == 0 && c.err() == nil
}

func (c *crew) halt() {
	c.stopOnce.Do(func() {
		c.halted = time.Now()
		c.stopping.Store(true)
		close(c.stop)
	})
}

func (c *crew) fail(err error) {
	c.failOnce.Do(func() {
		c.failure = err
		close(c.failed)
	})
	c.halt()
}

// finish stops the workers and waits until their current operations end.
func (c *crew) finish(done <-chan struct{}) {
	c.halt()
	grace := time.NewTimer(stopGrace)
	defer grace.Stop()
	select {
	case <-done:
		return
	case <-grace.C:
	}
	c.cancelOps()
	<-done
}

// err returns the first error of a worker so far; nil if there is none.
func (c *crew) err() error {
	select {
	case <-c.failed:
		return c.failure
	default:
		return nil
	}
}

// sleep waits for d; it returns false if the run ended first: by ctx, by an error, or
// because all workers have returned, which closes done.
func (c *crew) sleep(ctx context.Context, d time.Duration, done <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-c.failed:
	case <-done:
	}
	return false
}
