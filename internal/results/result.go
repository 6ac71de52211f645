package results

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/kvd-db/kvd/internal/histogram"
	"github.com/kvd-db/kvd/internal/loadgen"
)

// Version is the format version of a directory.
const Version = 1

// Result is the outcome of one experiment.
type Result struct {
	Version     int                 `json:"version"`
	Program     string              `json:"program,omitempty"`    // that measured; "" is kvbench
	Experiment  string              `json:"experiment"`           // the command, such as "run"
	Command     []string            `json:"command"`              // with its arguments
	Scale       float64             `json:"scale"`                // of times and sizes; 1 is full scale
	Began       string              `json:"began"`                // RFC 3339, UTC
	Options     map[string]string   `json:"options,omitempty"`    // all flags that decide what is measured, and how
	Objectives  string              `json:"objectives,omitempty"` // of --slo
	Source      string              `json:"source,omitempty"`     // of `kvbench source`, if it was measured for one
	Environment loadgen.Environment `json:"environment"`
	Planned     int                 `json:"planned,omitempty"` // runs of all cells, if the experiment ends as it should; 0: not known
	Cells       []*Cell             `json:"cells"`
}

// Measured returns the number of runs of all cells.
func (r *Result) Measured() int {
	n := 0
	for _, c := range r.Cells {
		n += len(c.Runs)
	}
	return n
}

// Complete reports whether all runs that were planned are there.
func (r *Result) Complete() bool { return r.Measured() >= r.Planned }

// Cell returns the cell with these parameters; nil if there is none.
func (r *Result) Cell(params []Param) *Cell {
	i := slices.IndexFunc(r.Cells, func(c *Cell) bool { return slices.Equal(c.Params, params) })
	if i < 0 {
		return nil
	}
	return r.Cells[i]
}

// Cell is one combination of parameters.
type Cell struct {
	Params []Param `json:"params"`
	// Workload and Target describe in detail what was asked and of what, in the form of
	// their own reports.
	Workload any    `json:"workload,omitempty"`
	Target   any    `json:"target,omitempty"`
	Runs     []*Run `json:"runs"`
}

// Param is one parameter of a cell, in the order of the report.
type Param struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Name returns the values of the parameters, for people.
func (c *Cell) Name() string {
	var parts []string
	for _, p := range c.Params {
		parts = append(parts, p.Name+" "+p.Value)
	}
	return strings.Join(parts, ", ")
}

// Param returns the value of a parameter; "" if the cell has none of that name.
func (c *Cell) Param(name string) string {
	i := slices.IndexFunc(c.Params, func(p Param) bool { return p.Name == name })
	if i < 0 {
		return ""
	}
	return c.Params[i].Value
}

// Run is one measured run of a cell.
type Run struct {
	*loadgen.Trial
	Series    []Second    `json:"series"`
	Latencies []Latencies `json:"latencies"` // by operation
	Activity  any         `json:"activity,omitempty"`
	Stages    []Stages    `json:"stages,omitempty"` // of calls, by operation
	// Measures are figures that only this experiment has, by name.
	Measures map[string]float64 `json:"measures,omitempty"`

	log []byte // lines of hdrLog; nil of a run that was read from a file, but for some by Resume
}

// Evicted is the measure of a run that had no page of its files in the page cache: 1.
const Evicted = "evicted"

// Second is one second of a run.
type Second struct {
	At           float64             `json:"at"` // seconds since the measurement began, at its end
	OpsPerSecond float64             `json:"opsPerSecond"`
	Bytes        *int64              `json:"bytes,omitempty"` // on disk
	Store        *StoreState         `json:"store,omitempty"` // at the end of the second; nil if not known
	Operations   []loadgen.Operation `json:"operations"`
	// OwnCPU and OtherCPU are shares of the machine's processor time: of the process that
	// measured, and of all others. Nil if unknown.
	OwnCPU   *float64 `json:"ownCPU,omitempty"`
	OtherCPU *float64 `json:"otherCPU,omitempty"`
	// ServerCPU is the share that a server in another process had of its processors. Nil if
	// unknown.
	ServerCPU *float64 `json:"serverCPU,omitempty"`
	// Heat counts operations of all kinds by latency: pairs of a row and a count. Row n
	// holds latencies from HeatRow(n) to HeatRow(n+1).
	Heat [][2]uint64 `json:"heat"`
}

// operation returns the operations of one name, with a count of 0 if there were none.
func (s *Second) operation(name string) loadgen.Operation {
	for _, o := range s.Operations {
		if o.Name == name {
			return o
		}
	}
	return loadgen.Operation{Name: name}
}

// StoreState is what a store holds at one time, and what it has written since the measurement
// began. Sizes are in bytes.
type StoreState struct {
	Log     uint64 `json:"log"`
	Deltas  uint64 `json:"deltas"` // tables newer than the base
	Base    uint64 `json:"base"`
	Values  uint64 `json:"values"`  // value files
	Garbage uint64 `json:"garbage"` // values in them that nothing needs
	Debt    uint64 `json:"debt"`    // that compactions will have to read
	Put     uint64 `json:"put"`     // keys and values, by callers
	Written uint64 `json:"written"` // by the log, flushes and compactions
	// Pressure is above 0 while the store slows writers, because flushes or compactions lag.
	Pressure float64 `json:"pressure"`
}

// Latencies is the distribution of one operation's latency.
type Latencies struct {
	Operation string `json:"operation"`
	// Buckets are pairs: the largest latency of the bucket, and how many operations took
	// that long. They are ascending.
	Buckets [][2]uint64 `json:"buckets"`
}

// Quantile returns the latency of the operation with the nearest rank of q: the least that
// a share of at least q did not exceed. It is the largest of its bucket, as in Buckets, which
// HdrHistogram calls the highest equivalent value. It is 0 without operations.
func (l *Latencies) Quantile(q float64) int64 {
	var total uint64
	for _, b := range l.Buckets {
		total += b[1]
	}
	if total == 0 {
		return 0
	}
	rank, seen := histogram.Rank(q, total), uint64(0)
	for _, b := range l.Buckets {
		if seen += b[1]; seen >= rank {
			return int64(b[0])
		}
	}
	return 0
}

// MedianRun returns the run whose rate is the median, the lower one of an even number;
// nil without runs.
func (c *Cell) MedianRun() *Run {
	if len(c.Runs) == 0 {
		return nil
	}
	sorted := slices.Clone(c.Runs)
	slices.SortStableFunc(sorted, func(a, b *Run) int { return cmp.Compare(a.OpsPerSecond, b.OpsPerSecond) })
	return sorted[(len(sorted)-1)/2]
}

// Measure returns the median of a figure over the runs that have it; false if none has.
func (c *Cell) Measure(name string) (median float64, ok bool) {
	var values []float64
	for _, r := range c.Runs {
		if v, ok := r.Measures[name]; ok {
			values = append(values, v)
		}
	}
	if len(values) == 0 {
		return 0, false
	}
	return loadgen.Median(values), true
}

// Rates returns the least, the median and the highest rate of the runs.
func (c *Cell) Rates() (least, median, most float64) {
	var rates []float64
	for _, r := range c.Runs {
		rates = append(rates, r.OpsPerSecond)
	}
	if len(rates) == 0 {
		return 0, 0, 0
	}
	return slices.Min(rates), loadgen.Median(rates), slices.Max(rates)
}

// marshal writes a result as result.json has it.
func (r *Result) marshal() ([]byte, error) { return json.Marshal(r) }
