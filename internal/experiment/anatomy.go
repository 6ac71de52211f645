package experiment

import (
	"math"
	"slices"

	"github.com/kvd-db/kvd/internal/chart"
	"github.com/kvd-db/kvd/internal/report"
	"github.com/kvd-db/kvd/internal/results"
)

// anatomy shows the sizes of micro-batches by load: how many had which size, and with synced
// writes how many of these share a sync. It is nil if the store did not tell, or there is one
// load only.
func (c *curve) anatomy() *chart.Figure {
	f := &chart.Figure{
		Title: "Sizes of micro-batches by offered load", X: chart.Axis{Label: "offered operations/s"},
		Note: append(report.Note(c.result, nil), "A row holds the sizes from half of its label, exclusive, to its label; colours are shares of the batches of a load."),
	}
	for _, kind := range []struct {
		label string
		of    func(*results.Activity) [][2]uint64
		line  *chart.Line
	}{
		{"writes a batch", func(a *results.Activity) [][2]uint64 { return a.WriteBatches }, c.writesPerSync()},
		{"reads a batch", func(a *results.Activity) [][2]uint64 { return a.ReadBatches }, nil},
	} {
		heat := c.batchSizes(kind.of)
		if heat == nil {
			continue
		}
		p := chart.Panel{Y: chart.Axis{Label: kind.label, Kind: chart.Log2}, Height: 150, Marks: []chart.Mark{heat}}
		if kind.line != nil {
			p.Marks = append(p.Marks, kind.line)
		}
		f.Panels = append(f.Panels, p)
	}
	if len(f.Panels) == 0 {
		return nil
	}
	return f
}

// batchSizes returns the shares of the sizes of batches by load; nil if there is nothing to
// compare: one load, or one size.
func (c *curve) batchSizes(of func(*results.Activity) [][2]uint64) *chart.Heat {
	if len(c.loads) < 2 {
		return nil
	}
	largest := uint64(0)
	for _, run := range c.runs {
		if a := run.Counters(); a != nil {
			for _, b := range of(a) {
				largest = max(largest, b[0])
			}
		}
	}
	if largest < 2 { // all had one operation
		return nil
	}
	heat := &chart.Heat{Of: "% of the batches", X: edges(c.loads)}
	for size := 1.0; size <= float64(largest); size *= 2 {
		heat.Y = append(heat.Y, size/math.Sqrt2)
	}
	heat.Y = append(heat.Y, float64(largest)*math.Sqrt2)
	for _, run := range c.runs {
		column := make([]float64, len(heat.Y)-1)
		if a := run.Counters(); a != nil {
			total := 0.0
			for _, b := range of(a) {
				total += float64(b[1])
			}
			for _, b := range of(a) {
				column[int(math.Round(math.Log2(float64(b[0]))))] = 100 * float64(b[1]) / total
			}
		}
		heat.Count = append(heat.Count, column)
	}
	return heat
}

// edges returns the ends of columns around ascending values, half way between them.
func edges(values []float64) []float64 {
	list := []float64{max(values[0]-(values[1]-values[0])/2, 0)}
	for i := 1; i < len(values); i++ {
		list = append(list, (values[i-1]+values[i])/2)
	}
	last := len(values) - 1
	return append(list, values[last]+(values[last]-values[last-1])/2)
}

// leastSyncs is the least number of syncs of which a mean is drawn.
const leastSyncs = 10

// writesPerSync returns how many writes shared a sync of the log, by load; nil unless each
// write waited for one.
func (c *curve) writesPerSync() *chart.Line {
	line := &chart.Line{Name: "writes a sync of the log", Series: 1}
	for i, run := range c.runs {
		a := run.Counters()
		synced := slices.Contains(c.cells[i].Params, results.Param{Name: "durability", Value: "sync"})
		if a == nil || !synced || a.LogSyncs < leastSyncs {
			continue
		}
		writes := run.Trial.Operation("put").Count + run.Trial.Operation("delete").Count
		line.X, line.Y = append(line.X, c.loads[i]), append(line.Y, max(float64(writes)/float64(a.LogSyncs), 1))
	}
	if len(line.X) == 0 {
		return nil
	}
	return line
}
