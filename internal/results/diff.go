package results

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/kvd-db/kvd/internal/loadgen"
)

// Verdict says how B compares with A.
type Verdict int

const (
	Same Verdict = iota // the interval contains no difference
	Better
	Worse
)

func (v Verdict) String() string { return [...]string{"no difference", "better", "worse"}[v] }

// Comparison is what two results of one experiment say about each other.
type Comparison struct {
	Differences []Difference
	// Apart are the cells that were not compared, and why.
	Apart []Apart
	// Settings are those of the stores, and not of the workloads, that differ between
	// cells that were compared.
	Settings []Setting
}

// Apart is a cell that was not compared.
type Apart struct{ Cell, Why string }

// Difference compares one figure of one cell.
type Difference struct {
	Cell   string
	Metric string
	A, B   float64 // geometric means
	// Ratio is B / A, and Low and High are its confidence interval.
	Ratio, Low, High float64
	Verdict          Verdict
	// Main: the figure that decides, the rate of the cell. The intervals of all main
	// figures together have the confidence; other figures have it one by one, so that one
	// in twenty of them is outside of its interval by chance.
	Main bool
	// Idle says that samples of a rate were 0, and how many; "" if none was. These have no
	// part in the means, and decide the verdict if one side has a larger share of them.
	Idle string
}

// Confidence of the intervals.
const Confidence = 0.95

// The comparison of single runs. Guessed: what one run differs from the next on a machine
// that others use too; the seconds within a run do not show it.
const (
	fewRuns     = 3 // with fewer, seconds stand in for runs
	runToRun    = 0.07
	blocksOfRun = 5
)

// Compare compares the cells that two results of one experiment have in common, by their
// parameters. Cells whose workloads have other settings, besides the seed, are not compared.
//
// The figures of runs are compared by the logarithm, by Welch's t interval (Welch, "The
// generalization of Student's problem when several different population variances are
// involved", 1947), with Bonferroni's correction over the main figures. With less than
// three runs on a side, five stretches of each run stand in for runs, and an interval is
// never narrower than 7 % to both sides.
//
// It returns an error if nothing can be compared.
func Compare(a, b *Result) (*Comparison, error) {
	if a.Experiment != b.Experiment {
		return nil, fmt.Errorf("results: the first is of kvbench %s and the second of kvbench %s: they have no figure in common", a.Experiment, b.Experiment)
	}
	c := new(Comparison)
	pairs := c.pair(a, b)
	if len(pairs) == 0 {
		return nil, fmt.Errorf("results: nothing can be compared: %s", c.reasons())
	}
	for _, p := range pairs {
		c.Settings = addSettings(c.Settings, targetSettings(p.a, p.b))
		for _, m := range metrics(p.a, p.b) {
			if d, ok := m.compare(p.a, p.b, len(pairs)); ok {
				d.Cell = p.a.Name()
				c.Differences = append(c.Differences, d)
			}
		}
	}
	return c, nil
}

// cellPair is a cell of each of two results.
type cellPair struct{ a, b *Cell }

// pair finds the cells that can be compared, and notes the others.
func (c *Comparison) pair(a, b *Result) []cellPair {
	var pairs []cellPair
	apart := func(cell *Cell, why string) { c.Apart = append(c.Apart, Apart{cell.Name(), why}) }
	for _, ca := range a.Cells {
		i := slices.IndexFunc(b.Cells, ca.alike)
		if i < 0 {
			apart(ca, "only the first has it")
			continue
		}
		cb := b.Cells[i]
		if why := incomparable(ca, cb); why != "" {
			apart(ca, why)
			continue
		}
		pairs = append(pairs, cellPair{ca, cb})
	}
	for _, cb := range b.Cells {
		if !slices.ContainsFunc(a.Cells, cb.alike) {
			apart(cb, "only the second has it")
		}
	}
	return pairs
}

// reasons says why cells were not compared, of the first few.
func (c *Comparison) reasons() string {
	const few = 3
	var parts []string
	for _, apart := range c.Apart[:min(few, len(c.Apart))] {
		parts = append(parts, apart.Cell+": "+apart.Why)
	}
	switch more := len(c.Apart) - few; {
	case len(c.Apart) == 0:
		return "neither has a measured combination of parameters"
	case more > 0:
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, "; ")
}

// incomparable says why the runs of two cells with the same parameters cannot be compared;
// "" if they can.
func incomparable(a, b *Cell) string {
	for i, c := range []*Cell{a, b} {
		which := [...]string{"first", "second"}[i]
		if len(c.Runs) == 0 {
			return "the " + which + " has no run of it"
		}
		for _, r := range c.Runs {
			if r.Error != "" {
				return "a run of the " + which + " ended with an error: " + r.Error
			}
		}
	}
	if settings := workloadSettings(a, b); len(settings) > 0 {
		return "the workloads differ: " + settingsText(settings)
	}
	return ""
}

// MetricCPU is the processor time of an operation, in microseconds.
const MetricCPU = "CPU an operation"

// metric is a figure of runs.
type metric struct {
	name   string
	less   bool // less is better
	main   bool
	ofRun  func(*Run) float64
	second func(*Second) float64 // nil: not known of a second
}

// metrics returns the figures that both cells have.
func metrics(a, b *Cell) []metric {
	list := []metric{
		{name: "operations/s", main: true, ofRun: func(r *Run) float64 { return r.OpsPerSecond }, second: func(s *Second) float64 { return s.OpsPerSecond }},
		{name: MetricCPU, less: true, ofRun: func(r *Run) float64 { return r.CPUMicrosPerOp }},
	}
	for _, name := range commonOperations(a, b) {
		for _, q := range []struct {
			name string
			of   func(loadgen.Latency) int64
		}{
			{"p50", func(l loadgen.Latency) int64 { return l.P50 }},
			{"p99", func(l loadgen.Latency) int64 { return l.P99 }},
		} {
			list = append(list, metric{
				name: name + " " + q.name, less: true,
				ofRun: func(r *Run) float64 { return float64(q.of(r.Trial.Operation(name).Nanos)) },
				second: func(s *Second) float64 {
					i := slices.IndexFunc(s.Operations, func(of loadgen.Operation) bool { return of.Name == name })
					if i < 0 {
						return 0
					}
					return float64(q.of(s.Operations[i].Nanos))
				},
			})
		}
	}
	return list
}

// commonOperations returns the names of the operations of which both cells have some, in the
// order of a.
func commonOperations(a, b *Cell) []string {
	of := func(c *Cell) (names []string) {
		for _, r := range c.Runs {
			for _, o := range r.Trial.Operations {
				if o.Count > 0 && !slices.Contains(names, o.Name) {
					names = append(names, o.Name)
				}
			}
		}
		return names
	}
	also := of(b)
	return slices.DeleteFunc(of(a), func(name string) bool { return !slices.Contains(also, name) })
}

// compare returns false if a side does not have the figure.
func (m *metric) compare(a, b *Cell, mains int) (Difference, bool) {
	single := min(len(a.Runs), len(b.Runs)) < fewRuns
	as, bs := m.samples(a, single), m.samples(b, single)
	if !m.main && (len(as.logs) == 0 || len(bs.logs) == 0) {
		return Difference{}, false
	}
	alpha := 1 - Confidence
	if m.main {
		alpha /= float64(mains)
	}
	middle, half := welch(as.logs, bs.logs, alpha)
	if single {
		half = max(half, math.Log1p(runToRun))
	}
	d := Difference{
		Metric: m.name, Main: m.main, A: as.mean(), B: bs.mean(),
		Ratio: math.Exp(middle), Low: math.Exp(middle - half), High: math.Exp(middle + half),
	}
	switch {
	case as.idle+bs.idle > 0:
		d.judgeIdle(&as, &bs)
	case d.Low <= 1 && d.High >= 1:
	case (d.Ratio < 1) == m.less:
		d.Verdict = Better
	default:
		d.Verdict = Worse
	}
	return d, true
}

// judgeIdle decides by the shares of samples in which a store did nothing.
func (d *Difference) judgeIdle(a, b *samples) {
	d.Idle = fmt.Sprintf("no operation in %d of %d before, in %d of %d after", a.idle, a.count(), b.idle, b.count())
	switch {
	case len(a.logs) == 0 && len(b.logs) == 0:
		d.Ratio, d.Low, d.High = 1, 1, 1
	case len(a.logs) == 0:
		d.Ratio, d.Low, d.High = math.Inf(1), math.Inf(1), math.Inf(1)
	case len(b.logs) == 0:
		d.Ratio, d.Low, d.High = 0, 0, 0
	}
	before, after := float64(a.idle)/float64(a.count()), float64(b.idle)/float64(b.count())
	switch {
	case after > before, after == before && d.High < 1:
		d.Verdict = Worse
	case after < before, d.Low > 1:
		d.Verdict = Better
	}
}

// samples are the values of a figure of a cell.
type samples struct {
	logs []float64
	idle int // samples of a rate that were 0, which have no logarithm
}

func (s *samples) count() int { return len(s.logs) + s.idle }

// mean returns the geometric mean.
func (s *samples) mean() float64 {
	if len(s.logs) == 0 {
		return 0
	}
	return math.Exp(mean(s.logs))
}

// samples returns the figure of runs, or of stretches of runs.
func (m *metric) samples(c *Cell, stretches bool) samples {
	var s samples
	add := func(v float64) {
		switch {
		case v > 0:
			s.logs = append(s.logs, math.Log(v))
		case m.main:
			s.idle++
		}
	}
	for _, r := range c.Runs {
		if !stretches || m.second == nil || len(r.Series) < 2*blocksOfRun {
			add(m.ofRun(r))
			continue
		}
		for n := range blocksOfRun {
			add(m.ofStretch(r.Series[n*len(r.Series)/blocksOfRun : (n+1)*len(r.Series)/blocksOfRun]))
		}
	}
	return s
}

// ofStretch returns the mean over seconds: of a rate, all of them; of a latency, those that
// have it.
func (m *metric) ofStretch(seconds []Second) float64 {
	sum, count := 0.0, 0
	for i := range seconds {
		if v := m.second(&seconds[i]); v > 0 || m.main {
			sum, count = sum+v, count+1
		}
	}
	return sum / float64(max(count, 1))
}
