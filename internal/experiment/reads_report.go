package experiment

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/kvd-db/kvd/internal/chart"
	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/report"
	"github.com/kvd-db/kvd/internal/results"
	"github.com/kvd-db/kvd/internal/workload"
)

// readsOf is one combination: reads of the store, and raw reads beside them.
type readsOf struct {
	distribution string
	threads      int
	store, raw   *results.Cell
}

// readPairs returns the combinations of which both cells were measured.
func readPairs(r *results.Result) []readsOf {
	var pairs []readsOf
	for _, d := range valuesOf(r, paramDistribution) {
		for _, n := range numbersOf(r, paramThreads) {
			p := readsOf{distribution: d, threads: n}
			p.store = cellWith(r, paramDistribution, d, paramThreads, strconv.Itoa(n), paramReader, readerStore)
			p.raw = cellWith(r, paramDistribution, d, paramThreads, strconv.Itoa(n), paramReader, readerRaw)
			if p.store != nil && p.raw != nil {
				pairs = append(pairs, p)
			}
		}
	}
	return pairs
}

// share returns the median, over the rounds, of the store's rate relative to that of raw
// reads.
func (p *readsOf) share() float64 {
	var shares []float64
	for i := range min(len(p.store.Runs), len(p.raw.Runs)) {
		if raw := p.raw.Runs[i].OpsPerSecond; raw > 0 {
			shares = append(shares, p.store.Runs[i].OpsPerSecond/raw)
		}
	}
	if len(shares) == 0 {
		return 0
	}
	return loadgen.Median(shares)
}

// perRead returns a measure of the store's runs for each read, the median of the runs.
func (p *readsOf) perRead(measure string) (float64, bool) {
	var values []float64
	for _, run := range p.store.Runs {
		if v, ok := run.Measures[measure]; ok && run.Ops > 0 {
			values = append(values, v/float64(run.Ops))
		}
	}
	if len(values) == 0 {
		return 0, false
	}
	return loadgen.Median(values), true
}

func readsLead(r *results.Result) string {
	pairs := readPairs(r)
	if len(pairs) == 0 {
		return "Reads of the store beside raw reads of the same files."
	}
	most := pairs[0].threads
	for _, p := range pairs {
		most = max(most, p.threads)
	}
	var parts []string
	for _, p := range pairs {
		if p.threads == most {
			parts = append(parts, fmt.Sprintf("%s %s reads/s (%s of raw preads)", p.distribution, chart.Number(medianRate(p.store)), chart.Percent(p.share())))
		}
	}
	return fmt.Sprintf("%s: %s.", report.Plural(most, "thread"), strings.Join(parts, ", "))
}

func readsSections(r *results.Result) []report.Section {
	pairs := readPairs(r)
	s := report.Section{Title: "Reads", Text: []string{readsConditions(pairs)}, Tables: []*report.Table{readRates(pairs), readCosts(pairs)}}
	threads := numbersOf(r, paramThreads)
	for _, n := range threads {
		s.Figures = append(s.Figures, readBars(r, pairs, n))
	}
	sections := []report.Section{s}
	if len(threads) > 0 {
		sections = append(sections, report.Section{Title: "Latencies", Figures: []*chart.Figure{readTails(r, pairs, threads[len(threads)-1])}})
	}
	return append(sections, jitcaskReads(r, pairs))
}

// readsConditions says what the reads had to go through.
func readsConditions(pairs []readsOf) string {
	if len(pairs) == 0 {
		return "Nothing was measured."
	}
	c := pairs[0].store
	data, _ := c.Measure(measureDataBytes)
	keys, _ := c.Measure(measureKeys)
	text := fmt.Sprintf("%s keys in files of %s.", chart.Number(keys), chart.Bytes(data))
	if cache, ok := c.Measure(measureCache); ok && cache > 0 {
		text = fmt.Sprintf("%s keys in files of %s, %s times the block cache of %s.", chart.Number(keys), chart.Bytes(data), chart.Number(data/cache), chart.Bytes(cache))
	}
	if evicted, _ := c.Measure(measureEvicted); evicted > 0 {
		return text + " The files were dropped from the page cache before each run, and every 50 ms during it, so reads beyond the block cache asked the disk. " +
			"A virtual disk may have caches of its own."
	}
	return text + " The files were left in the page cache: reads beyond the block cache asked the kernel, and the disk only if the files are larger than memory."
}

// readRates has the rates.
func readRates(pairs []readsOf) *report.Table {
	t := &report.Table{
		Head: []string{"distribution", "threads", "reads/s", "raw preads/s", "of raw", "p50", "p99"},
		Caption: "Medians of the runs. Raw preads are of as many bytes as a file read of the store had in the mean, at random places of the same files, by as many threads, in runs that alternate. " +
			"Reads of popular keys find what other reads left in memory, so their rate may exceed that of raw preads.",
	}
	for i := range pairs {
		p := &pairs[i]
		nanos := p.store.MedianRun().Operation("get").Nanos
		t.Rows = append(t.Rows, []report.Entry{
			report.Words(p.distribution), report.Words(strconv.Itoa(p.threads)),
			report.Figure(chart.Number(medianRate(p.store)), medianRate(p.store)), report.Words(chart.Number(medianRate(p.raw))), report.Figure(chart.Percent(p.share()), p.share()),
			report.Cost(chart.Nanos(float64(nanos.P50)), float64(nanos.P50)), report.Cost(chart.Nanos(float64(nanos.P99)), float64(nanos.P99)),
		})
	}
	return t
}

// readCosts has what the reads took from files and from the disk.
func readCosts(pairs []readsOf) *report.Table {
	t := &report.Table{
		Head: []string{"distribution", "threads", "file reads/s", "file reads a read", "bytes a read", "disk a read", "disk/s"},
		Caption: "File reads and bytes: what the store asked the files for. Disk: bytes that the disk delivered, with the kernel's read-ahead. " +
			"Values of 256 bytes and more lie apart from their keys, in files of their own; the block cache holds those that are read often, one by one.",
	}
	for i := range pairs {
		p := &pairs[i]
		calls, counted := p.perRead(measureFileReads)
		bytes, _ := p.perRead(measureFileBytes)
		disk, onDisk := p.perRead(measureDiskBytes)
		rate := medianRate(p.store)
		row := []report.Entry{report.Words(p.distribution), report.Words(strconv.Itoa(p.threads))}
		for _, f := range []struct {
			known bool
			text  string
		}{
			{counted, chart.Number(calls * rate)}, {counted, chart.Number(calls)}, {counted, chart.Bytes(bytes)},
			{onDisk, chart.Bytes(disk)}, {onDisk, chart.Bytes(disk * rate)},
		} {
			if !f.known {
				f.text = "not known"
			}
			row = append(row, report.Words(f.text))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// readBars shows the rates of one number of threads.
func readBars(r *results.Result, pairs []readsOf, threads int) *chart.Figure {
	f := &chart.Figure{Title: "Reads by " + report.Plural(threads, "thread"), X: chart.Axis{Label: "distribution", Kind: chart.Categories}, Note: report.Note(r, nil)}
	bars := &chart.Bars{Layers: []chart.Layer{{Name: readerStore, Series: 0}, {Name: readerRaw + " of the same size", Series: 1}}}
	for _, p := range pairs {
		if p.threads != threads {
			continue
		}
		bars.X = append(bars.X, float64(len(f.X.Names)))
		f.X.Names = append(f.X.Names, p.distribution)
		bars.Layers[0].Y = append(bars.Layers[0].Y, medianRate(p.store))
		bars.Layers[1].Y = append(bars.Layers[1].Y, medianRate(p.raw))
	}
	f.Panels = []chart.Panel{{Y: chart.Axis{Label: "reads/s"}, Marks: []chart.Mark{bars}}}
	return f
}

// readTails shows the latencies at each percentile, for one number of threads.
func readTails(r *results.Result, pairs []readsOf, threads int) *chart.Figure {
	f := &chart.Figure{
		Title: "Latency by percentile, " + report.Plural(threads, "thread"), X: chart.Axis{Label: "percentile", Kind: chart.Tail}, Note: report.Note(r, nil),
	}
	panel := chart.Panel{Y: chart.Axis{Label: "latency", Kind: chart.Log10, Format: chart.Nanos}}
	for _, p := range pairs {
		run := p.store.MedianRun()
		if p.threads == threads && len(run.Latencies) > 0 {
			line := report.Tail(&run.Latencies[0], len(panel.Marks))
			line.Name = p.distribution
			panel.Marks = append(panel.Marks, line)
		}
	}
	f.Panels = []chart.Panel{panel}
	return f
}

// jitcaskReads has the figures of the article, and ours of the same reads.
func jitcaskReads(r *results.Result, pairs []readsOf) report.Section {
	t := &report.Table{
		Head: []string{"reads of JitCask", "reads/s", "kvd (of raw preads)"}, Prose: true,
		Caption: "As published: keys of 64 bytes, values of 2 KiB stored as 1.5 KiB, an SSD advertised with 45,000 reads/s. The Zipfian reads beyond memory were measured in two runs each. " +
			"A pipelined caller has many reads under way; kvd: 1 thread one after the other, else the most threads. Compare the share of raw preads with JitCask's share of 45,000: the disks differ.",
	}
	most := 0
	if threads := numbersOf(r, paramThreads); len(threads) > 0 {
		most = threads[len(threads)-1]
	}
	for _, row := range []struct {
		reads, published string
		distribution     workload.Distribution // "": none of ours
		theta            float64               // of that
		threads          int
	}{
		{"random, in memory", "several 100,000", "", 0, 0},
		{"random, beyond memory, one after the other", "2,200; 5,500 without read-ahead", workload.Uniform, 0, 1},
		{"random, beyond memory, pipelined", "40,846 and 42,876", workload.Uniform, 0, most},
		{"scrambled Zipfian, theta 0.99", "69,637 and 80,906", workload.ScrambledZipfian, 0.99, most},
		{"scrambled Zipfian, theta 0.999", "76,000 to 105,000", workload.ScrambledZipfian, 0.999, most},
		{"Zipfian, theta 0.999", "110,000 to 217,000", workload.Zipfian, 0.999, most},
	} {
		ours := "-"
		for i := range pairs {
			p := &pairs[i]
			if p.distribution == string(row.distribution) && p.threads == row.threads && p.theta() == row.theta {
				ours = fmt.Sprintf("%s (%s)", chart.Number(medianRate(p.store)), chart.Percent(p.share()))
			}
		}
		t.Rows = append(t.Rows, []report.Entry{report.Words(row.reads), report.Words(row.published), report.Words(ours)})
	}
	return report.Section{Title: "The article's figures", Tables: []*report.Table{t}}
}

// theta returns the skew of the distribution, 0 if it has none.
func (p *readsOf) theta() float64 {
	var w struct {
		Theta float64 `json:"theta"`
	}
	decode(p.store.Workload, &w)
	return w.Theta
}
