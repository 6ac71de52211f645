package experiment

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/kvd-db/kvd/internal/chart"
	"github.com/kvd-db/kvd/internal/report"
	"github.com/kvd-db/kvd/internal/results"
)

// batches gives access to the cells of one store and number of readers.
type batches struct {
	result *results.Result
	store  string
	name   string // of the program that was measured
	cells  []*results.Cell
}

func newBatches(r *results.Result, store string, readers int) *batches {
	b := &batches{result: r, store: store, name: "kvd"}
	for _, c := range r.Cells {
		if len(c.Runs) > 0 && c.Param(paramStore) == store && c.Param(paramReaders) == strconv.Itoa(readers) {
			b.cells = append(b.cells, c)
		}
	}
	return b
}

// mostReaders returns the largest number of readers of a store; 0 without any.
func mostReaders(r *results.Result, store string) int {
	numbers := []int{0}
	for _, c := range r.Cells {
		if c.Param(paramStore) == store {
			numbers = addNumber(numbers, c.Param(paramReaders))
		}
	}
	return numbers[len(numbers)-1]
}

func (b *batches) cell(batch string) *results.Cell {
	for _, c := range b.cells {
		if c.Param(paramBatch) == batch {
			return c
		}
	}
	return nil
}

// best returns the fixed size with the highest rate; nil without any.
func (b *batches) best() (size string, best *results.Cell) {
	for _, c := range b.cells {
		batch := c.Param(paramBatch)
		if batch != BatchNone && batch != BatchAdaptive && (best == nil || medianRate(c) > medianRate(best)) {
			size, best = batch, c
		}
	}
	return size, best
}

func times(c, of *results.Cell) string {
	return strconv.FormatFloat(medianRate(c)/medianRate(of), 'f', 1, 64)
}

func percent(c, of *results.Cell) string { return chart.Percent(medianRate(c) / medianRate(of)) }

func microbatchSections(r *results.Result) []report.Section {
	var sections []report.Section
	for _, store := range []string{StoreServer, StoreDisk} {
		most := mostReaders(r, store)
		if most == 0 {
			continue
		}
		b := newBatches(r, store, most)
		sections = append(sections, b.section(storeTitle(store), most, append([]string{b.about()}, b.verdict()...)))
		if lone := newBatches(r, store, 1); most > 1 && len(lone.cells) > 0 {
			sections = append(sections, report.Section{
				Title: storeTitle(store) + ", one reader", Text: lone.loneVerdict(), Tables: []*report.Table{lone.table()},
			})
		}
	}
	return sections
}

// BatchSection returns the figures of one store by the size of its batches, for the largest
// number of readers, beside those of the article. name is that of the program that was
// measured, and about says what a batch is. It is false if the result has no run of the
// store.
func BatchSection(r *results.Result, store, name, title string, about ...string) (s report.Section, ok bool) {
	most := mostReaders(r, store)
	b := newBatches(r, store, most)
	if len(b.cells) == 0 {
		return report.Section{}, false
	}
	b.name = name
	return b.section(title, most, append(about, b.verdict()...)), true
}

func (b *batches) section(title string, readers int, text []string) report.Section {
	s := report.Section{
		Title: fmt.Sprintf("%s, %s", title, report.Plural(readers, "reader")),
		Text:  text, Tables: []*report.Table{b.table()},
	}
	if readers > 1 {
		s.Tables = append(s.Tables, b.published())
		s.Figures = []*chart.Figure{b.figure()}
	}
	return s
}

// about says what a batch is, in this store and in the article.
func (b *batches) about() string {
	const article = "In the article a batch is one statement of PostgreSQL, which 10 connections execute. "
	if b.store == StoreServer {
		return article + "Here it is one frame between the client and a server in the same process, over loopback. Unbatched, each read is a gRPC call of its own. " +
			"A batch of a fixed size has at most so many reads and waits for none; two frames of a connection are under way at a time."
	}
	what := "Here it is one pass of the engine over the files of a partition"
	if len(b.cells) > 0 {
		if device := deviceOf(b.cells[0]); device != "" {
			what += ", which lie on an artificial device: " + device + ". It stands for the database of the article, and is no measurement of a disk"
		}
	}
	return article + what + ". A batch of a fixed size waits for more reads until it is full or its time is over, as in the article. " +
		"Unlike a statement, a pass makes as many disk reads as it has keys in different blocks, several at a time, so batching gains until the device is busy, and no more."
}

// deviceOf describes the artificial device of a cell; "" without one.
func deviceOf(c *results.Cell) string {
	var device struct {
		Latency float64 `json:"readLatencyNanos"`
		Depth   int     `json:"readDepth"`
	}
	data, err := json.Marshal(c.Target) // a struct when it was measured, fields of JSON when it was read
	if err != nil || json.Unmarshal(data, &device) != nil || device.Latency == 0 {
		return ""
	}
	text := fmt.Sprintf("each read of a file takes %s longer, ", chart.Nanos(device.Latency))
	if device.Depth == 0 {
		return text + "any number at a time"
	}
	return text + fmt.Sprintf("at most %d at a time", device.Depth)
}

// table has the columns of the article, and percentiles.
func (b *batches) table() *report.Table {
	t := &report.Table{
		Head:    []string{"batch", "reads/batch", "run", "mean", "p50", "p90", "p99", "p99.9", "worst", "reads/s", "x none"},
		Caption: "The run with the median rate. reads/batch is the mean size of the batches, if it was counted; x none is the rate relative to unbatched.",
	}
	for _, c := range b.cells {
		run := c.MedianRun()
		get := run.Operation("get")
		t.Rows = append(t.Rows, []report.Entry{
			report.Words(c.Param(paramBatch)), countOf(readsPerBatch(c, run)), report.Words(chart.Seconds(run.Seconds)),
			duration(get.MeanNanos), duration(get.Nanos.P50), duration(get.Nanos.P90), duration(get.Nanos.P99), duration(get.Nanos.P999), duration(get.Nanos.Max),
			report.Figure(chart.Number(medianRate(c)), medianRate(c)), b.gain(c),
		})
	}
	return t
}

// countOf shows a mean that is at least 1; a dash if it is not known.
func countOf(mean float64) report.Entry {
	if mean == 0 {
		return report.Words("-")
	}
	return report.Words(strconv.FormatFloat(mean, 'f', 1, 64))
}

// gain is the rate relative to unbatched.
func (b *batches) gain(c *results.Cell) report.Entry {
	none := b.cell(BatchNone)
	if none == nil {
		return report.Words("-")
	}
	return report.Words(times(c, none))
}

// published has the article's figures beside ours.
func (b *batches) published() *report.Table {
	t := &report.Table{
		Head: []string{"batch", b.name + ": mean", "reads/s", "x none", "article: run", "mean", "worst", "reads/s", "x none"},
		Caption: "The article: 3,000,000 reads of 350 million rows by 300 readers on 8 hardware threads, each key asked for ten times in a row. " +
			"Compare the columns x none: the machines differ.",
	}
	for _, c := range b.cells {
		get := c.MedianRun().Operation("get")
		row := []report.Entry{
			report.Words(c.Param(paramBatch)), report.Words(chart.Nanos(float64(get.MeanNanos))),
			report.Words(chart.Number(medianRate(c))), b.gain(c),
		}
		t.Rows = append(t.Rows, append(row, publishedBatchRow(c.Param(paramBatch))...))
	}
	return t
}

func duration(nanos int64) report.Entry {
	return report.Cost(chart.Nanos(float64(nanos)), float64(nanos))
}

// figure shows rate, gain and mean against the batch size.
func (b *batches) figure() *chart.Figure {
	f := &chart.Figure{
		Title: "Reads by batch size", X: chart.Axis{Label: "batch size", Kind: chart.Categories},
		Note: append(report.Note(b.result, nil), "Band: the least and the highest of the runs."),
	}
	adaptive := b.cell(BatchAdaptive)
	for _, c := range b.cells {
		if c != adaptive {
			f.X.Names = append(f.X.Names, c.Param(paramBatch))
		}
	}
	rates := b.panel(chart.Axis{Label: "reads/s", Kind: chart.Log10}, medianRate, func(p batchFigures) float64 { return p.rate })
	ours := rates.Marks[0].(*chart.Line)
	ours.Name, rates.Marks[1].(*chart.Line).Name = b.name, "article"
	for _, batch := range f.X.Names {
		least, _, most := b.cell(batch).Rates()
		ours.Low, ours.High = append(ours.Low, least), append(ours.High, most)
	}
	if adaptive != nil {
		rates.Marks[2].(*chart.Reference).Name = b.name + ", adaptive default"
	}
	f.Panels = []chart.Panel{rates}
	if none := b.cell(BatchNone); none != nil && medianRate(none) > 0 {
		published, _ := publishedBatch(BatchNone)
		gains := b.panel(chart.Axis{Label: "relative to none", Format: chart.Times},
			func(c *results.Cell) float64 { return medianRate(c) / medianRate(none) },
			func(p batchFigures) float64 { return p.rate / published.rate })
		gains.Height = 150
		f.Panels = append(f.Panels, gains)
	}
	f.Panels = append(f.Panels, b.panel(chart.Axis{Label: "mean response", Kind: chart.Log10, Format: chart.Nanos},
		func(c *results.Cell) float64 { return float64(c.MedianRun().Operation("get").MeanNanos) },
		func(p batchFigures) float64 { return float64(p.mean) }))
	return f
}

// panel shows one value by the batch size: ours, the article's and, as a dashed line, that of
// the adaptive default, if it was measured. The marks have no names.
func (b *batches) panel(y chart.Axis, ours func(*results.Cell) float64, published func(batchFigures) float64) chart.Panel {
	line, article, adaptive := new(chart.Line), &chart.Line{Series: 1}, new(chart.Reference)
	standard := b.cell(BatchAdaptive)
	for _, c := range b.cells {
		if c == standard {
			continue
		}
		x := float64(len(line.X))
		line.X, line.Y = append(line.X, x), append(line.Y, ours(c))
		if p, ok := publishedBatch(c.Param(paramBatch)); ok {
			article.X, article.Y = append(article.X, x), append(article.Y, published(p))
		}
		if standard != nil {
			adaptive.X, adaptive.Y = append(adaptive.X, x), append(adaptive.Y, ours(standard))
		}
	}
	panel := chart.Panel{Y: y, Marks: []chart.Mark{line, article}}
	if standard != nil {
		panel.Marks = append(panel.Marks, adaptive)
	}
	return panel
}

// verdict compares the default with the best fixed size, if both were measured.
func (b *batches) verdict() []string {
	adaptive := b.cell(BatchAdaptive)
	size, best := b.best()
	if adaptive == nil || best == nil {
		return nil
	}
	return []string{fmt.Sprintf("The adaptive default reaches %s of the throughput of the best fixed size, %s.", percent(adaptive, best), size)}
}

// loneVerdict compares the mean response of one reader with and without batching.
func (b *batches) loneVerdict() []string {
	none, adaptive := b.cell(BatchNone), b.cell(BatchAdaptive)
	if none == nil || adaptive == nil {
		return nil
	}
	n, a := least(none), least(adaptive)
	return []string{fmt.Sprintf("A lone reader waits %s on average with the adaptive default and %s unbatched (the quickest run of each): %s.", chart.Nanos(a), chart.Nanos(n), change(a/n))}
}

// least returns the least mean response of the runs.
func least(c *results.Cell) float64 {
	mean := math.Inf(1)
	for _, run := range c.Runs {
		mean = min(mean, float64(run.Operation("get").MeanNanos))
	}
	return mean
}

// publishedBatchRow returns the article's entries of a batch size.
func publishedBatchRow(batch string) []report.Entry {
	p, ok := publishedBatch(batch)
	if !ok {
		return slices.Repeat([]report.Entry{report.Words("-")}, 5)
	}
	none, _ := publishedBatch(BatchNone)
	worst := "-"
	if p.worst > 0 {
		worst = chart.Nanos(float64(p.worst))
	}
	return []report.Entry{
		report.Words(chart.Seconds(p.seconds)), report.Words(chart.Nanos(float64(p.mean))), report.Words(worst), report.Words(chart.Number(p.rate)),
		report.Words(strconv.FormatFloat(p.rate/none.rate, 'f', 1, 64)),
	}
}
