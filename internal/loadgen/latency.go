package loadgen

import (
	"math"
	"time"

	"github.com/kvd-db/kvd/internal/histogram"
)

// Latency summarizes the latencies of one kind of operation, in nanoseconds.
type Latency struct {
	P50   int64 `json:"p50"`
	P90   int64 `json:"p90"`
	P95   int64 `json:"p95"`
	P99   int64 `json:"p99"`
	P999  int64 `json:"p999"`
	P9999 int64 `json:"p9999"`
	Max   int64 `json:"max"`
}

// NewLatency summarizes what was recorded.
func NewLatency(s *histogram.Snapshot) Latency {
	at := func(q float64) int64 { return s.Quantile(q).Nanoseconds() }
	return Latency{P50: at(0.5), P90: at(0.9), P95: at(0.95), P99: at(0.99), P999: at(0.999), P9999: at(0.9999), Max: at(1)}
}

// newDueLatency summarizes what was recorded, and operations that were not answered.
func newDueLatency(s *histogram.Snapshot, unanswered uint64) *Latency {
	if unanswered > 0 {
		s.Record(Never, unanswered)
	}
	l := NewLatency(s)
	return &l
}

// Kind summarizes the operations of one kind.
type Kind struct {
	Count        uint64  `json:"count"`
	OpsPerSecond float64 `json:"opsPerSecond"`
	MeanNanos    int64   `json:"meanNanos"`
	Nanos        Latency `json:"nanos"`
	// Refused counts those that the target refused because of overload, which are not in Count.
	Refused uint64 `json:"refused,omitempty"`
	// DueNanos is Nanos of all that were due, of a Trial of which some were refused or missed:
	// refused ones took Never, and missed ones, whose kind is not known, as long as they waited,
	// each kind its share. Otherwise it is nil, since Nanos says the same.
	DueNanos *Latency `json:"dueNanos,omitempty"`
}

// Never stands for the latency of an operation that was not answered.
const Never = math.MaxInt64

func newKind(s *histogram.Snapshot, elapsed time.Duration) Kind {
	return Kind{
		Count:        s.Count(),
		OpsPerSecond: perSecond(s.Count(), elapsed),
		MeanNanos:    s.Mean().Nanoseconds(),
		Nanos:        NewLatency(s),
	}
}

// perSecond returns a rate; 0 if no time has elapsed.
func perSecond(ops uint64, elapsed time.Duration) float64 {
	if elapsed <= 0 {
		return 0
	}
	return float64(ops) / elapsed.Seconds()
}

// Share returns part / whole; 0 if the whole is 0.
func Share(part, whole float64) float64 {
	if whole == 0 {
		return 0
	}
	return part / whole
}

// Ratio returns part / whole; 0 if the whole is 0.
func Ratio(part, whole uint64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}
