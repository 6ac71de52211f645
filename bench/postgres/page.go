package main

import (
	"fmt"

	benchreport "github.com/kvd-db/kvd/bench/report"
	"github.com/kvd-db/kvd/internal/chart"
	"github.com/kvd-db/kvd/internal/experiment"
	"github.com/kvd-db/kvd/internal/report"
	"github.com/kvd-db/kvd/internal/results"
)

const title = "Micro-batched reads of PostgreSQL, and the same reads of kvd"

// names are what the report calls the stores.
var names = map[string]string{storePostgreSQL: "PostgreSQL", storeServer: "kvd serve", storeEmbedded: "kvd embedded"}

// measured is the cells with runs of a result.
type measured struct{ cells []*results.Cell }

func newMeasured(r *results.Result) (m measured) {
	for _, c := range r.Cells {
		if len(c.Runs) > 0 {
			m.cells = append(m.cells, c)
		}
	}
	return m
}

// cell returns the cell of a store and a batch size; nil without one.
func (m measured) cell(store, batch string) *results.Cell {
	for _, c := range m.cells {
		if c.Param("store") == store && c.Param("batch") == batch {
			return c
		}
	}
	return nil
}

// best returns the cell of a store with the highest median rate among its fixed batch
// sizes; nil without one.
func (m measured) best(store string) (best *results.Cell) {
	for _, c := range m.cells {
		batch := c.Param("batch")
		if c.Param("store") != store || batch == experiment.BatchNone || batch == experiment.BatchAdaptive {
			continue
		}
		if best == nil || benchreport.MedianRate(c) > benchreport.MedianRate(best) {
			best = c
		}
	}
	return best
}

// lead says what batches gain, and how kvd compares.
func lead(r *results.Result) string {
	m := newMeasured(r)
	none, best := m.cell(storePostgreSQL, experiment.BatchNone), m.best(storePostgreSQL)
	if none == nil || best == nil {
		return "PostgreSQL was not measured with and without batches, so this says nothing about what batches gain."
	}
	size := best.Param("batch")
	text := fmt.Sprintf("PostgreSQL answers %s times as many reads in batches of %s as unbatched", benchreport.RatioText(best, none), size)
	if gain, ok := experiment.PublishedGain(size); ok {
		text += fmt.Sprintf("; the article measured %.1f times", gain)
	}
	text += "."
	for _, store := range []string{storeServer, storeEmbedded} {
		if c := m.cell(store, experiment.BatchAdaptive); c != nil {
			text += fmt.Sprintf(" %s answers %s times as many as these batches.", names[store], benchreport.RatioText(c, best))
		}
	}
	return text
}

func sections(r *results.Result) []report.Section {
	m := newMeasured(r)
	all := []report.Section{{Title: "All stores", Text: []string{conditions}, Tables: []*report.Table{m.together()}}}
	for _, s := range []struct{ store, about string }{
		{storePostgreSQL, "A batch is one statement, WHERE pk = ANY($1). One goroutine gathers the reads of all callers until a batch is full or its first read has waited for the time of the flag --linger; " +
			"as many workers execute batches as there are connections, unless flags say otherwise. Unbatched, each read is a statement of its own, and callers wait for a free connection."},
		{storeServer, "A batch is one frame between kvd's Go client and the server, over loopback. Unbatched, each read is a gRPC call of its own. " +
			"A batch of a fixed size has at most so many reads and waits for none; the adaptive default also sends what is there."},
	} {
		if section, ok := experiment.BatchSection(r, s.store, names[s.store], names[s.store], s.about); ok {
			all = append(all, section)
		}
	}
	return all
}

const conditions = "All stores hold the same rows: a key of 20 bytes and a payload of 33. Readers wait for one read before they begin the next, and each payload is checked. " +
	"Each store has 1 GiB for its cache and its writes, so its rows are in memory unless there are more of them than at full scale. " +
	"PostgreSQL and kvd serve are processes of their own, asked over loopback; the embedded store is in the process of the readers and is open only while it is measured. " +
	"Each run follows a warm-up of a tenth of its reads. The cells take turns within a round, and ratios are taken within rounds; in brackets are the least and the most of all rounds."

// together is the table of the cells that say most of each store.
func (m measured) together() *report.Table {
	none, best := m.cell(storePostgreSQL, experiment.BatchNone), m.best(storePostgreSQL)
	t := &report.Table{
		Head: []string{"store", "batch", "run", "mean", "worst", "reads/s", "x unbatched", "x batched"},
		Caption: "The run with the median rate of each. Of the fixed batch sizes, the one with the highest rate. " +
			"x unbatched and x batched: the rate relative to PostgreSQL unbatched, and to its best batches.",
	}
	add := func(c *results.Cell) {
		if c == nil {
			return
		}
		run := c.MedianRun()
		get := run.Operation("get")
		t.Rows = append(t.Rows, []report.Entry{
			report.Words(names[c.Param("store")]), report.Words(c.Param("batch")), report.Words(chart.Seconds(run.Seconds)),
			nanos(get.MeanNanos), nanos(get.Nanos.Max),
			report.Figure(chart.Number(benchreport.MedianRate(c)), benchreport.MedianRate(c)), against(c, none), against(c, best),
		})
	}
	for _, store := range stores {
		add(m.cell(store, experiment.BatchNone))
		add(m.best(store))
		add(m.cell(store, experiment.BatchAdaptive))
	}
	return t
}

func nanos(n int64) report.Entry { return report.Cost(chart.Nanos(float64(n)), float64(n)) }

// against shows the ratio of two cells.
func against(c, of *results.Cell) report.Entry {
	if c == of {
		return report.Words("1")
	}
	return report.Words(benchreport.RatioText(c, of))
}
