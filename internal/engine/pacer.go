package engine

import (
	"context"
	"time"
)

// pacer is a token bucket: it bounds the bytes that one goroutine reads per second, and the
// share of the time that it works. The bucket holds the tokens of pacerBurst.
type pacer struct {
	rate int64 // bytes per second; 0: no bound
	// idle returns how many times as long as it works the goroutine must rest; nil: zero.
	idle func() int

	due     time.Time // when the tokens taken so far are there
	resumed time.Time // when the goroutine began to work after its last rest
}

// pacerBurst is the longest time for which unused tokens are kept. Guessed: longer than the
// accuracy of timers.
const pacerBurst = 20 * time.Millisecond

// begin starts the clock.
func (p *pacer) begin() { p.due, p.resumed = time.Now(), time.Now() }

// take waits until there are tokens for bytes that were read, or until ctx ends. A rest
// shorter than the burst is saved up.
func (p *pacer) take(ctx context.Context, bytes int64) {
	now := time.Now()
	rest := p.rest(now, bytes)
	if rest < pacerBurst {
		return
	}
	timer := time.NewTimer(rest)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	p.resumed = time.Now()
}

// rest returns how long to wait after reading bytes.
func (p *pacer) rest(now time.Time, bytes int64) time.Duration {
	if earliest := now.Add(-pacerBurst); p.due.Before(earliest) {
		p.due = earliest
	}
	if p.rate > 0 {
		p.due = p.due.Add(time.Duration(float64(bytes) / float64(p.rate) * float64(time.Second)))
	}
	rest := p.due.Sub(now)
	if p.idle != nil {
		rest = max(rest, time.Duration(p.idle())*now.Sub(p.resumed))
	}
	return rest
}
