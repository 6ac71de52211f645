package results

import (
	"fmt"
	"math"
	"slices"

	"github.com/kvd-db/kvd/internal/loadgen"
)

// Processor time of an operation, in microseconds: of this process, and of a server in another
// one.
const (
	MetricCPU       = "CPU an operation"
	MetricServerCPU = "CPU an operation, server"
)

// metric is a figure of runs.
type metric struct {
	name  string
	less  bool // less is better
	main  bool
	ofRun func(*Run) float64
}

// metrics returns the figures that one of the cells may have.
func metrics(a, b *Cell) []metric {
	list := []metric{
		{name: "operations/s", main: true, ofRun: func(r *Run) float64 { return r.OpsPerSecond }},
		{name: MetricCPU, less: true, ofRun: func(r *Run) float64 { return r.CPUMicrosPerOp }},
		{name: MetricServerCPU, less: true, ofRun: (*Run).serverCPU},
	}
	for _, name := range operationNames(a, b) {
		for _, q := range []struct {
			name string
			of   func(loadgen.Latency) int64
		}{
			{"p50", func(l loadgen.Latency) int64 { return l.P50 }},
			{"p99", func(l loadgen.Latency) int64 { return l.P99 }},
		} {
			list = append(list, metric{
				name: name + " " + q.name, less: true,
				ofRun: func(r *Run) float64 {
					o := r.Trial.Operation(name)
					if o.DueNanos != nil {
						return float64(q.of(*o.DueNanos))
					}
					return float64(q.of(o.Nanos))
				},
			})
		}
	}
	return list
}

// serverCPU is 0 if it is not known.
func (r *Run) serverCPU() float64 {
	if r.Server == nil {
		return 0
	}
	return r.Server.CPUMicrosPerOp
}

// operationNames returns the names of the operations of which a cell has some.
func operationNames(cells ...*Cell) (names []string) {
	for _, c := range cells {
		for _, r := range c.Runs {
			for _, o := range r.Trial.Operations {
				if o.Count+o.Refused > 0 && !slices.Contains(names, o.Name) {
					names = append(names, o.Name)
				}
			}
		}
	}
	return names
}

// row returns the difference of a figure between two cells, without its verdict; nil if it cannot
// be compared, and then why, unless no side has it.
func (m *metric) row(a, b *Cell) (_ *row, why string) {
	as, bs := m.samples(a), m.samples(b)
	if !m.main {
		switch haveA, haveB := as.some(), bs.some(); {
		case !haveA && !haveB:
			return nil, ""
		case !haveB:
			return nil, "only the first has it"
		case !haveA:
			return nil, "only the second has it"
		case as.endless+bs.endless > 0:
			return nil, fmt.Sprintf("it is endless in %d of %d runs of the first and %d of %d of the second, because operations were refused", as.endless, len(a.Runs), bs.endless, len(b.Runs))
		}
	}
	return &row{
		Difference: Difference{Cell: a.Name(), Metric: m.name, Main: m.main, A: as.mean(), B: bs.mean()},
		a:          as, b: bs, less: m.less, welch: newWelch(as.logs, bs.logs),
	}, ""
}

// samples are the values of a figure of a cell, one of each run that has it.
type samples struct {
	logs    []float64
	idle    int // runs whose rate was 0, which has no logarithm
	endless int // runs whose latency is loadgen.Never
}

// some reports whether there is any sample, besides those that are idle.
func (s *samples) some() bool { return len(s.logs)+s.endless > 0 }

func (s *samples) count() int { return len(s.logs) + s.idle }

// idleShare returns the share of runs whose rate was 0.
func (s *samples) idleShare() float64 { return float64(s.idle) / float64(max(s.count(), 1)) }

// mean returns the geometric mean.
func (s *samples) mean() float64 {
	if len(s.logs) == 0 {
		return 0
	}
	return math.Exp(mean(s.logs))
}

func (m *metric) samples(c *Cell) samples {
	var s samples
	for _, r := range c.Runs {
		switch v := m.ofRun(r); {
		case v >= loadgen.Never:
			s.endless++
		case v > 0:
			s.logs = append(s.logs, math.Log(v))
		case m.main:
			s.idle++
		}
	}
	return s
}
