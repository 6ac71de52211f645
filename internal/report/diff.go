package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/kvd-db/kvd/internal/chart"
	"github.com/kvd-db/kvd/internal/results"
)

// Diff returns the page that compares result b with result a: the rates of all cells as a
// forest plot, every figure as a table, and the tails of both. names are those of the two, for
// people.
func Diff(a, b *results.Result, names [2]string, c *results.Comparison) *Page {
	differences := c.Differences
	p := &Page{Title: names[1] + " against " + names[0], Lead: Verdict(differences), Result: b, Before: a}
	var mains, others []results.Difference
	short := shortNames(a, b)
	for _, d := range differences {
		d.Cell = short[d.Cell]
		if d.Main {
			mains = append(mains, d)
		} else {
			others = append(others, d)
		}
	}
	note := fmt.Sprintf("In at most %s of comparisons of equal programs any figure is called better or worse: Welch's statistic, corrected by Holm's procedure, "+
		"at the last level of which the intervals are drawn. A difference within the least that counts, or within the spread of the runs of either side, gets no verdict. Arrows: the interval is wider than the picture. A point without an interval: a side has fewer than %d runs, which say nothing of how much runs differ.",
		chart.Percent(results.FalseAlarms), results.FewestRuns)
	notes := append(Note(b, nil), note)
	p.Sections = []Section{
		{Title: "Rates", Figures: []*chart.Figure{forest("Operations/s, relative to "+names[0], mains, notes)}, Tables: []*Table{differenceTable(mains)}},
	}
	if mains[0].Cell == "" {
		p.Sections[0].Text = []string{differences[0].Cell}
	}
	if len(others) > 0 {
		p.Sections = append(p.Sections, Section{Title: "Latencies and cost", Figures: []*chart.Figure{forest("Relative to "+names[0]+"; less is better", others, notes)}, Tables: []*Table{differenceTable(others)}})
	}
	if tails := diffTails(a, b, names, c); len(tails.Figures) > 0 {
		p.Sections = append(p.Sections, tails)
	}
	if len(c.Unanswered) > 0 {
		t := &Table{Head: []string{"cell", "before", "after"}, Caption: "Shares of the operations that were due, the means of the runs."}
		for _, u := range c.Unanswered {
			t.Rows = append(t.Rows, []Entry{Words(cmp.Or(short[u.Cell], "all")), Words(chart.Percent(rounded(u.A))), Words(chart.Percent(rounded(u.B)))})
		}
		p.Sections = append(p.Sections, Section{Title: "Refused or never begun", Tables: []*Table{t}})
		p.Lead += fmt.Sprintf(" In %s, operations were refused or never began.", Plural(len(c.Unanswered), "combination"))
	}
	if len(c.Settings) > 0 {
		t := &Table{Head: []string{"setting of the store", "before", "after"}, Caption: "The two were measured with different settings; a difference may come from these."}
		for _, s := range c.Settings {
			t.Rows = append(t.Rows, []Entry{Words(s.Name), Words(s.A), Words(s.B)})
		}
		p.Sections = append(p.Sections, Section{Title: "Settings that differ", Tables: []*Table{t}})
		p.Lead += fmt.Sprintf(" The stores had other settings: %s.", settingNames(c.Settings))
	}
	if n := len(c.Apart); n > 0 {
		t := &Table{Head: []string{"not compared", "because"}, Prose: true}
		for _, apart := range c.Apart {
			t.Rows = append(t.Rows, []Entry{Words(apart.Cell), Words(apart.Why)})
		}
		p.Sections = append(p.Sections, Section{Title: "Not compared", Tables: []*Table{t}})
		p.Lead += fmt.Sprintf(" %s not compared.", Plural(n, "combination"))
	}
	if other := results.Machines(a, b); len(other) > 0 {
		p.Lead += fmt.Sprintf(" But the two were measured on different machines: another %s.", settingNames(other))
	}
	if a.Scale != b.Scale {
		p.Lead += fmt.Sprintf(" But the two were measured at different scales: %v and %v.", a.Scale, b.Scale)
	}
	return p
}

// shortNames returns what tells the cells of two results apart, by their names: their
// parameters without those that all cells share.
func shortNames(a, b *results.Result) map[string]string {
	all := &results.Result{Cells: slices.Concat(a.Cells, b.Cells)}
	short := make(map[string]string)
	if len(all.Cells) == 0 {
		return short
	}
	names := varying(all)
	for _, c := range all.Cells {
		some := results.Cell{Params: slices.DeleteFunc(slices.Clone(c.Params), func(p results.Param) bool { return !slices.Contains(names, p.Name) })}
		short[c.Name()] = some.Name()
	}
	return short
}

func settingNames(settings []results.Setting) string {
	var names []string
	for _, s := range settings {
		if !slices.Contains(names, s.Name) {
			names = append(names, s.Name)
		}
	}
	return strings.Join(names, ", ")
}

// mostTails bounds the figures of tails: with more cells the page is for rates.
const mostTails = 6

// diffTails shows the latency at each percentile before and after, a figure for each cell that
// was compared; none if there are many.
func diffTails(a, b *results.Result, names [2]string, c *results.Comparison) Section {
	s := Section{Title: "Tails"}
	for _, d := range c.Differences {
		if !d.Main {
			continue
		}
		ca, cb := cellNamed(a, d.Cell), cellNamed(b, d.Cell)
		if ca == nil || cb == nil {
			continue
		}
		f := &chart.Figure{
			Title: "Latency by percentile: " + d.Cell, X: chart.Axis{Label: "percentile", Kind: chart.Tail},
			Note: append(Note(b, cb), "The median run of each."),
		}
		panel := chart.Panel{Y: chart.Axis{Label: "latency", Kind: chart.Log10, Format: chart.Nanos}}
		for side, run := range []*results.Run{ca.MedianRun(), cb.MedianRun()} {
			for n := range run.Latencies {
				line := Tail(&run.Latencies[n], 2*n+side)
				line.Name += ", " + names[side]
				panel.Marks = append(panel.Marks, line)
			}
		}
		f.Panels = []chart.Panel{panel}
		s.Figures = append(s.Figures, f)
	}
	if len(s.Figures) > mostTails {
		s.Figures = nil
	}
	return s
}

// cellNamed returns the measured cell of a name; nil if there is none.
func cellNamed(r *results.Result, name string) *results.Cell {
	i := slices.IndexFunc(r.Cells, func(c *results.Cell) bool { return len(c.Runs) > 0 && c.Name() == name })
	if i < 0 {
		return nil
	}
	return r.Cells[i]
}

// Verdict says in a sentence what differs.
func Verdict(differences []results.Difference) string {
	count := map[results.Verdict]int{}
	worst, best := results.Difference{Ratio: math.Inf(1)}, results.Difference{}
	mains := 0
	for _, d := range differences {
		if !d.Main {
			continue
		}
		mains++
		count[d.Verdict]++
		if d.Verdict == results.Worse && d.Ratio <= worst.Ratio {
			worst = d
		}
		if d.Verdict == results.Better && d.Ratio > best.Ratio {
			best = d
		}
	}
	var parts []string
	if n := count[results.Worse]; n > 0 {
		parts = append(parts, fmt.Sprintf("%d of %s worse, most %s (%s)", n, Plural(mains, "rate"), worst.Cell, signed(worst.Ratio)))
	}
	if n := count[results.Better]; n > 0 {
		parts = append(parts, fmt.Sprintf("%d of %s better, most %s (%s)", n, Plural(mains, "rate"), best.Cell, signed(best.Ratio)))
	}
	if n := count[results.Same]; n > 0 && len(parts) == 0 {
		parts = append(parts, fmt.Sprintf("No difference in %s beyond the spread of the runs", Plural(n, "rate")))
	}
	if n := count[results.Unknown]; n > 0 {
		parts = append(parts, fmt.Sprintf("No verdict on %s: each side needs at least %d runs", Plural(n, "rate"), results.FewestRuns))
	}
	return strings.Join(parts, "; ") + "." + others(differences)
}

// others says how many of the latencies and costs are worse. In an open loop these may show
// what rates do not.
func others(differences []results.Difference) string {
	all, worse := 0, 0
	most := results.Difference{}
	for _, d := range differences {
		if d.Main {
			continue
		}
		all++
		if d.Verdict == results.Worse {
			worse++
			if d.Ratio > most.Ratio {
				most = d
			}
		}
	}
	if worse == 0 {
		return ""
	}
	return fmt.Sprintf(" %d of %d latencies and costs worse, most %s (%s).", worse, all, most.Metric, signed(most.Ratio))
}

// signed writes a ratio as a change in percent.
func signed(ratio float64) string {
	return fmt.Sprintf("%+.1f %%", math.Round(1000*(ratio-1))/10+0) // never -0.0
}

// forest draws the differences as intervals. Better is green, worse is orange.
func forest(title string, differences []results.Difference, notes []string) *chart.Figure {
	zero := 0.0
	rows := &chart.Intervals{}
	y := chart.Axis{Kind: chart.Categories}
	low, high := forestRange(differences)
	for i := len(differences) - 1; i >= 0; i-- { // the first row is on top
		d := differences[i]
		name := cmp.Or(d.Cell, d.Metric)
		if !d.Main && d.Cell != "" {
			name = d.Cell + ", " + d.Metric
		}
		series := map[results.Verdict]int{results.Same: 7, results.Unknown: 7, results.Better: 2, results.Worse: 1}[d.Verdict]
		rows.Rows = append(rows.Rows, chart.Interval{
			Row: len(y.Names), Low: max(d.Low-1, low), Mid: min(max(d.Ratio-1, low), high), High: min(d.High-1, high),
			LowCut: d.Low-1 < low, HighCut: d.High-1 > high, Series: series,
		})
		y.Names = append(y.Names, name)
	}
	return &chart.Figure{
		Title: title, X: chart.Axis{Label: "difference", Format: chart.Percent}, Note: notes,
		Panels: []chart.Panel{{Y: y, Height: float64(20*len(differences) + 20), Marks: []chart.Mark{&chart.Rule{X: &zero}, rows}}},
	}
}

// mostInterval is the largest difference that is shown: ten times as much more. The intervals of
// few runs may end far beyond.
const mostInterval = 10

// forestRange returns the range of differences that a forest plot shows. With few runs some
// intervals are so wide that nothing could be told of the others.
func forestRange(differences []results.Difference) (low, high float64) {
	const least = 0.2
	far := 0.0
	for _, d := range differences {
		far = max(far, math.Abs(d.Ratio-1)) // may be infinite
	}
	far = min(max(2*far, least), mostInterval)
	return max(-far, -1), far
}

// verdictText is the verdict of a difference, and the samples in which a store did nothing.
func verdictText(d *results.Difference) string {
	if d.Idle == "" {
		return d.Verdict.String()
	}
	return d.Verdict.String() + " (" + d.Idle + ")"
}

// intervalText is the interval of a difference, if it is known.
func intervalText(d *results.Difference) string {
	low := strings.TrimSuffix(signed(d.Low), " %")
	switch {
	case d.Values < results.FewestRuns:
		return "not known"
	case d.High > 1+mostInterval:
		return low + " to over " + signed(1+mostInterval)
	}
	return low + " to " + signed(d.High)
}

// spreadText is the spread of the runs, if it is known.
func spreadText(d *results.Difference) string {
	if d.Values < 2 {
		return "not known"
	}
	return chart.Percent(d.Spread)
}

// differenceTable has a row for each difference. If there is one cell, it has no name.
func differenceTable(differences []results.Difference) *Table {
	t := &Table{Head: []string{"figure", "verdict", "difference", "interval", "before", "after", "spread"}}
	named := slices.ContainsFunc(differences, func(d results.Difference) bool { return d.Cell != "" })
	if named {
		t.Head = append([]string{"cell"}, t.Head...)
	}
	for _, d := range differences {
		format := chart.Number
		switch {
		case d.Metric == results.MetricCPU || d.Metric == results.MetricServerCPU:
			format = func(micros float64) string { return chart.Nanos(1000 * micros) }
		case !d.Main:
			format = chart.Nanos
		}
		row := []Entry{
			Words(d.Metric), Words(verdictText(&d)), Words(signed(d.Ratio)), Words(intervalText(&d)),
			Words(format(d.A)), Words(format(d.B)), Words(spreadText(&d)),
		}
		if named {
			row = append([]Entry{Words(d.Cell)}, row...)
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}
