package experiment

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/kvd-db/kvd/internal/chart"
	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/report"
	"github.com/kvd-db/kvd/internal/results"
)

// lsmParameters are in the order of the article's tables.
var lsmParameters = []string{paramMix, paramFind, paramThreads, paramThreshold, paramKeySpace}

// lsmTitles are the parameters in titles and sentences.
var lsmTitles = map[string]string{
	paramMix: "mix of operations", paramFind: "find rate", paramThreads: "number of threads",
	paramThreshold: "size of memtables", paramKeySpace: "size of the key space",
}

// lsmUnits are those of parameters whose titles do not tell them.
var lsmUnits = map[string]string{paramThreshold: "entries of a memtable", paramKeySpace: "keys"}

// ranked returns the cells that were measured, the fastest first.
func ranked(r *results.Result) []*results.Cell {
	cells := slices.DeleteFunc(slices.Clone(r.Cells), func(c *results.Cell) bool { return len(c.Runs) == 0 })
	slices.SortStableFunc(cells, func(a, b *results.Cell) int { return cmp.Compare(medianRate(b), medianRate(a)) })
	return cells
}

// ratesOf returns the rates of the cells with a value of a parameter.
func ratesOf(r *results.Result, name, value string) (rates []float64) {
	for _, c := range r.Cells {
		if len(c.Runs) > 0 && c.Param(name) == value {
			rates = append(rates, medianRate(c))
		}
	}
	slices.Sort(rates)
	return rates
}

func lsmLead(r *results.Result) string {
	cells := ranked(r)
	if len(cells) == 0 {
		return "Throughput by the parameters of the workload and of the tree."
	}
	name, factor := "", 0.0
	for _, p := range lsmParameters {
		if equalAtScale(r, p) > 0 {
			continue
		}
		least, most := math.Inf(1), 0.0
		for _, v := range valuesOf(r, p) {
			m := loadgen.Median(ratesOf(r, p, v))
			least, most = min(least, m), max(most, m)
		}
		if most/least > factor {
			name, factor = p, most/least
		}
	}
	return fmt.Sprintf("%s operations/s at best, %s at worst, %s in the median of %s. The parameter with the largest effect on the median is the %s: %s.",
		chart.Number(medianRate(cells[0])), chart.Number(medianRate(cells[len(cells)-1])), chart.Number(medianRate(cells[len(cells)/2])),
		report.Plural(len(cells), "combination"), lsmTitles[name], chart.Times(factor))
}

func lsmSections(r *results.Result) []report.Section {
	cells := ranked(r)
	if len(cells) == 0 {
		return nil
	}
	const few = 5
	sections := []report.Section{
		{Title: "The fastest", Text: actualSizes(r), Tables: []*report.Table{
			rankTable(cells[:min(few, len(cells))], "The fastest combinations."), publishedRanks(lsmBest, "The fastest of the article, in an hour each on 8 processors."),
		}},
		{Title: "The slowest", Tables: []*report.Table{
			rankTable(cells[max(len(cells)-few, 0):], "The slowest combinations."), publishedRanks(lsmWorst, "The slowest of the article."),
		}},
	}
	boxes := report.Section{Title: "By parameter", Text: []string{
		"Each box has the rates of all combinations with one value of a parameter, from the first to the third quartile, with a line at the median. Whiskers reach from the 1st to the 99th percentile, a tick marks the maximum. " +
			"The other parameters vary within a box.",
	}}
	medians := &report.Table{
		Head:    []string{"parameter", "value", "combinations", "least", "median", "most", "article: median"},
		Caption: "Operations/s. The article's medians are of its 154 recorded runs.",
	}
	for _, p := range lsmParameters {
		values := valuesOf(r, p)
		switch size := equalAtScale(r, p); {
		case len(values) < 2:
		case size > 0:
			boxes.Text = append(boxes.Text, fmt.Sprintf("There is no figure by %s: at this scale %s are all %s %s.", lsmTitles[p], strings.Join(values, ", "), count(size), lsmUnits[p]))
		default:
			boxes.Figures = append(boxes.Figures, boxFigure(r, p, values))
		}
		for _, v := range values {
			rates := ratesOf(r, p, v)
			article := "-"
			if m, ok := lsmMedians[p][v]; ok {
				article = chart.Number(m * 1e3)
			}
			medians.Rows = append(medians.Rows, []report.Entry{
				report.Words(p), report.Words(v), report.Words(strconv.Itoa(len(rates))), report.Words(chart.Number(rates[0])),
				report.Words(chart.Number(loadgen.Median(rates))), report.Words(chart.Number(rates[len(rates)-1])), report.Words(article),
			})
		}
	}
	boxes.Tables = []*report.Table{medians}
	sections = append(sections, boxes, sizesByKeys(r))
	if s := treesOverTime(r, cells); len(s.Figures) > 0 {
		sections = append(sections, s)
	}
	return sections
}

// treesOverTime shows the fastest and the slowest combination over time.
func treesOverTime(r *results.Result, ranked []*results.Cell) report.Section {
	s := report.Section{Title: "Over time"}
	for i, c := range ranked {
		run := c.MedianRun()
		if i > 0 && i < len(ranked)-1 || len(run.Series) < 2 {
			continue
		}
		which := "The fastest: "
		if i > 0 {
			which = "The slowest: "
		}
		for _, f := range []*chart.Figure{report.OverTime(r, c, run), report.TreeOverTime(r, c, run)} {
			if f != nil {
				f.Title = which + strings.ToLower(f.Title[:1]) + f.Title[1:]
				s.Figures = append(s.Figures, f)
			}
		}
	}
	return s
}

// actualSizes says what the key spaces and thresholds are at the scale of the run.
func actualSizes(r *results.Result) []string {
	if r.Scale == 0 || r.Scale == 1 {
		return nil
	}
	text := fmt.Sprintf("Names of key spaces and thresholds are those of full scale. At scale %v,", r.Scale)
	seen := make(map[string]bool)
	for _, c := range r.Cells {
		for _, p := range []string{paramKeySpace, paramThreshold} {
			n := actualSize(c, p)
			if words := fmt.Sprintf(" %s %s are %s,", c.Param(p), lsmUnits[p], count(n)); n > 0 && !seen[words] {
				seen[words] = true
				text += words
			}
		}
	}
	if len(seen) == 0 {
		return nil
	}
	return []string{text[:len(text)-1] + "."}
}

// actualSize returns the key space or threshold of a cell at the scale of its runs; 0 if it is not
// known.
func actualSize(c *results.Cell, parameter string) uint64 {
	var w struct {
		Keys uint64 `json:"keys"`
	}
	var t struct {
		FlushKeys uint64 `json:"flushKeys"`
	}
	switch parameter {
	case paramKeySpace:
		decode(c.Workload, &w)
	case paramThreshold:
		decode(c.Target, &t)
	}
	return max(w.Keys, t.FlushKeys)
}

// equalAtScale returns the size that all values of a parameter have at the scale of a result; 0
// if they differ, or are not known.
func equalAtScale(r *results.Result, parameter string) uint64 {
	size := uint64(0)
	for _, c := range r.Cells {
		if len(c.Runs) == 0 {
			continue
		}
		n := actualSize(c, parameter)
		if n == 0 || size != 0 && n != size {
			return 0
		}
		size = n
	}
	return size
}

// decode reads a part of a result, which is a struct when it was measured, and what JSON
// made of it when it was read. It leaves to alone if the part has not that form.
func decode(part, to any) {
	if data, err := json.Marshal(part); err == nil {
		_ = json.Unmarshal(data, to)
	}
}

// rankTable lists cells.
func rankTable(cells []*results.Cell, caption string) *report.Table {
	t := &report.Table{Head: append(slices.Clone(lsmParameters), "operations/s", "on disk"), Caption: caption}
	for _, c := range cells {
		var row []report.Entry
		for _, p := range lsmParameters {
			row = append(row, report.Words(c.Param(p)))
		}
		size := "-"
		if n := c.MedianRun().DataBytes; n != nil {
			size = chart.Bytes(float64(*n))
		}
		t.Rows = append(t.Rows, append(row, report.Figure(chart.Number(medianRate(c)), medianRate(c)), report.Words(size)))
	}
	return t
}

// publishedRanks lists combinations of the article.
func publishedRanks(ranks []lsmRank, caption string) *report.Table {
	t := &report.Table{Head: append(slices.Clone(lsmParameters), "operations/s", "on disk"), Caption: caption}
	for _, c := range ranks {
		size := "-"
		if c.gigabytes > 0 {
			size = fmt.Sprintf("%.1f GB", c.gigabytes)
		}
		t.Rows = append(t.Rows, []report.Entry{
			report.Words(c.mix), report.Words(c.find), report.Words(c.threads), report.Words(c.threshold), report.Words(c.keys),
			report.Figure(chart.Number(c.rate*1e3), c.rate), report.Words(size),
		})
	}
	return t
}

// mostDots is how many values a box shows one by one: of so few, its quartiles say little.
const mostDots = 12

// boxFigure shows the rates by the values of one parameter.
func boxFigure(r *results.Result, parameter string, values []string) *chart.Figure {
	boxes, dots := &chart.Boxes{Name: "kvd"}, ""
	medians := &chart.Line{Name: "article, median", Series: 1, Dots: true}
	for i, v := range values {
		rates := ratesOf(r, parameter, v)
		at := func(q float64) float64 { return rates[int(math.Round(q*float64(len(rates)-1)))] }
		boxes.Boxes = append(boxes.Boxes, chart.Box{
			X: float64(i), P1: at(0.01), P25: at(0.25), P50: loadgen.Median(rates), P75: at(0.75), P99: at(0.99), Max: at(1),
		})
		if len(rates) <= mostDots {
			boxes.Boxes[i].Dots, dots = rates, fmt.Sprintf("; dots: single combinations, if there are at most %d", mostDots)
		}
		if m, ok := lsmMedians[parameter][v]; ok {
			medians.X, medians.Y = append(medians.X, float64(i)), append(medians.Y, m*1e3)
		}
	}
	panel := chart.Panel{Y: chart.Axis{Label: "operations/s", Kind: chart.Log10}, Marks: []chart.Mark{boxes}, Height: 180}
	if len(medians.X) > 0 {
		panel.Marks = append(panel.Marks, medians)
	}
	return &chart.Figure{
		Title: "Throughput by " + lsmTitles[parameter], X: chart.Axis{Label: cmp.Or(lsmUnits[parameter], lsmTitles[parameter]), Kind: chart.Categories, Names: values}, Panels: []chart.Panel{panel},
		Note: append(report.Note(r, nil), "Boxes: quartiles over all combinations; whiskers: 1st to 99th percentile; tick: maximum"+dots+"."),
	}
}

// sizesByKeys sets the bytes on disk at the end against the key space.
func sizesByKeys(r *results.Result) report.Section {
	values := valuesOf(r, paramKeySpace)
	t := &report.Table{Head: []string{"keys", "least", "median", "most", "article: median"}, Caption: "Bytes on disk at the end."}
	panel := chart.Panel{Y: chart.Axis{Label: "bytes on disk", Kind: chart.Log2, Format: chart.Bytes}}
	for series, mix := range valuesOf(r, paramMix) {
		points := &chart.Line{Name: mix, Series: series, Dots: true}
		for x, v := range values {
			for _, c := range r.Cells {
				if len(c.Runs) == 0 || c.Param(paramKeySpace) != v || c.Param(paramMix) != mix {
					continue
				}
				if n := c.MedianRun().DataBytes; n != nil && *n > 0 {
					beside := 0.16 * (float64(series) - 1.5) // so that the mixes do not hide each other
					points.X, points.Y = append(points.X, float64(x)+beside), append(points.Y, float64(*n))
				}
			}
		}
		if len(points.X) > 0 {
			panel.Marks = append(panel.Marks, points)
		}
	}
	for _, v := range values {
		var sizes []float64
		for _, c := range r.Cells {
			if len(c.Runs) > 0 && c.Param(paramKeySpace) == v {
				if n := c.MedianRun().DataBytes; n != nil {
					sizes = append(sizes, float64(*n))
				}
			}
		}
		if len(sizes) == 0 {
			continue
		}
		slices.Sort(sizes)
		article := "-"
		if gb, ok := lsmSizes[v]; ok {
			article = fmt.Sprintf("%.1f GB", gb)
		}
		t.Rows = append(t.Rows, []report.Entry{
			report.Words(v), report.Words(chart.Bytes(sizes[0])), report.Words(chart.Bytes(loadgen.Median(sizes))), report.Words(chart.Bytes(sizes[len(sizes)-1])), report.Words(article),
		})
	}
	s := report.Section{Title: "Final size", Tables: []*report.Table{t}}
	if len(panel.Marks) > 0 {
		s.Figures = []*chart.Figure{{
			Title: "Final size by key space", X: chart.Axis{Label: lsmUnits[paramKeySpace], Kind: chart.Categories, Names: values}, Panels: []chart.Panel{panel}, Note: report.Note(r, nil),
		}}
	}
	return s
}
