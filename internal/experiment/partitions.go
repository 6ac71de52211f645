package experiment

import (
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

// Partitions is the experiment of the article on the hash-partitioned tree: does
// partitioning raise the throughput of concurrent callers? The article gave each partition
// memtables of the same size, so that 16 partitions buffered 16 times as much. Here all
// partitions share one memory budget.
type Partitions struct {
	Mixes      []workload.Mix
	Partitions []int
	Threads    []int
	Config     workload.Config // without Mix and Workers
	Memory     int64           // budget of the store
}

// Names of the parameters of a cell.
const (
	paramMix        = "mix"
	paramPartitions = "partitions"
	paramThreads    = "threads"
)

// Experiment returns the experiment with one cell for each combination.
func (p Partitions) Experiment() *Experiment {
	e := &Experiment{
		Name: "partitions", Title: "Does partitioning pay?",
		Lead: partitionsLead, Sections: partitionsSections,
	}
	for _, mix := range p.Mixes {
		for _, partitions := range p.Partitions {
			for _, threads := range p.Threads {
				config := p.Config
				config.Mix, config.Workers = mix, threads
				e.Cells = append(e.Cells, Cell{
					Params: []results.Param{
						{Name: paramMix, Value: mix.Name}, {Name: paramPartitions, Value: strconv.Itoa(partitions)}, {Name: paramThreads, Value: strconv.Itoa(threads)},
					},
					Setup:  Setup{Partitions: partitions, MemoryBytes: p.Memory},
					Config: config,
				})
			}
		}
	}
	return e
}

// grid gives access to the cells by their parameters.
type grid struct {
	result              *results.Result
	mixes               []string
	partitions, threads []int
}

func newGrid(r *results.Result) *grid {
	g := &grid{result: r}
	for _, c := range r.Cells {
		if len(c.Runs) == 0 {
			continue
		}
		if mix := c.Param(paramMix); !slices.Contains(g.mixes, mix) {
			g.mixes = append(g.mixes, mix)
		}
		g.partitions = addNumber(g.partitions, c.Param(paramPartitions))
		g.threads = addNumber(g.threads, c.Param(paramThreads))
	}
	return g
}

func addNumber(list []int, s string) []int {
	n, err := strconv.Atoi(s)
	if err != nil || slices.Contains(list, n) {
		return list
	}
	list = append(list, n)
	slices.Sort(list)
	return list
}

// cell returns the cell of a combination; nil if it was not measured.
func (g *grid) cell(mix string, partitions, threads int) *results.Cell {
	for _, c := range g.result.Cells {
		if len(c.Runs) > 0 && c.Param(paramMix) == mix && c.Param(paramPartitions) == strconv.Itoa(partitions) && c.Param(paramThreads) == strconv.Itoa(threads) {
			return c
		}
	}
	return nil
}

// rate returns the median rate of a combination; NaN if it was not measured.
func (g *grid) rate(mix string, partitions, threads int) float64 {
	c := g.cell(mix, partitions, threads)
	if c == nil {
		return math.NaN()
	}
	_, median, _ := c.Rates()
	return median
}

// best returns the thread count with the highest rate, and that rate.
func (g *grid) best(mix string, partitions int) (threads int, rate float64) {
	for _, n := range g.threads {
		if r := g.rate(mix, partitions, n); r > rate {
			threads, rate = n, r
		}
	}
	return threads, rate
}

func partitionsLead(r *results.Result) string {
	g := newGrid(r)
	if len(g.partitions) < 2 {
		return "Throughput by mix, partitions and threads."
	}
	few, many := g.partitions[0], g.partitions[len(g.partitions)-1]
	var parts []string
	for _, mix := range g.mixes {
		_, one := g.best(mix, few)
		_, all := g.best(mix, many)
		if one > 0 && all > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", mix, change(all/one)))
		}
	}
	return fmt.Sprintf("%d partitions against %d, each at its best thread count and with the same memory: %s.", many, few, strings.Join(parts, ", "))
}

// change writes a ratio as a change in percent.
func change(ratio float64) string {
	return fmt.Sprintf("%+.0f %%", math.Round(100*(ratio-1))+0) // never -0
}

func partitionsSections(r *results.Result) []report.Section {
	g := newGrid(r)
	var sections []report.Section
	sections = append(sections, g.overview())
	for _, mix := range g.mixes {
		sections = append(sections, report.Section{
			Title: mix, Tables: []*report.Table{g.table(mix)}, Figures: []*chart.Figure{g.scaling(mix), g.gain(mix)},
		})
	}
	return append(sections, g.sizes(), g.slowest(), g.multiples())
}

// overview has the best thread count of each number of partitions, and the two cuts of
// the article's figures: many partitions by threads, and many threads by partitions.
func (g *grid) overview() report.Section {
	t := &report.Table{Head: []string{"mix"}, Caption: "Operations/s at the best thread count (in brackets), and the change relative to the fewest partitions."}
	for _, n := range g.partitions {
		t.Head = append(t.Head, report.Plural(n, "partition"))
	}
	for _, mix := range g.mixes {
		row := []report.Entry{report.Words(mix)}
		_, one := g.best(mix, g.partitions[0])
		for i, n := range g.partitions {
			threads, rate := g.best(mix, n)
			text := fmt.Sprintf("%s (%d)", chart.Number(rate), threads)
			if i > 0 && one > 0 {
				text += ", " + change(rate/one)
			}
			row = append(row, report.Words(text))
		}
		t.Rows = append(t.Rows, row)
	}
	s := report.Section{Title: "Overview", Tables: []*report.Table{t}}
	if len(g.partitions) > 0 && len(g.threads) > 0 {
		many, most := g.partitions[len(g.partitions)-1], g.threads[len(g.threads)-1]
		s.Figures = []*chart.Figure{
			g.cut(fmt.Sprintf("Threads, at %d partitions", many), "threads", g.threads, publishedThreads, func(n int) (int, int) { return many, n }),
			g.cut(fmt.Sprintf("Partitions, at %d threads", most), "partitions", g.partitions, publishedPartitions, func(n int) (int, int) { return n, most }),
		}
	}
	return s
}

// cut shows the rate of each mix by one number, above the article's. of returns the partitions and
// threads that a number stands for; published are the numbers that the article has.
func (g *grid) cut(title, label string, at, published []int, of func(n int) (partitions, threads int)) *chart.Figure {
	f := &chart.Figure{Title: title, X: chart.Axis{Label: label, Kind: chart.Log2}, Note: report.Note(g.result, nil)}
	panel := chart.Panel{Y: chart.Axis{Label: "operations/s"}}
	var lines []*chart.Line
	for i, mix := range g.mixes {
		line := &chart.Line{Name: mix, Series: i}
		for _, n := range at {
			partitions, threads := of(n)
			line.X, line.Y = append(line.X, float64(n)), append(line.Y, g.rate(mix, partitions, threads))
		}
		panel.Marks, lines = append(panel.Marks, line), append(lines, line)
	}
	f.Panels = []chart.Panel{panel}
	addPublished(f, lines, published, func(line, n int) (float64, bool) {
		partitions, threads := of(n)
		return publishedRate(g.mixes[line], partitions, threads)
	})
	return f
}

// table has the rates of one mix beside those of the article.
func (g *grid) table(mix string) *report.Table {
	t := &report.Table{Head: []string{"partitions"}, Caption: "Thousand operations/s, the median of the runs; in brackets those of the article, in an hour on 8 processors."}
	for _, n := range g.threads {
		t.Head = append(t.Head, report.Plural(n, "thread"))
	}
	for _, partitions := range g.partitions {
		row := []report.Entry{report.Words(strconv.Itoa(partitions))}
		for _, threads := range g.threads {
			rate := g.rate(mix, partitions, threads)
			if math.IsNaN(rate) {
				row = append(row, report.Words("-"))
				continue
			}
			text := strconv.FormatFloat(rate/1e3, 'f', 1, 64)
			if published, ok := publishedRate(mix, partitions, threads); ok {
				text += fmt.Sprintf(" (%.1f)", published)
			}
			row = append(row, report.Figure(text, rate))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// scaling shows the rate of one mix by threads, a line for each number of partitions,
// above the article's and the p99 of all its operations.
func (g *grid) scaling(mix string) *chart.Figure {
	f := &chart.Figure{Title: mix + ": threads", X: chart.Axis{Label: "threads", Kind: chart.Log2}, Note: append(report.Note(g.result, nil), "Bands: the least and the highest of the runs.")}
	rates := chart.Panel{Y: chart.Axis{Label: "operations/s"}}
	tails := chart.Panel{Y: chart.Axis{Label: "p99, slowest kind", Kind: chart.Log10, Format: chart.Nanos}, Height: 130}
	var lines []*chart.Line
	for i, partitions := range g.partitions {
		rate, tail := byThreads(report.Plural(partitions, "partition"), i, g.threads, func(threads int) *results.Cell { return g.cell(mix, partitions, threads) })
		rates.Marks, tails.Marks, lines = append(rates.Marks, rate), append(tails.Marks, tail), append(lines, rate)
	}
	f.Panels = []chart.Panel{rates, tails}
	addPublished(f, lines, publishedThreads, func(line, n int) (float64, bool) { return publishedRate(mix, g.partitions[line], n) })
	return f
}

// gain shows the rate of one mix by partitions, a line for each number of threads, and what
// the most threads would do if each partition, up to the number of processors, added as much as
// the first; below, the article's rates.
func (g *grid) gain(mix string) *chart.Figure {
	f := &chart.Figure{
		Title: mix + ": partitions", X: chart.Axis{Label: "partitions", Kind: chart.Log2},
		Note: append(report.Note(g.result, nil), "Bands: the least and the highest of the runs. In brackets: the rate with the most partitions, relative to the ideal of that number of threads."),
	}
	panel := chart.Panel{Y: chart.Axis{Label: "operations/s"}}
	var lines []*chart.Line
	for i, threads := range g.threads {
		line := &chart.Line{Name: report.Plural(threads, "thread"), Series: i}
		lines = append(lines, line)
		for _, n := range g.partitions {
			if c := g.cell(mix, n, threads); c != nil {
				least, median, most := c.Rates()
				line.X, line.Y = append(line.X, float64(n)), append(line.Y, median)
				line.Low, line.High = append(line.Low, least), append(line.High, most)
			}
		}
		if len(line.X) == 0 {
			continue
		}
		if ideal := g.ideal(line.X[0], line.Y[0], line.X[len(line.X)-1]); len(line.X) > 1 && ideal > 0 {
			line.Name += fmt.Sprintf(" (%s of ideal)", chart.Percent(math.Round(100*line.Y[len(line.Y)-1]/ideal)/100))
		}
		panel.Marks = append(panel.Marks, line)
		if i == len(g.threads)-1 && len(line.X) > 1 {
			reference := &chart.Reference{Name: fmt.Sprintf("ideal, up to %s", report.Plural(g.processors(), "processor")), X: slices.Clone(line.X)}
			if bend := float64(g.processors()); bend > line.X[0] && bend < line.X[len(line.X)-1] && !slices.Contains(line.X, bend) {
				reference.X = append(reference.X, bend)
				slices.Sort(reference.X)
			}
			for _, n := range reference.X {
				reference.Y = append(reference.Y, g.ideal(line.X[0], line.Y[0], n))
			}
			panel.Marks = append(panel.Marks, reference)
		}
	}
	f.Panels = []chart.Panel{panel}
	addPublished(f, lines, publishedPartitions, func(line, n int) (float64, bool) { return publishedRate(mix, n, g.threads[line]) })
	return f
}

func (g *grid) processors() int { return max(g.result.Environment.GOMAXPROCS, 1) }

// ideal returns the rate at some partitions if each, up to the number of processors, added as
// much as the first few did.
func (g *grid) ideal(few, rate, partitions float64) float64 {
	most := float64(g.processors())
	return rate * min(partitions, max(most, few)) / few
}

// multiples has throughput over time of each mix and number of partitions, at the best number
// of threads, with common scales.
func (g *grid) multiples() report.Section {
	s := report.Section{Title: "All over time", Narrow: true, Text: []string{"Each mix and number of partitions at its best number of threads, in the median run, with the same scales."}}
	top, end := 0.0, 0.0
	for _, mix := range g.mixes {
		for _, partitions := range g.partitions {
			threads, _ := g.best(mix, partitions)
			c := g.cell(mix, partitions, threads)
			if c == nil || len(c.MedianRun().Series) < 2 {
				continue
			}
			run := c.MedianRun()
			line := report.RateOverTime(run)
			line.Series = slices.Index(g.mixes, mix)
			top, end = max(top, slices.Max(line.Y)), max(end, slices.Max(line.X))
			x := report.TimeAxis()
			x.Max = &end
			s.Figures = append(s.Figures, &chart.Figure{
				Title:  fmt.Sprintf("%s, %s, %s", mix, report.Plural(partitions, "partition"), report.Plural(threads, "thread")),
				X:      x,
				Panels: []chart.Panel{{Y: chart.Axis{Label: "operations/s", Max: &top}, Height: 80, Marks: []chart.Mark{line}}},
				Width:  report.NarrowWidth, Note: report.Note(g.result, c),
			})
		}
	}
	top *= 1.05 // so that the highest line does not touch the title
	return s
}

// byThreads returns the lines of the rate and of the p99 of cells by threads; cell returns nil for
// what was not measured. The rate has a band, from the least to the highest of the runs.
func byThreads(name string, series int, threads []int, cell func(threads int) *results.Cell) (rate, tail *chart.Line) {
	rate, tail = &chart.Line{Name: name, Series: series}, &chart.Line{Series: series}
	for _, n := range threads {
		c := cell(n)
		if c == nil {
			continue
		}
		least, median, most := c.Rates()
		rate.X, rate.Y = append(rate.X, float64(n)), append(rate.Y, median)
		rate.Low, rate.High = append(rate.Low, least), append(rate.High, most)
		tail.X, tail.Y = append(tail.X, float64(n)), append(tail.Y, slowestP99(c))
	}
	return rate, tail
}

// slowestP99 returns the highest p99 of the kinds of operations of the median run.
func slowestP99(c *results.Cell) float64 {
	slowest := 1.0
	for _, o := range c.MedianRun().Trial.Operations {
		slowest = max(slowest, float64(o.Nanos.P99))
	}
	return slowest
}

// sizes sets throughput against the bytes on disk at the end.
func (g *grid) sizes() report.Section {
	f := &chart.Figure{Title: "Throughput against final size", X: chart.Axis{Label: "bytes on disk at the end", Format: chart.Bytes, Binary: true}, Note: report.Note(g.result, nil)}
	panel := chart.Panel{Y: chart.Axis{Label: "operations/s"}}
	for i, mix := range g.mixes {
		points := &chart.Line{Name: mix, Series: i, Dots: true}
		for _, partitions := range g.partitions {
			for _, threads := range g.threads {
				c := g.cell(mix, partitions, threads)
				if c == nil || c.MedianRun().DataBytes == nil {
					continue
				}
				run := c.MedianRun()
				points.X, points.Y = append(points.X, float64(*run.DataBytes)), append(points.Y, run.OpsPerSecond)
			}
		}
		panel.Marks = append(panel.Marks, points)
	}
	f.Panels = []chart.Panel{panel}
	return report.Section{Title: "Final size", Figures: []*chart.Figure{f}}
}

// slowest shows the run over time in which the article's store collapsed: most puts, most
// partitions, most threads.
func (g *grid) slowest() report.Section {
	s := report.Section{Title: "Over time"}
	if len(g.mixes) == 0 {
		return s
	}
	mix := g.mixes[0]
	c := g.cell(mix, g.partitions[len(g.partitions)-1], g.threads[len(g.threads)-1])
	if c == nil {
		return s
	}
	run := c.MedianRun()
	least, where := math.Inf(1), ""
	for _, cell := range g.result.Cells {
		for _, r := range cell.Runs {
			if share := leastShare(r); share < least {
				least, where = share, cell.Name()
			}
		}
	}
	text := "In the article, puts by 32 threads on 16 partitions fell from 570 thousand operations/s to ten after nine minutes and stayed there. "
	if where == "" {
		text += "The runs here are too short to compare that."
	} else {
		text += fmt.Sprintf("Here the slowest second of all runs did %s of its run's median (%s).", chart.Percent(least), where)
	}
	s.Text = []string{text}
	s.Figures = []*chart.Figure{report.OverTime(g.result, c, run)}
	if run.Seconds > leastZoom {
		s.Figures = append(s.Figures, zoomed(report.OverTime(g.result, c, run), run))
	}
	s.Figures = append(s.Figures, report.HeatMap(g.result, c, run))
	return s
}

// leastSeconds is how many whole seconds a run needs for a slowest one to mean something.
const leastSeconds = 5

// leastShare returns the rate of the slowest second relative to the median second; infinite
// for runs that are too short. The last second may be a part of one and does not count.
func leastShare(r *results.Run) float64 {
	var rates []float64
	for i := range r.Series[:max(len(r.Series)-1, 0)] {
		rates = append(rates, r.Series[i].OpsPerSecond)
	}
	if len(rates) < leastSeconds {
		return math.Inf(1)
	}
	slices.Sort(rates)
	return rates[0] / rates[len(rates)/2]
}

// leastZoom is how many seconds a figure shows at least that is zoomed: those before and after
// the slowest one.
const leastZoom = 4

// zoomed shows the tenth of the time around the slowest second, and not less than leastZoom.
func zoomed(f *chart.Figure, r *results.Run) *chart.Figure {
	slowest := 0
	for i := range r.Series {
		if r.Series[i].OpsPerSecond < r.Series[slowest].OpsPerSecond {
			slowest = i
		}
	}
	if len(r.Series) == 0 {
		return f
	}
	width := max(r.Seconds/10, leastZoom)
	from := max(r.Series[slowest].At-width/2, 0)
	to := min(from+width, r.Seconds)
	f.Title, f.X.Min, f.X.Max = "The same, around its slowest second", &from, &to
	return f
}
