package workload

import (
	"sync/atomic"
	"time"

	"github.com/kvd-db/kvd/internal/histogram"
)

// recorder is what one worker counts while the reporter looks on. Everything
// only grows: a warm-up or an interval is subtracted, never reset, so there is
// no lock and nothing to hand over.
type recorder struct {
	latency     [kindCount]histogram.Histogram
	lateness    histogram.Histogram // by how much a timer woke the worker too late
	getKnown    atomic.Uint64       // gets of a key that the worker believed to be there
	getFound    atomic.Uint64
	deleteFound atomic.Uint64
	lastEnd     atomic.Int64 // when the last operation ended, on the clock of the run
}

// totals is the sum of all recorders at a moment, or the difference of two.
type totals struct {
	latency     [kindCount]histogram.Snapshot
	lateness    histogram.Snapshot
	getKnown    uint64
	getFound    uint64
	deleteFound uint64
}

// read adds what a recorder has counted so far. A worker counts an operation
// before what it found; this reads the other way around, so that never more
// seems found than asked for.
func (t *totals) read(r *recorder) {
	t.getKnown += r.getKnown.Load()
	t.getFound += r.getFound.Load()
	t.deleteFound += r.deleteFound.Load()
	for k := range t.latency {
		t.latency[k].Add(&r.latency[k])
	}
	t.lateness.Add(&r.lateness)
}

// subtract leaves what was counted since earlier.
func (t *totals) subtract(earlier *totals) {
	for k := range t.latency {
		t.latency[k].Subtract(&earlier.latency[k])
	}
	t.lateness.Subtract(&earlier.lateness)
	t.getKnown -= earlier.getKnown
	t.getFound -= earlier.getFound
	t.deleteFound -= earlier.deleteFound
}

// ops returns how many operations ended.
func (t *totals) ops() uint64 {
	var n uint64
	for k := range t.latency {
		n += t.latency[k].Count()
	}
	return n
}

func (t *totals) count(k kind) uint64 { return t.latency[k].Count() }

// Latency is how long operations of one kind took, in nanoseconds.
type Latency struct {
	P50  int64 `json:"p50"`
	P99  int64 `json:"p99"`
	P999 int64 `json:"p999"`
	Max  int64 `json:"max"`
}

func newLatency(s *histogram.Snapshot) Latency {
	at := func(q float64) int64 { return s.Quantile(q).Nanoseconds() }
	return Latency{P50: at(0.5), P99: at(0.99), P999: at(0.999), Max: at(1)}
}

// perSecond is a rate; it is 0 over no time.
func perSecond(ops uint64, elapsed time.Duration) float64 {
	if elapsed <= 0 {
		return 0
	}
	return float64(ops) / elapsed.Seconds()
}
