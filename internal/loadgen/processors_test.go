package loadgen

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestASecondHasTheProcessorTimeSinceTheOneBefore: on a fake clock, shares of the real time.
func TestASecondHasTheProcessorTimeSinceTheOneBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []Sample
		r := &Run{Clock: NewClock(), tallies: []*Tally{NewTally(1, 0)}, Observer: Observer{Second: func(s Sample) { seen = append(seen, s) }}}
		r.begin()
		time.Sleep(time.Second)
		r.processors.machine = processorTime{} // what was not known before is not known since
		r.closeSecond()
		assert.Nil(t, seen[0].OwnCPU)
		r.processors.machine.all -= 100 // as if the kernel had counted 100 ticks, half of them idle
		r.processors.machine.idle -= 50
		r.closeSecond()
		if now := readProcessors(); now.machine.all == 0 {
			t.Skip("this system does not count processor time")
		}
		busy := *seen[1].OwnCPU + *seen[1].OtherCPU
		assert.Positive(t, busy)
		assert.Less(t, busy, 1.0)
	})
}
