package loadgen

import (
	"fmt"
	"math"
	"runtime"
	"time"
)

// Generator is the cost of the measurement itself.
type Generator struct {
	NanosPerOp int64 `json:"nanosPerOp"`
	// Share is the generator's part of the processor time available to the run. Above a
	// tenth, the figures measure the generator as much as the target.
	Share float64 `json:"share"`
	// VerificationNanosPerOp is the part of NanosPerOp that checks the answers, and
	// VerificationShare its part of the processor time that the process used.
	VerificationNanosPerOp int64   `json:"verificationNanosPerOp,omitempty"`
	VerificationShare      float64 `json:"verificationShare,omitempty"`
	// LatenessNanos is how late timers woke the workers of an open loop. The latencies
	// include it, though it is not the target's fault.
	LatenessNanos *Latency `json:"latenessNanos"`
}

// maxGeneratorShare is the share above which Warnings mentions the generator.
const maxGeneratorShare = 0.10

// newGenerator relates the cost of the generator to the processor time that was
// available: that of all processors, or of as many as there are workers. A closed loop
// cannot use the time in which it waits, so more workers do not make the share smaller.
func newGenerator(cost, verification time.Duration, c *Counts, workers int, elapsed time.Duration) Generator {
	g := Generator{NanosPerOp: cost.Nanoseconds(), VerificationNanosPerOp: verification.Nanoseconds()}
	if c.lateness.Count() > 0 {
		late := NewLatency(&c.lateness)
		g.LatenessNanos = &late
	}
	if available := float64(elapsed) * float64(min(workers, runtime.GOMAXPROCS(0))); available > 0 {
		g.Share = float64(cost) * float64(c.Ops()) / available
	}
	return g
}

// Warnings says in whole sentences why the generator may have distorted the figures.
func (g *Generator) Warnings() []string {
	var warnings []string
	if g.Share > maxGeneratorShare {
		warnings = append(warnings, fmt.Sprintf("The generator took %.0f %% of the processor time (%d ns an operation), so it limits the result; use larger values, or take the rate for a lower bound.",
			100*g.Share, g.NanosPerOp))
	}
	if late := g.LatenessNanos; late != nil && late.P99 > time.Millisecond.Nanoseconds() {
		warnings = append(warnings, fmt.Sprintf("Timers woke the generator up to %v late (p99), which the latencies contain.", time.Duration(late.P99)))
	}
	return warnings
}

// The cost of the generator is measured as the best of many short rounds, with fewer
// operations in a round if the values are large. Other work on the machine only makes a
// round longer, so the best round is the most accurate; short rounds fit between two
// interruptions. Several later rounds that are no better confirm the best one.
const (
	costRounds    = 30
	costConfirmed = 5 // no round begins after this number of rounds in a row without a better one
	costOps       = 1000
	costTime      = time.Second // no round begins after this time

	// CostBytes bounds the values that the measurement of a generator's cost writes.
	CostBytes = 16 << 20
)

// CostRound returns the number of operations in a round.
func CostRound(valueBytes int) int { return max(min(costOps, CostBytes/valueBytes), 50) }

// BestRound returns the time of one step in the best of several rounds of ops steps.
func BestRound(ops int, step func() error) (time.Duration, error) {
	best, confirmed := time.Duration(math.MaxInt64), 0
	deadline := time.Now().Add(costTime)
	// Nothing is better than no time at all, by a clock that is coarse or stands still.
	for round := 0; best > 0 && confirmed < costConfirmed && round < costRounds && (round == 0 || time.Now().Before(deadline)); round++ {
		began := time.Now()
		for range ops {
			if err := step(); err != nil {
				return 0, err
			}
		}
		took := time.Since(began) / time.Duration(ops)
		if confirmed++; took < best {
			best, confirmed = took, 0
		}
	}
	return best, nil
}
