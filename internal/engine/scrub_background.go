package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/kvd-db/kvd/internal/pace"
)

// The background scrub reads at a rate with which a pass takes as long as Options.ScrubInterval,
// but not below minScrubRate, so that a pass over a small store ends soon, and not above
// maxScrubRate. It rests restShare times as long as it works, so it takes at most a tenth of
// the disk's time however slow that is, and a hundredth while writers are slowed. Guessed.
const (
	minScrubRate  = 256 << 10
	maxScrubRate  = 32 << 20
	restShare     = 9
	restShareBusy = 99
)

// scrubDelay is how long after Open the first pass begins: caches fill first. Guessed.
const scrubDelay = time.Minute

// startScrubbing starts the background scrub. The first pass begins scrubDelay after the store
// was opened, or an interval if that is less, and each other one an interval after the one
// before began. Its position is in memory: after a restart a pass begins anew, with another
// partition.
func (e *Engine) startScrubbing() {
	if e.opts.ScrubInterval <= 0 {
		return
	}
	ctx, leave, err := e.scrubs.enter(context.Background())
	if err != nil {
		return // closed already
	}
	go func() {
		defer e.events.Guard()
		defer leave()
		interval := e.opts.ScrubInterval
		due := time.NewTimer(min(scrubDelay, interval))
		defer due.Stop()
		for {
			select {
			case <-due.C:
			case <-ctx.Done():
				return
			}
			due.Reset(interval)
			e.scrubSlowly(ctx, interval)
		}
	}()
}

// scrubSlowly does one pass of the background scrub.
func (e *Engine) scrubSlowly(ctx context.Context, interval time.Duration) {
	bucket := pace.NewResting(scrubRate(e.scrubBytes(), interval), func() int {
		if e.budget.pressure() > 0 {
			return restShareBusy
		}
		return restShare
	})
	err := e.scrub(ctx, bucket, func(step ScrubStep) {
		e.scrubs.update(func(s *ScrubStats) { s.Done, s.Total = step.Done, step.Total })
	})
	e.scrubs.update(func(s *ScrubStats) { s.Done, s.Total = 0, 0 })
	if err != nil && ctx.Err() == nil {
		e.backgroundError(fmt.Errorf("scrub: %w", err))
	}
}

// scrubRate returns the rate of a background pass in bytes per second.
func scrubRate(total int64, interval time.Duration) int64 {
	rate := float64(total) / interval.Seconds()
	return int64(min(max(rate, minScrubRate), maxScrubRate))
}
