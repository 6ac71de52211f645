package experiment

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/kvd-db/kvd/internal/chart"
	"github.com/kvd-db/kvd/internal/report"
	"github.com/kvd-db/kvd/internal/results"
	"github.com/kvd-db/kvd/internal/workload"
)

// Sweep offers a store more and more operations a second, in an open loop, and finds the
// load at which latency begins to rise: the knee.
type Sweep struct {
	Rates []uint64 // to offer; nil: found from the rate of a closed loop
	Runs  int      // of each rate

	Params []results.Param // of every cell, besides the rate
	// Measure offers a rate for a while. A rate of 0 is a closed loop.
	Measure func(ctx context.Context, rate uint64, cell *results.Cell) (*results.Run, error)

	closed float64 // rate of the closed loop; 0: the rates are given
}

const paramOffered = "offered"

// The rule for the knee.
const (
	kneeDone  = 0.98 // share of the offered operations that were done
	kneeTimes = 10.0 // how much longer than the shortest p99 of all loads a p99 may be
)

// The search for the rates.
const (
	sweepStep   = 0.1 // of the rate of a closed loop
	sweepBeyond = 2   // loads to measure above the knee
	sweepMost   = 30  // loads in all
	sweepRefine = 2   // loads to insert below the first one above the knee
)

// measureClosed is the measure of the runs of a sweep that found its rates: the rate of the
// closed loop, from which they were found.
const measureClosed = "closed loop operations/s"

// Run measures the rates in ascending order, then again until each has its runs, and adds
// the cells to r. What was measured before an error or the end of ctx is in r. Runs that r has
// from an earlier sweep are not measured again.
func (s *Sweep) Run(ctx context.Context, r *results.Result) error {
	rates := s.Rates
	if rates == nil {
		var err error
		if rates, err = s.search(ctx, r); err != nil {
			return err
		}
	}
	slices.Sort(rates)
	rates = slices.Compact(rates)
	for run := range s.Runs {
		for _, rate := range rates {
			if err := s.offer(ctx, r, rate, run+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// offer measures one rate unless it has its runs already.
func (s *Sweep) offer(ctx context.Context, r *results.Result, rate uint64, runs int) error {
	cell := sweepCell(r, rate)
	isNew := cell == nil
	if isNew {
		cell = &results.Cell{Params: append(slices.Clone(s.Params), results.Param{Name: paramOffered, Value: strconv.FormatUint(rate, 10)})}
	}
	if len(cell.Runs) >= runs {
		return nil
	}
	run, err := s.Measure(ctx, rate, cell)
	if run != nil {
		if s.closed > 0 {
			run.Measures = map[string]float64{measureClosed: s.closed}
		}
		if cell.Runs = append(cell.Runs, run); isNew {
			r.Cells = append(r.Cells, cell)
			slices.SortStableFunc(r.Cells, func(a, b *results.Cell) int { return int(offered(a)) - int(offered(b)) })
		}
	}
	return errors.Join(err, ctx.Err())
}

// Complete reports whether r has all runs of the sweep.
func (s *Sweep) Complete(ctx context.Context, r *results.Result) bool {
	missing := errors.New("a run is missing")
	dry := *s
	dry.Measure = func(context.Context, uint64, *results.Cell) (*results.Run, error) { return nil, missing }
	return dry.Run(ctx, r) == nil
}

// measureClosedLoop returns the rate of a closed loop: that of an earlier sweep in r, or a new
// one.
func (s *Sweep) measureClosedLoop(ctx context.Context, r *results.Result) (float64, error) {
	for _, c := range r.Cells {
		for _, run := range c.Runs {
			if rate := run.Measures[measureClosed]; rate > 0 {
				return rate, nil
			}
		}
	}
	run, err := s.Measure(ctx, 0, nil)
	if err = errors.Join(err, ctx.Err()); err != nil {
		return 0, err
	}
	if run.OpsPerSecond < 1 {
		return 0, errors.New("the store did less than one operation a second, so there is no load to vary")
	}
	return run.OpsPerSecond, nil
}

// searched returns the first runs of some rates, from which the search goes on.
func searched(r *results.Result, rates []uint64) *curve {
	some := &results.Result{Objectives: r.Objectives}
	for _, c := range r.Cells {
		if len(c.Runs) > 0 && slices.Contains(rates, uint64(offered(c))) {
			some.Cells = append(some.Cells, &results.Cell{Params: c.Params, Runs: c.Runs[:1]})
		}
	}
	return newCurve(some)
}

// search measures a closed loop, then tenths of its rate, until two loads were too much,
// and loads between the highest that was not and the lowest that was.
func (s *Sweep) search(ctx context.Context, r *results.Result) ([]uint64, error) {
	var err error
	if s.closed, err = s.measureClosedLoop(ctx, r); err != nil {
		return nil, err
	}
	var rates []uint64
	add := func(rate float64) error {
		rates = append(rates, roundRate(rate))
		return s.offer(ctx, r, rates[len(rates)-1], 1)
	}
	for n := 1; len(rates) < sweepMost-sweepRefine; n++ {
		share := sweepStep * float64(n)
		if n > 10 {
			share = math.Pow(1.2, float64(n-10)) // the closed loop was not the limit
		}
		if err := add(share * s.closed); err != nil {
			return nil, err
		}
		if c := searched(r, rates); len(c.loads)-1-c.knee >= sweepBeyond {
			break
		}
	}
	c := searched(r, rates)
	low := 0.0
	if c.knee >= 0 {
		low = c.loads[c.knee]
	}
	if c.knee+1 < len(c.loads) {
		high := c.loads[c.knee+1]
		for n := range sweepRefine {
			if err := add(low + (high-low)*float64(n+1)/(sweepRefine+1)); err != nil {
				return nil, err
			}
		}
	}
	return rates, nil
}

// roundRate keeps three digits.
func roundRate(rate float64) uint64 {
	unit := math.Pow(10, max(math.Floor(math.Log10(max(rate, 1)))-2, 0))
	return uint64(max(math.Round(rate/unit)*unit, 1))
}

func offered(c *results.Cell) float64 {
	n, err := strconv.ParseUint(c.Param(paramOffered), 10, 64)
	if err != nil {
		return 0
	}
	return float64(n)
}

func sweepCell(r *results.Result, rate uint64) *results.Cell {
	i := slices.IndexFunc(r.Cells, func(c *results.Cell) bool { return c.Param(paramOffered) == strconv.FormatUint(rate, 10) })
	if i < 0 {
		return nil
	}
	return r.Cells[i]
}

// curve is latency by load, of the median runs.
type curve struct {
	result     *results.Result
	objectives []results.SLO
	cells      []*results.Cell
	loads      []float64
	runs       []*results.Run
	knee       int   // the highest load that was not too much; -1: none
	unknown    error // the objectives cannot be parsed: another version wrote them
}

func newCurve(r *results.Result) *curve {
	c := &curve{result: r, knee: -1}
	if r.Objectives != "" {
		var err error
		if c.objectives, err = results.ParseSLOs(r.Objectives, workload.Operations()); err != nil {
			c.unknown = err
		}
	}
	for _, measured := range r.Cells {
		cell := whole(measured)
		if run := cell.MedianRun(); run != nil && offered(cell) > 0 {
			c.cells, c.loads, c.runs = append(c.cells, cell), append(c.loads, offered(cell)), append(c.runs, run)
		}
	}
	shortest := math.Inf(1)
	for _, run := range c.runs {
		if run.All.P99 > 0 {
			shortest = min(shortest, float64(run.All.P99))
		}
	}
	for i, cell := range c.cells {
		tooMuch := func(run *results.Run) bool { return !c.bears(run, c.loads[i], shortest) }
		if !slices.ContainsFunc(cell.Runs, tooMuch) {
			c.knee = i
		}
	}
	return c
}

// whole returns a cell without the runs that were interrupted or failed: what a store bears for a
// moment says nothing.
func whole(c *results.Cell) *results.Cell {
	short := *c
	short.Runs = slices.DeleteFunc(slices.Clone(c.Runs), func(run *results.Run) bool { return run.Interrupted || run.Error != "" })
	return &short
}

// HasKnee reports whether the store bore any load of a sweep.
func HasKnee(r *results.Result) bool { return newCurve(r).knee >= 0 }

// bears reports whether the store bore a load in a run.
func (c *curve) bears(run *results.Run, load, shortest float64) bool {
	if missed, _, refused := shortfall(run, load); missed+refused > 1-kneeDone {
		return false
	}
	if len(c.objectives) == 0 {
		p99 := run.All.P99
		if run.AllDue != nil {
			p99 = run.AllDue.P99
		}
		return float64(p99) <= kneeTimes*shortest
	}
	return !slices.ContainsFunc(c.objectives, func(s results.SLO) bool { return !s.Met(run.Trial) })
}

// rule says what the knee is.
func (c *curve) rule() string {
	latency := fmt.Sprintf("with a p99 of at most %s the shortest p99 of all loads", chart.Times(kneeTimes))
	if len(c.objectives) > 0 {
		latency = "within the objectives " + c.result.Objectives
	}
	return fmt.Sprintf("The knee is the highest load that was not too much: in each run at least %s of the operations that were due were done, %s.",
		chart.Percent(kneeDone), latency)
}

// SweepPage returns the page of a sweep.
func SweepPage(r *results.Result) *report.Page {
	c := newCurve(r)
	return &report.Page{Title: "Latency by load", Lead: c.lead(), Result: r, Sections: []report.Section{c.section()}}
}

func (c *curve) lead() string {
	switch {
	case c.unknown != nil:
		return "The objectives of this sweep are not known to this version: " + c.unknown.Error()
	case len(c.loads) == 0:
		return "Nothing was measured."
	case c.knee < 0:
		return fmt.Sprintf("Every load was too much, from %s operations/s on.", chart.Number(c.loads[0]))
	}
	run := c.runs[c.knee]
	text := fmt.Sprintf("The knee is at %s operations/s, with a p99 of %s", chart.Number(c.loads[c.knee]), chart.Nanos(float64(run.All.P99)))
	if c.knee == len(c.loads)-1 {
		return text + "; no load was too much, so offer more to find the limit."
	}
	next := c.runs[c.knee+1]
	return fmt.Sprintf("%s. Of %s operations/s it did %s, with a p99 of %s.", text, chart.Number(c.loads[c.knee+1]), chart.Number(next.OpsPerSecond), chart.Nanos(float64(next.All.P99)))
}

func (c *curve) section() report.Section {
	s := report.Section{Title: "Load and latency", Text: []string{c.rule(), "Latencies count from when an operation was due (open loop), so they contain the time in which all threads were waiting."}}
	if len(c.loads) > 0 {
		s.Figures = []*chart.Figure{c.figure()}
		if f := c.anatomy(); f != nil {
			s.Figures = append(s.Figures, f)
		}
	}
	s.Tables = []*report.Table{c.table()}
	return s
}

func (c *curve) figure() *chart.Figure {
	latency := chart.Panel{Y: chart.Axis{Label: "latency", Kind: chart.Log10, Format: chart.Nanos}, Height: 260}
	zero := 0.0
	for i, q := range []struct {
		name string
		of   func(*results.Run) int64
	}{
		{"p50", func(r *results.Run) int64 { return r.All.P50 }},
		{"p99", func(r *results.Run) int64 { return r.All.P99 }},
		{"p99.9", func(r *results.Run) int64 { return r.All.P999 }},
	} {
		line := &chart.Line{Name: q.name, Series: i}
		for n, run := range c.runs {
			value := float64(max(q.of(run), 1))
			low, high := value, value
			for _, other := range c.cells[n].Runs {
				low, high = min(low, float64(max(q.of(other), 1))), max(high, float64(q.of(other)))
			}
			line.X, line.Y = append(line.X, c.loads[n]), append(line.Y, value)
			line.Low, line.High = append(line.Low, low), append(line.High, high)
		}
		latency.Marks = append(latency.Marks, line)
	}
	top := 1.0
	for _, m := range latency.Marks {
		top = max(top, slices.Max(m.(*chart.Line).High))
	}
	top *= 3 // room for the name of the knee
	latency.Y.Max = &top
	strip := chart.Panel{Y: chart.Axis{Label: "share", Format: chart.Percent, Min: &zero}, Height: 70}
	area := &chart.Area{X: c.loads, Layers: []chart.Layer{{Name: "never began", Series: 4}, {Name: "began over 1 ms late", Series: 1}, {Name: "refused", Series: 3}}}
	for n, run := range c.runs {
		missed, late, refused := shortfall(run, c.loads[n])
		area.Layers[0].Y = append(area.Layers[0].Y, missed)
		area.Layers[1].Y = append(area.Layers[1].Y, late)
		area.Layers[2].Y = append(area.Layers[2].Y, refused)
	}
	strip.Marks = []chart.Mark{area}
	if c.knee >= 0 {
		knee := c.loads[c.knee]
		latency.Marks = append(latency.Marks, &chart.Rule{X: &knee, Name: "knee: " + chart.Number(knee) + "/s"})
		strip.Marks = append(strip.Marks, &chart.Rule{X: &knee})
	}
	panels := []chart.Panel{latency, strip}
	if batches := c.batches(); len(batches.Marks) > 0 {
		panels = append(panels, batches)
	}
	return &chart.Figure{
		Title: "Latency by offered load", X: chart.Axis{Label: "offered operations/s"},
		Panels: panels, Note: append(report.Note(c.result, nil), "Bands: the least and the most of the runs."),
	}
}

// batches shows how large the batches of the store were; it has no marks if the store
// cannot tell.
func (c *curve) batches() chart.Panel {
	p := chart.Panel{Y: chart.Axis{Label: "operations"}, Height: 110}
	for i, q := range []struct {
		name string
		of   func(*results.Activity) float64
	}{
		{"writes a micro-batch", func(a *results.Activity) float64 { return a.OpsPerWriteBatch }},
		{"reads a micro-batch", func(a *results.Activity) float64 { return a.OpsPerReadBatch }},
		{"records a log write", func(a *results.Activity) float64 { return a.RecordsPerLogWrite }},
	} {
		line := &chart.Line{Name: q.name, Series: i + 4}
		for n, run := range c.runs {
			if a := run.Counters(); a != nil {
				line.X, line.Y = append(line.X, c.loads[n]), append(line.Y, q.of(a))
			}
		}
		if len(line.X) > 0 {
			p.Marks = append(p.Marks, line)
		}
	}
	return p
}

// shortfall returns shares of the operations that were due: those that never began, those that
// began late, and those refused.
func shortfall(run *results.Run, load float64) (missed, late, refused float64) {
	due := float64(max(run.Due(), 1))
	if run.Missed == nil { // an earlier version did not count them
		due = max(load*run.Seconds, 1)
	}
	refused = float64(run.Refused) / due
	missed = max(1-float64(run.Ops)/due-refused, 0)
	if run.Late != nil {
		late = min(float64(run.Late.Busy+run.Late.Woken)/due, 1-missed)
	}
	return missed, late, refused
}

func (c *curve) table() *report.Table {
	t := &report.Table{
		Head:    []string{"offered/s", "done/s", "p50", "p99", "p99.9", "max", "late", "never began", "refused", "CPU"},
		Caption: "The run of each load with the median rate. late: operations that began over 1 ms after they were due; never began: operations that were due and had not begun at the end; refused: by the store, as it was overloaded; CPU: of all processors, by this process",
	}
	servers := slices.ContainsFunc(c.cells, report.OfServer)
	if servers {
		t.Head = append(t.Head, "server CPU")
		t.Caption += "; server CPU: by the server, of the processors that it may use"
	}
	t.Caption += "."
	share := func(v float64) report.Entry { return report.Words(chart.Percent(math.Round(1000*v) / 1000)) }
	for i, run := range c.runs {
		missed, late, refused := shortfall(run, c.loads[i])
		name := chart.Number(c.loads[i])
		if i == c.knee {
			name += " (knee)"
		}
		row := []report.Entry{report.Words(name), report.Words(chart.Number(run.OpsPerSecond))}
		for _, n := range []int64{run.All.P50, run.All.P99, run.All.P999, run.All.Max} {
			row = append(row, report.Words(chart.Nanos(float64(n))))
		}
		cpu := "-"
		if run.OwnCPU != nil {
			cpu = chart.Percent(math.Round(100**run.OwnCPU) / 100)
		}
		t.Rows = append(t.Rows, append(row, share(late), share(missed), share(refused), report.Words(cpu)))
		if servers {
			t.Rows[i] = append(t.Rows[i], report.ServerCPU(run))
		}
	}
	return t
}

// ParseRates reads "auto", for which it returns nil, or a list of rates.
func ParseRates(text string) ([]uint64, error) {
	if text == "auto" {
		return nil, nil
	}
	var rates []uint64
	for part := range strings.SplitSeq(text, ",") {
		n, err := strconv.ParseUint(strings.TrimSpace(part), 10, 32)
		if err != nil || n == 0 || n > workload.MaxRate {
			return nil, fmt.Errorf("%q: want auto, or operations a second such as 1000,2000,5000", text)
		}
		if slices.Contains(rates, n) {
			return nil, fmt.Errorf("%q: %d is there twice", text, n)
		}
		rates = append(rates, n)
	}
	return rates, nil
}
