package experiment

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kvd-db/kvd/internal/chart"
	"github.com/kvd-db/kvd/internal/report"
	"github.com/kvd-db/kvd/internal/results"
)

// Parameters of the cells of YCSB.
const (
	paramWorkload = "workload"
	paramCache    = "cache"
)

// CoreParams returns the parameters of a cell of YCSB. cache is "" if its size was not
// chosen.
func CoreParams(workload, cache string, threads int) []results.Param {
	params := []results.Param{{Name: paramWorkload, Value: workload}}
	if cache != "" {
		params = append(params, results.Param{Name: paramCache, Value: cache})
	}
	return append(params, results.Param{Name: paramThreads, Value: strconv.Itoa(threads)})
}

// YCSB draws the core workloads by threads and size of the block cache, the experiment of
// the article on CruzDB. The command measures its cells, as trials of a workload.Bench.
func YCSB() *Experiment {
	return &Experiment{Name: "ycsb", Title: "YCSB by threads and cache", Lead: ycsbLead, Sections: ycsbSections}
}

// ycsb gives access to the cells by their parameters.
type ycsb struct {
	result    *results.Result
	workloads []string
	caches    []string // "" if the size was not chosen
	threads   []int
}

func newYCSB(r *results.Result) *ycsb {
	y := &ycsb{result: r, workloads: valuesOf(r, paramWorkload), caches: valuesOf(r, paramCache), threads: numbersOf(r, paramThreads)}
	if len(y.caches) == 0 {
		y.caches = []string{""}
	}
	slices.Sort(y.workloads)
	return y
}

// cell returns a measured cell, nil if there is none.
func (y *ycsb) cell(workload, cache string, threads int) *results.Cell {
	if c := y.result.Cell(CoreParams(workload, cache, threads)); c != nil && len(c.Runs) > 0 {
		return c
	}
	return nil
}

// best returns the number of threads with the highest rate, and that rate.
func (y *ycsb) best(workload, cache string) (threads int, rate float64) {
	for _, n := range y.threads {
		if r := medianRate(y.cell(workload, cache, n)); r > rate {
			threads, rate = n, r
		}
	}
	return threads, rate
}

func cacheLabel(cache string) string {
	if cache == "" {
		return "operations/s"
	}
	return "cache " + cache
}

func ycsbLead(r *results.Result) string {
	y := newYCSB(r)
	cache := y.caches[len(y.caches)-1]
	var parts []string
	for _, w := range y.workloads {
		if threads, rate := y.best(w, cache); rate > 0 {
			parts = append(parts, fmt.Sprintf("%s %s (%d)", w, chart.Number(rate), threads))
		}
	}
	if len(parts) == 0 {
		return "Operations/s by workload, threads and cache."
	}
	with := ""
	if cache != "" {
		with = ", with a block cache of " + cache
	}
	return fmt.Sprintf("Operations/s at the best number of threads%s: %s.", with, strings.Join(parts, ", "))
}

func ycsbSections(r *results.Result) []report.Section {
	y := newYCSB(r)
	if len(y.workloads) == 0 {
		return nil
	}
	sections := []report.Section{y.overview(), y.multiples(), y.cruzDB()}
	for _, w := range y.workloads {
		sections = append(sections, report.Section{Title: "Workload " + w, Text: []string{coreText[w]}, Tables: []*report.Table{y.table(w)}})
	}
	return sections
}

// coreText says what the workloads do.
var coreText = map[string]string{
	"A": "50 % reads, 50 % updates, scrambled Zipfian.",
	"B": "95 % reads, 5 % updates, scrambled Zipfian.",
	"C": "Reads, scrambled Zipfian.",
	"D": "95 % reads, which prefer the newest records, and 5 % insertions.",
	"E": "95 % scans of 1 to 100 records, 5 % insertions, scrambled Zipfian.",
	"F": "50 % reads, 50 % read-modify-writes in a transaction, scrambled Zipfian.",
}

// overview has the best rates, and how much the largest cache gains over the smallest.
func (y *ycsb) overview() report.Section {
	t := &report.Table{
		Head:    []string{"workload"},
		Caption: "Operations/s at the best number of threads (in brackets), the median of the runs. Cache sizes are those at full scale.",
	}
	for _, cache := range y.caches {
		t.Head = append(t.Head, cacheLabel(cache))
	}
	if len(y.caches) > 1 {
		t.Head = append(t.Head, "large / small")
	}
	for _, w := range y.workloads {
		row := []report.Entry{report.Words(w)}
		var rates []float64
		for _, cache := range y.caches {
			threads, rate := y.best(w, cache)
			rates = append(rates, rate)
			row = append(row, report.Words(rateText(rate, threads)))
		}
		if len(y.caches) > 1 {
			row = append(row, ratioEntry(rates[len(rates)-1], rates[0]))
		}
		t.Rows = append(t.Rows, row)
	}
	return report.Section{
		Title: "Overview", Tables: []*report.Table{t},
		Text: []string{"A record is one value. Values of 256 bytes and more lie apart from their keys; the block cache holds those that are read often, one by one, without their neighbours."},
	}
}

func rateText(rate float64, threads int) string {
	if rate == 0 {
		return "-"
	}
	return fmt.Sprintf("%s (%d)", chart.Number(rate), threads)
}

// ratioEntry writes one rate relative to another.
func ratioEntry(rate, to float64) report.Entry {
	if rate == 0 || to == 0 {
		return report.Words("-")
	}
	return report.Words(chart.Times(rate / to))
}

// multiples has a small figure for each workload: rate by threads, above the p99.
func (y *ycsb) multiples() report.Section {
	s := report.Section{Title: "By threads", Narrow: true, Text: []string{"Each figure has a scale of its own. p99 is that of the slowest kind of operation, in the median run. Bands: the least and the highest of the runs."}}
	for _, w := range y.workloads {
		f := &chart.Figure{
			Title: "Workload " + w, X: chart.Axis{Label: "threads", Kind: chart.Log2}, Note: report.Note(y.result, nil), Width: report.NarrowWidth,
		}
		rates := chart.Panel{Y: chart.Axis{Label: "operations/s"}, Height: 130}
		tails := chart.Panel{Y: chart.Axis{Label: "p99", Kind: chart.Log10, Format: chart.Nanos}, Height: 110}
		for i, cache := range y.caches {
			rate, tail := byThreads(cacheLabel(cache), i, y.threads, func(threads int) *results.Cell { return y.cell(w, cache, threads) })
			rates.Marks, tails.Marks = append(rates.Marks, rate), append(tails.Marks, tail)
		}
		f.Panels = []chart.Panel{rates, tails}
		s.Figures = append(s.Figures, f)
	}
	return s
}

// table has the rates and latencies of one workload.
func (y *ycsb) table(workload string) *report.Table {
	t := &report.Table{Head: []string{"threads"}, Caption: "Workload " + workload + ". Medians of the runs; p99 of the slowest kind of operation."}
	for _, cache := range y.caches {
		t.Head = append(t.Head, cacheLabel(cache), "p99")
	}
	if len(y.caches) > 1 {
		t.Head = append(t.Head, "large / small")
	}
	for _, n := range y.threads {
		row := []report.Entry{report.Words(strconv.Itoa(n))}
		for _, cache := range y.caches {
			c := y.cell(workload, cache, n)
			if c == nil {
				row = append(row, report.Words("-"), report.Words("-"))
				continue
			}
			rate, p99 := medianRate(c), slowestP99(c)
			row = append(row, report.Figure(chart.Number(rate), rate), report.Cost(chart.Nanos(p99), p99))
		}
		if len(y.caches) > 1 {
			row = append(row, ratioEntry(medianRate(y.cell(workload, y.caches[len(y.caches)-1], n)), medianRate(y.cell(workload, y.caches[0], n))))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// cruzRates are the rates of CruzDB by one thread: of its code of June 2017, with a log in
// LMDB that does not sync, on two processors; up to 100,000 records of 1,000 bytes, 4
// seconds each. The article itself has figures without numbers.
var cruzRates = map[string][2]float64{ // cache of 4 MiB, of 8 GiB
	"A": {2_748, 7_782}, "B": {9_233, 49_166}, "C": {11_568, 65_030},
	"D": {7_337, 26_969}, "E": {586, 5_493}, "F": {2_842, 4_958},
}

// cruzDB sets rates by one thread beside those of CruzDB.
func (y *ycsb) cruzDB() report.Section {
	t := &report.Table{
		Head: []string{"workload"},
		Caption: "Operations/s by the fewest threads (in brackets). CruzDB: its code of June 2017, built and measured on two processors, one thread, reads in transactions, its log in LMDB without a sync, " +
			"up to 100,000 records of 1,000 bytes, 4 s each; one run, in which differences below a factor of 1.5 are noise.",
	}
	for _, cache := range y.caches {
		t.Head = append(t.Head, strings.TrimSpace("kvd "+cache))
	}
	if len(y.caches) > 1 {
		t.Head = append(t.Head, "large / small")
	}
	t.Head = append(t.Head, "CruzDB 4MiB", "CruzDB 8GiB", "large / small")
	for _, w := range y.workloads {
		row := []report.Entry{report.Words(w)}
		var rates []float64
		for _, cache := range y.caches {
			rate := medianRate(y.cell(w, cache, y.threads[0]))
			rates = append(rates, rate)
			row = append(row, report.Words(rateText(rate, y.threads[0])))
		}
		if len(y.caches) > 1 {
			row = append(row, ratioEntry(rates[len(rates)-1], rates[0]))
		}
		cruz := cruzRates[w]
		row = append(row, report.Words(chart.Number(cruz[0])), report.Words(chart.Number(cruz[1])), ratioEntry(cruz[1], cruz[0]))
		t.Rows = append(t.Rows, row)
	}
	return report.Section{
		Title: "CruzDB's figures", Tables: []*report.Table{t},
		Text: []string{"The article on CruzDB gives no numbers besides its charts. It says: the large cache is nearly 6 times as fast as the small one on C; more threads (1, 2, 4) are slower; " +
			"reads of a snapshot are slightly faster than those in transactions, and lose less with more threads; E is surprisingly slow. It loaded 500,000 records and did 500,000 operations."},
	}
}
