package load

import (
	"time"

	"github.com/kvd-db/kvd/internal/histogram"
)

// Kind summarizes the operations of one kind.
type Kind struct {
	Count uint64        `json:"count"`
	P50   time.Duration `json:"p50"`
	P99   time.Duration `json:"p99"`
	P999  time.Duration `json:"p999"`
	Max   time.Duration `json:"max"`
}

// recorder counts latencies. Callers share several recorders: one for each caller would
// exceed the processor's caches, and a single one would be contended.
type recorder struct {
	gets, sets histogram.Histogram
}

const recorders = 8

type recording [recorders]recorder

// of returns the recorder of a caller.
func (r *recording) of(caller int) *recorder { return &r[caller%recorders] }

func (r *recording) sum(of func(*recorder) *histogram.Histogram) Kind {
	var s histogram.Snapshot
	for i := range r {
		s.Add(of(&r[i]))
	}
	return newKind(&s)
}

func newKind(s *histogram.Snapshot) Kind {
	return Kind{Count: s.Count(), P50: s.Quantile(0.5), P99: s.Quantile(0.99), P999: s.Quantile(0.999), Max: s.Max()}
}

func gets(r *recorder) *histogram.Histogram { return &r.gets }
func sets(r *recorder) *histogram.Histogram { return &r.sets }
