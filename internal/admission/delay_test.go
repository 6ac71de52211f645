package admission

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// The states of RFC 8289, section 4.4, with the eldest for the one that leaves.
func TestAQueueStandsWhenItsLeastDelayIsAboveTheTarget(t *testing.T) {
	const ms = time.Millisecond
	type sample struct{ at, eldest, limit time.Duration }
	for name, samples := range map[string][]sample{
		"a burst":       {{0, 90 * ms, interval}, {50 * ms, 60 * ms, interval}, {99 * ms, 6 * ms, interval}, {100 * ms, 5 * ms, interval}, {150 * ms, 90 * ms, interval}},
		"standing":      {{0, 6 * ms, interval}, {99 * ms, 6 * ms, interval}, {100 * ms, 6 * ms, target}, {101 * ms, 1 * ms, target}, {500 * ms, 6 * ms, target}},
		"nobody looked": {{0, 6 * ms, interval}, {900 * ms, 5 * ms, interval}, {901 * ms, 6 * ms, interval}},
	} {
		t.Run(name, func(t *testing.T) {
			var d delay
			begun := time.Now()
			for _, s := range samples {
				assert.Equal(t, s.limit, d.limit(begun.Add(s.at), s.eldest), "at %v", s.at)
			}
		})
	}
}
