package results

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/kvd-db/kvd/internal/loadgen"
)

// heatRows is how many rows of a heat map one power of ten has.
const heatRows = 10

// HeatRow returns the smallest latency of a row, in nanoseconds.
func HeatRow(row int) float64 { return 100 * math.Pow(10, float64(row)/heatRows) }

func rowOf(latency time.Duration) uint64 {
	return uint64(max(math.Floor(heatRows*math.Log10(max(float64(latency), 1)/100)), 0))
}

// Collector gathers the series of one run.
type Collector struct {
	// State returns what the store holds; nil if it cannot tell. It is called once a second.
	State func() *StoreState

	operations []string
	run        Run
	intervals  intervals
	before     float64 // seconds at the end of the second before
}

// NewCollector returns a Collector for a run whose tallies count these operations.
func NewCollector(operations []string) *Collector { return &Collector{operations: operations} }

// Second notes one second.
func (c *Collector) Second(s loadgen.Sample) {
	second := Second{
		At: float64(s.NanoTime) / 1e9, OpsPerSecond: s.OpsPerSecond, Bytes: s.FileSize, Operations: s.Operations,
		OwnCPU: s.OwnCPU, OtherCPU: s.OtherCPU, ServerCPU: s.ServerCPU,
	}
	if c.State != nil {
		second.Store = c.State()
	}
	rows := make(map[uint64]uint64)
	latencies := latenciesOf(c.operations, s.Counts)
	for _, l := range latencies {
		for _, b := range l.Buckets {
			rows[rowOf(time.Duration(b[0]))] += b[1]
		}
	}
	c.intervals.add(interval{c.before, second.At, latencies})
	c.before = second.At
	for _, row := range slices.Sorted(maps.Keys(rows)) {
		second.Heat = append(second.Heat, [2]uint64{row, rows[row]})
	}
	c.run.Series = append(c.run.Series, second)
}

// Run returns what was gathered, with the result of the run.
func (c *Collector) Run(t *loadgen.Trial, activity any) *Run {
	c.run.Trial, c.run.Activity = t, activity
	c.run.Latencies, c.run.log = latenciesOf(c.operations, t.Counts), c.intervals.lines()
	return &c.run
}

// latenciesOf returns the distributions of the operations with a count.
func latenciesOf(operations []string, counts *loadgen.Counts) []Latencies {
	var list []Latencies
	for i, name := range operations {
		l := Latencies{Operation: name}
		counts.Latency(i).Each(func(_, high time.Duration, n uint64) {
			l.Buckets = append(l.Buckets, [2]uint64{uint64(high), n})
		})
		if len(l.Buckets) > 0 {
			list = append(list, l)
		}
	}
	return list
}
