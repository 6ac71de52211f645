package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/kvd-db/kvd/internal/chart"
	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/results"
)

func decimal(v float64) string { return strconv.FormatFloat(v, 'f', 2, 64) }

// facts describes the machine and the program.
func facts(r *results.Result) [][2]string {
	e := r.Environment
	return [][2]string{
		{"command", strings.Join(r.Command, " ")},
		{"began", r.Began},
		{"commit", cmp.Or(e.Commit, "not known")},
		{"machine", fmt.Sprintf("%s, %d processors used, %s of memory", e.CPU, e.GOMAXPROCS, chart.Bytes(float64(e.MemoryBytes)))},
		{"system", e.OS + ", Linux " + e.Kernel + ", " + e.FileSystem},
		{"compiler", e.Go},
		{"sync of the disk", syncTime(e.SyncNanos)},
	}
}

func syncTime(nanos int64) string {
	if nanos == 0 {
		return "not measured"
	}
	return chart.Nanos(float64(nanos)) + ", the median of a few pages"
}

// Note returns the footnote of the figures of a cell, or of all cells if c is nil.
func Note(r *results.Result, c *results.Cell) []string {
	runs, seconds := 0, 0.0
	for _, cell := range r.Cells {
		if c == nil || cell == c {
			runs = max(runs, len(cell.Runs))
			for _, run := range cell.Runs {
				seconds = max(seconds, run.Seconds)
			}
		}
	}
	switch {
	case seconds >= 10:
		seconds = math.Round(seconds)
	case seconds >= 1:
		seconds = math.Round(10*seconds) / 10
	}
	commit, dirty := strings.CutSuffix(r.Environment.Commit, "+dirty")
	commit = cmp.Or(commit[:min(len(commit), 12)], "not known")
	if dirty {
		commit += "+dirty"
	}
	what := r.Experiment
	if c != nil {
		what += ", " + c.Name()
	}
	return []string{fmt.Sprintf("%s %s; %s; %s of %s; commit %s; %s, %d processors.", cmp.Or(r.Program, "kvbench"), what, loop(r, c), Plural(runs, "run"), chart.Seconds(seconds), commit, r.Environment.CPU, r.Environment.GOMAXPROCS)}
}

// loop says which kinds of loops the cell has, or all cells if c is nil.
func loop(r *results.Result, c *results.Cell) string {
	open, closed := false, false
	for _, cell := range r.Cells {
		for _, run := range cell.Runs {
			if c == nil || cell == c {
				open, closed = open || run.OfferedPerSecond > 0, closed || run.OfferedPerSecond == 0
			}
		}
	}
	switch {
	case open && closed:
		return "open and closed loops"
	case open:
		return "open loop"
	}
	return "closed loop"
}

// Plural counts things: 1 run, 2 runs.
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Cells returns a section for each cell: its operations, throughput and files over time,
// latencies over time, and their percentiles.
func Cells(r *results.Result) []Section {
	var sections []Section
	for _, c := range r.Cells {
		run := c.MedianRun()
		if run == nil {
			continue
		}
		s := Section{Title: c.Name(), Tables: []*Table{Operations(c)}}
		if len(run.Series) > 1 {
			s.Figures = append(s.Figures, OverTime(r, c, run), HeatMap(r, c, run))
		}
		if f := TreeOverTime(r, c, run); f != nil {
			s.Figures = append(s.Figures, f)
		}
		if f := ProcessorsOverTime(r, c, run); f != nil {
			s.Figures = append(s.Figures, f)
		}
		s.Figures = append(s.Figures, Tails(r, c, run))
		for i := range run.Stages {
			s.Figures = append(s.Figures, WhereTimeGoes(r, c, &run.Stages[i]))
		}
		if t := Store(c, run); t != nil {
			s.Tables = append(s.Tables, t)
		}
		sections = append(sections, s)
	}
	return sections
}

// Unanswered says which share of the operations that were due were refused or never began, in the
// worst run of a cell; "" if hardly any.
func Unanswered(c *results.Cell) string {
	share := 0.0
	for _, run := range c.Runs {
		share = max(share, run.Unanswered())
	}
	if share <= loadgen.MostUnanswered {
		return ""
	}
	return chart.Percent(rounded(share)) + " of the operations that were due were refused or never began"
}

// Operations is the table of the operations of a cell's median run. Of an open loop it also has
// those that the store refused, and those that never began, with how long they had waited.
func Operations(c *results.Cell) *Table {
	t := &Table{Head: []string{"operation", "count", "ops/s", "mean", "p50", "p90", "p99", "p99.9", "p99.99", "max"}}
	run := c.MedianRun()
	if run.Refused > 0 {
		t.Head = slices.Insert(t.Head, 2, "refused")
	}
	if n := len(c.Runs); n > 1 {
		least, median, most := c.Rates()
		t.Caption = fmt.Sprintf("The median of %d runs, which had %s to %s operations/s, median %s.", n, chart.Number(least), chart.Number(most), chart.Number(median))
	}
	operations := run.Trial.Operations
	if run.Missed != nil && run.Missed.Count > 0 {
		operations = append(slices.Clone(operations), loadgen.Operation{Name: "never began, had waited", Kind: *run.Missed})
	}
	for _, o := range operations {
		row := []Entry{Words(o.Name), Words(chart.Number(float64(o.Count))), Words(chart.Number(o.OpsPerSecond))}
		if run.Refused > 0 {
			row = slices.Insert(row, 2, Words(chart.Number(float64(o.Refused))))
		}
		for _, n := range []int64{o.MeanNanos, o.Nanos.P50, o.Nanos.P90, o.Nanos.P99, o.Nanos.P999, o.Nanos.P9999, o.Nanos.Max} {
			text := "-" // all were refused
			if o.Count > 0 {
				text = chart.Nanos(float64(n))
			}
			row = append(row, Words(text))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// TimeAxis is the axis of figures of seconds, from the beginning of the measurement.
func TimeAxis() chart.Axis {
	zero := 0.0
	return chart.Axis{Label: "time", Format: chart.Seconds, Min: &zero}
}

// RateOverTime is the rate of each second of a run, which has at least one: at its end, and that
// of the first one also at its beginning. Of a long run it is that of periods.
func RateOverTime(run *results.Run) *chart.Line {
	run, _ = condensed(run, mostPoints)
	line := &chart.Line{X: []float64{0}, Y: []float64{run.Series[0].OpsPerSecond}, Plain: true}
	for i := range run.Series {
		line.X, line.Y = append(line.X, run.Series[i].At), append(line.Y, run.Series[i].OpsPerSecond)
	}
	return line
}

// stallShare is the share of the median rate below which a second counts as a stall.
const stallShare = 1.0 / 3

// OverTime is throughput over time, with stalls shaded, above the bytes on disk.
func OverTime(r *results.Result, c *results.Cell, run *results.Run) *chart.Figure {
	line := RateOverTime(run)
	short, seconds := condensed(run, mostPoints)
	f := &chart.Figure{Title: "Throughput over time", X: TimeAxis(), Note: append(Note(r, c), condensedNote(seconds, "point")...)}
	var marks []chart.Mark
	slowest, fastest := extremeRates(run, seconds)
	limit := loadgen.Median(line.Y[1:]) * stallShare
	if seconds > 1 {
		line.Low, line.High = append(slowest[:1:1], slowest...), append(fastest[:1:1], fastest...)
		f.Note = append(f.Note, "Band: from the slowest of these seconds to the fastest.")
	}
	for i, v := range slowest {
		if v < limit {
			marks = append(marks, &chart.Shade{From: line.X[i], To: line.X[i+1], Name: "under a third of the median rate"})
		}
	}
	marks = append(marks, line)
	f.Panels = append(f.Panels, chart.Panel{Y: chart.Axis{Label: "operations/s"}, Marks: marks})
	if files := filesOverTime(short); len(files.X) > 1 {
		f.Title = "Throughput and files over time"
		if meanings := fileMeanings(files); meanings != "" {
			f.Note = append(f.Note, meanings)
		}
		f.Panels = append(f.Panels, chart.Panel{
			Y: chart.Axis{Label: "bytes on disk", Format: chart.Bytes, Binary: true}, Height: 110, Marks: []chart.Mark{files},
		})
	}
	return f
}

// extremeRates returns the lowest and the highest rate of the seconds of each period.
func extremeRates(run *results.Run, seconds int) (slowest, fastest []float64) {
	for group := range slices.Chunk(run.Series, seconds) {
		low, high := group[0].OpsPerSecond, group[0].OpsPerSecond
		for i := range group {
			low, high = min(low, group[i].OpsPerSecond), max(high, group[i].OpsPerSecond)
		}
		slowest, fastest = append(slowest, low), append(fastest, high)
	}
	return slowest, fastest
}

// HeatMap shows how many operations had which latency in each second, or each period of a long
// run.
func HeatMap(r *results.Result, c *results.Cell, run *results.Run) *chart.Figure {
	seconds := periodOf(run, heatColumns)
	first, last := uint64(math.MaxUint64), uint64(0)
	for i := range run.Series {
		for _, p := range run.Series[i].Heat {
			first, last = min(first, p[0]), max(last, p[0])
		}
	}
	heat := &chart.Heat{Of: "operations", X: []float64{0}}
	for row := first; row <= last+1 && first <= last; row++ {
		heat.Y = append(heat.Y, results.HeatRow(int(row)))
	}
	for group := range slices.Chunk(run.Series, seconds) {
		heat.X = append(heat.X, group[len(group)-1].At)
		column := make([]float64, max(len(heat.Y)-1, 0))
		for i := range group {
			for _, p := range group[i].Heat {
				column[p[0]-first] += float64(p[1])
			}
		}
		heat.Count = append(heat.Count, column)
	}
	return &chart.Figure{
		Title: "Latencies over time", X: TimeAxis(), Note: append(Note(r, c), condensedNote(seconds, "column")...),
		Panels: []chart.Panel{{Y: chart.Axis{Label: "latency", Kind: chart.Log10, Format: chart.Nanos}, Marks: []chart.Mark{heat}}},
	}
}

// Tails shows the latency at each percentile, by operation: of the median run, with a band of
// all runs.
func Tails(r *results.Result, c *results.Cell, run *results.Run) *chart.Figure {
	f := &chart.Figure{Title: "Latency by percentile", X: chart.Axis{Label: "percentile", Kind: chart.Tail}, Note: Note(r, c)}
	panel := chart.Panel{Y: chart.Axis{Label: "latency", Kind: chart.Log10, Format: chart.Nanos}}
	for n := range run.Latencies {
		line := Tail(&run.Latencies[n], n)
		if len(c.Runs) > 1 {
			addSpread(line, c.Runs)
		}
		panel.Marks = append(panel.Marks, line)
	}
	if len(c.Runs) > 1 {
		f.Note = append(f.Note, "Lines: the run with the median rate; bands: the least and the most of the runs.")
	}
	f.Panels = []chart.Panel{panel}
	return f
}

// addSpread adds the band of some runs to the curve of an operation.
func addSpread(line *chart.Line, runs []*results.Run) {
	line.Low, line.High = slices.Clone(line.Y), slices.Clone(line.Y)
	for _, run := range runs {
		for n := range run.Latencies {
			if run.Latencies[n].Operation != line.Name {
				continue
			}
			for i, q := range line.X {
				v := max(float64(run.Latencies[n].Quantile(q)), 1)
				line.Low[i], line.High[i] = min(line.Low[i], v), max(line.High[i], v)
			}
		}
	}
}

// Tail returns the curve of one operation, up to the percentile of its last but one
// operation.
func Tail(l *results.Latencies, series int) *chart.Line {
	line := &chart.Line{Name: l.Operation, Series: series, Plain: true}
	var total uint64
	for _, b := range l.Buckets {
		total += b[1]
	}
	last := 1 - 1/float64(total+1)
	for step := 0; ; step++ {
		q := 1 - math.Pow(10, -float64(step)/10)
		end := q >= last
		q = min(q, last)
		line.X, line.Y = append(line.X, q), append(line.Y, max(float64(l.Quantile(q)), 1))
		if end {
			return line
		}
	}
}
