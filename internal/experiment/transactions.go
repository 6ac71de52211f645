package experiment

import (
	"fmt"
	"strconv"

	"github.com/kvd-db/kvd/internal/chart"
	"github.com/kvd-db/kvd/internal/report"
	"github.com/kvd-db/kvd/internal/results"
)

const paramTransaction = "transaction"

// TransactionParams returns the parameters of a cell of transactions: what they do, such as
// 4r2w, and by how many threads.
func TransactionParams(shape string, threads int) []results.Param {
	return []results.Param{{Name: paramTransaction, Value: shape}, {Name: paramThreads, Value: strconv.Itoa(threads)}}
}

// Transactions draws the rate and the conflicts of transactions by threads. The command measures
// its cells, as trials of a workload.Bench.
func Transactions() *Experiment {
	return &Experiment{Name: "txn", Title: "Transactions by threads", Lead: transactionsLead, Sections: transactionsSections}
}

// transactionCells returns the measured cells in the order of the result.
func transactionCells(r *results.Result) (cells []*results.Cell) {
	for _, c := range r.Cells {
		if len(c.Runs) > 0 {
			cells = append(cells, c)
		}
	}
	return cells
}

// conflicts is the share of attempts of transactions that met a conflict, in the median run.
func conflicts(c *results.Cell) float64 { return c.MedianRun().ConflictRate }

func transactionsLead(r *results.Result) string {
	var best *results.Cell
	for _, c := range transactionCells(r) {
		if medianRate(c) > medianRate(best) {
			best = c
		}
	}
	if best == nil {
		return "Transactions by threads."
	}
	threads, _ := strconv.Atoi(best.Param(paramThreads))
	return fmt.Sprintf("%s transactions/s at best, by %s, of which %s of the attempts met a conflict.",
		chart.Number(medianRate(best)), report.Plural(threads, "thread"), chart.Percent(conflicts(best)))
}

func transactionsSections(r *results.Result) []report.Section {
	cells := transactionCells(r)
	if len(cells) == 0 {
		return nil
	}
	s := report.Section{Title: transactionsTitle(cells[0].Param(paramTransaction)), Tables: []*report.Table{transactionsTable(cells)}}
	if len(cells) > 1 {
		s.Figures = []*chart.Figure{transactionsFigure(r, cells)}
	}
	return []report.Section{s}
}

// transactionsTitle says what transactions of a shape such as 4r2w do.
func transactionsTitle(shape string) string {
	var reads, writes int
	if _, err := fmt.Sscanf(shape, "%dr%dw", &reads, &writes); err != nil {
		return shape // as another version writes it
	}
	return fmt.Sprintf("Transactions of %s and %s", report.Plural(reads, "read"), report.Plural(writes, "write"))
}

func transactionsTable(cells []*results.Cell) *report.Table {
	t := &report.Table{
		Head:    []string{"threads", "transactions/s", "mean", "p50", "p99", "p99.9", "max", "conflicts"},
		Caption: "A transaction that meets a conflict begins again; its latency includes all attempts, of which conflicts is a share.",
	}
	for _, c := range cells {
		run := c.MedianRun()
		row := []report.Entry{report.Words(c.Param(paramThreads)), report.Figure(chart.Number(run.OpsPerSecond), run.OpsPerSecond)}
		mean := int64(0)
		if len(run.Trial.Operations) > 0 {
			mean = run.Trial.Operations[0].MeanNanos
		}
		for _, n := range []int64{mean, run.All.P50, run.All.P99, run.All.P999, run.All.Max} {
			row = append(row, report.Words(chart.Nanos(float64(n))))
		}
		t.Rows = append(t.Rows, append(row, report.Words(chart.Percent(conflicts(c)))))
	}
	return t
}

func transactionsFigure(r *results.Result, cells []*results.Cell) *chart.Figure {
	threads := numbersOf(r, paramThreads)
	cell := func(n int) *results.Cell {
		for _, c := range cells {
			if c.Param(paramThreads) == strconv.Itoa(n) {
				return c
			}
		}
		return nil
	}
	rate, tail := byThreads("", 0, threads, cell)
	tail.Series = 1
	met := &chart.Line{Series: 3}
	for _, n := range threads {
		if c := cell(n); c != nil {
			met.X, met.Y = append(met.X, float64(n)), append(met.Y, conflicts(c))
		}
	}
	return &chart.Figure{
		Title: "Transactions by threads", X: chart.Axis{Label: "threads", Kind: chart.Log2}, Note: report.Note(r, nil),
		Panels: []chart.Panel{
			{Y: chart.Axis{Label: "transactions/s"}, Marks: []chart.Mark{rate}},
			{Y: chart.Axis{Label: "p99", Kind: chart.Log10, Format: chart.Nanos}, Height: 110, Marks: []chart.Mark{tail}},
			{Y: chart.Axis{Label: "conflicts", Format: chart.Percent}, Height: 90, Marks: []chart.Mark{met}},
		},
	}
}
