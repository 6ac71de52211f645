package main

import (
	"fmt"
	"math"
	"slices"

	benchreport "github.com/kvd-db/kvd/bench/report"
	"github.com/kvd-db/kvd/internal/chart"
	"github.com/kvd-db/kvd/internal/report"
	"github.com/kvd-db/kvd/internal/results"
)

// newPage returns the report of all parts.
func newPage(r *results.Result) *report.Page {
	p := &report.Page{Title: "kvd and its peers", Lead: lead(r), Result: r}
	for _, part := range []struct {
		name, title string
		text        []string
	}{
		{partEmbedded, "Embedded stores", []string{
			"Each store has a process of its own, a quarter of its memory for writes and the rest for its cache, and compresses nothing. Its process is frozen while another store is measured. " +
				"Puts write values of 128 B and wait for the disk. The mixes of puts, gets and deletes have values of 1 KiB, 4 threads and a store that is empty at first; gets read 100 B values of a store that has settled.",
			"Writes wait for the disk, or only until the kernel has them. Where a store can only acknowledge them earlier, while its own process holds them, its row says so.",
		}},
		{partService, "Services", []string{
			"Each server is a process of its own on loopback, with 1 M keys at full scale and values of 128 B, and is asked by a Go client in another process; all share the processors. A server is frozen while another is measured. " +
				"rueidis is Redis with its Go client's defaults, rueidis-100us the same with a flush delay of 100 µs. Redis never rewrites its log and takes no snapshots.",
			"redis-benchmark is Redis' own load generator in C, with one connection for each caller. It checks no answer, so read it as what Redis can do, and not as a Go program's rate.",
		}},
	} {
		cells := cellsOf(r, part.name)
		if len(cells) == 0 {
			continue
		}
		s := report.Section{Title: part.title, Text: part.text, Tables: []*report.Table{rates(cells), latencies(cells)}}
		if f := forest(r, cells); f != nil {
			s.Figures = []*chart.Figure{f}
		}
		p.Sections = append(p.Sections, s)
	}
	return p
}

// cellsOf returns the cells of a part that were measured.
func cellsOf(r *results.Result, part string) (cells []*results.Cell) {
	for _, c := range r.Cells {
		if c.Param("part") == part && len(c.Runs) > 0 {
			cells = append(cells, c)
		}
	}
	return cells
}

// oursOf returns our cell of the same workload; nil without one.
func oursOf(cells []*results.Cell, c *results.Cell) *results.Cell {
	i := slices.IndexFunc(cells, func(o *results.Cell) bool {
		return o.Param("workload") == c.Param("workload") && o.Param("store") == ours
	})
	if i < 0 {
		return nil
	}
	return cells[i]
}

// pair is our cell and that of a peer with the same workload.
type pair struct{ ours, peer *results.Cell }

// pairs returns all of them, in the order of the cells.
func pairs(cells []*results.Cell) (list []pair) {
	for _, c := range cells {
		if o := oursOf(cells, c); o != nil && o != c {
			if _, ok := benchreport.Ratio(o, c); ok {
				list = append(list, pair{o, c})
			}
		}
	}
	return list
}

// lead counts the comparisons whose range does not include 1.
func lead(r *results.Result) string {
	text := ""
	for _, part := range []struct{ name, title string }{{partEmbedded, "Embedded"}, {partService, "As a service"}} {
		faster, slower, same := 0, 0, 0
		for _, p := range pairs(cellsOf(r, part.name)) {
			switch s, _ := benchreport.Ratio(p.ours, p.peer); {
			case s.Least > 1:
				faster++
			case s.Most < 1:
				slower++
			default:
				same++
			}
		}
		if faster+slower+same > 0 {
			text += fmt.Sprintf("%s, %s is faster than a peer in %d of %d comparisons, slower in %d, and in %d the rounds disagree. ", part.title, ours, faster, faster+slower+same, slower, same)
		}
	}
	if text == "" {
		return "Nothing was compared."
	}
	return text[:len(text)-1]
}

// rates has a row for each workload and store.
func rates(cells []*results.Cell) *report.Table {
	t := &report.Table{
		Head: []string{"workload", "store", "ops/s", ours + " / it", "CPU/op", "writes wait for"},
		Caption: ours + " / it: the ratio of rates within a round, its median, and the least and the most of all rounds; a range that includes 1 says nothing. " +
			"CPU/op: processor time of the process, or of client and server together.",
	}
	for i, c := range cells {
		ratio := "-"
		if o := oursOf(cells, c); o != c {
			ratio = benchreport.RatioText(o, c)
		}
		t.Rows = append(t.Rows, append(rowNames(cells, i), report.Words(chart.Number(benchreport.MedianRate(c))), report.Words(ratio),
			cpu(c.MedianRun().CPUMicrosPerOp), report.Words(c.Param("durability"))))
	}
	return t
}

// latencies has a row for each workload and store.
func latencies(cells []*results.Cell) *report.Table {
	t := &report.Table{
		Head:    []string{"workload", "store", "put p50", "p99", "max", "get p50", "p99", "max"},
		Caption: "The run with the median rate of each.",
	}
	for i, c := range cells {
		row := rowNames(cells, i)
		for _, operation := range []string{"put", "get"} {
			o := c.MedianRun().Operation(operation)
			row = append(row, latency(o.Count, o.Nanos.P50), latency(o.Count, o.Nanos.P99), latency(o.Count, o.Nanos.Max))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// rowNames returns the workload, unless the row above has the same, and the store.
func rowNames(cells []*results.Cell, i int) []report.Entry {
	name := cells[i].Param("workload")
	if i > 0 && cells[i-1].Param("workload") == name {
		name = ""
	}
	return []report.Entry{report.Words(name), report.Words(cells[i].Param("store"))}
}

func latency(count uint64, nanos int64) report.Entry {
	if count == 0 {
		return report.Words("-")
	}
	return report.Words(chart.Nanos(float64(nanos)))
}

func cpu(micros float64) report.Entry {
	if micros == 0 {
		return report.Words("-")
	}
	return report.Words(chart.Nanos(micros * 1e3))
}

// forest draws the ratios of our rates to those of the peers, with their ranges. The axis
// is logarithmic. It returns nil without ratios.
func forest(r *results.Result, cells []*results.Cell) *chart.Figure {
	list := pairs(cells)
	if len(list) == 0 {
		return nil
	}
	one := 0.0
	rows := &chart.Intervals{}
	y := chart.Axis{Kind: chart.Categories}
	for _, p := range slices.Backward(list) { // the first row is on top
		s, _ := benchreport.Ratio(p.ours, p.peer)
		if s.Least <= 0 {
			continue // in one of the rounds ours did nothing
		}
		series := 7
		switch {
		case s.Least > 1:
			series = 2
		case s.Most < 1:
			series = 1
		}
		rows.Rows = append(rows.Rows, chart.Interval{Row: len(y.Names), Low: math.Log2(s.Least), Mid: math.Log2(s.Median), High: math.Log2(s.Most), Series: series})
		y.Names = append(y.Names, p.peer.Param("workload")+", "+p.peer.Param("store"))
	}
	return &chart.Figure{
		Title: "Rate of " + ours + " over that of a peer", X: chart.Axis{Label: "times the rate of the peer", Format: times, Binary: true, Free: true},
		Panels: []chart.Panel{{Y: y, Height: float64(20*len(y.Names) + 20), Marks: []chart.Mark{&chart.Rule{X: &one}, rows}}},
		Note:   append(report.Note(r, nil), "The median of the rounds, with the least and the most of them. Right of 1, "+ours+" is faster."),
	}
}

// times writes the ratio of a logarithm.
func times(log2 float64) string { return chart.Times(math.Exp2(log2)) }
