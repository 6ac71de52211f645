package workload

import (
	"sync/atomic"
	"time"

	"github.com/kvd-db/kvd/internal/histogram"
)

// recorder holds what one worker counts while the reporter reads. Counters only grow: a
// warm-up or an interval is subtracted, never reset, so no lock is needed.
type recorder struct {
	latency     [kindCount]histogram.Histogram
	lateness    histogram.Histogram // how late timers woke the worker
	getKnown    atomic.Uint64       // gets of a key that the worker expected to be present
	getFound    atomic.Uint64
	deleteFound atomic.Uint64
	lastEnd     atomic.Int64 // when the last operation ended, on the clock of the run
}

// totals is the sum of all recorders at one time, or the difference of two.
type totals struct {
	latency     [kindCount]histogram.Snapshot
	lateness    histogram.Snapshot
	getKnown    uint64
	getFound    uint64
	deleteFound uint64
}

// read adds the counts of a recorder. A worker counts an operation before its result;
// read loads them in reverse order, so that results never exceed operations.
func (t *totals) read(r *recorder) {
	t.getKnown += r.getKnown.Load()
	t.getFound += r.getFound.Load()
	t.deleteFound += r.deleteFound.Load()
	for k := range t.latency {
		t.latency[k].Add(&r.latency[k])
	}
	t.lateness.Add(&r.lateness)
}

// subtract subtracts earlier counts.
func (t *totals) subtract(earlier *totals) {
	for k := range t.latency {
		t.latency[k].Subtract(&earlier.latency[k])
	}
	t.lateness.Subtract(&earlier.lateness)
	t.getKnown -= earlier.getKnown
	t.getFound -= earlier.getFound
	t.deleteFound -= earlier.deleteFound
}

// ops returns how many operations have ended.
func (t *totals) ops() uint64 {
	var n uint64
	for k := range t.latency {
		n += t.latency[k].Count()
	}
	return n
}

func (t *totals) count(k kind) uint64 { return t.latency[k].Count() }

// Latency summarizes the latencies of one kind of operation, in nanoseconds.
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

// perSecond returns a rate; 0 if no time has elapsed.
func perSecond(ops uint64, elapsed time.Duration) float64 {
	if elapsed <= 0 {
		return 0
	}
	return float64(ops) / elapsed.Seconds()
}
