package report

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/chart"
	"github.com/kvd-db/kvd/internal/results"
)

// TestWhatAStoreHeldIsDrawn: its files by kind, its debts and what it wrote.
func TestWhatAStoreHeldIsDrawn(t *testing.T) {
	r := testResult()
	run := r.Cells[0].MedianRun()
	assert.Equal(t, "on disk", filesOverTime(run).Layers[0].Name)
	assert.Nil(t, TreeOverTime(r, r.Cells[0], run), "the store told nothing")
	for i := range run.Series {
		run.Series[i].Store = &results.StoreState{Log: 10, Base: uint64(i), Values: 100, Garbage: 40, Debt: 7, Put: uint64(i), Written: uint64(3 * i)}
	}
	run.Series[7].Store.Pressure = 0.5
	area := filesOverTime(run)
	var names []string
	for _, l := range area.Layers {
		names = append(names, l.Name)
	}
	assert.Equal(t, []string{"base", "values", "garbage", "log"}, names, "there are no deltas")
	assert.EqualValues(t, 60, area.Layers[1].Y[0])

	f := TreeOverTime(r, r.Cells[0], run)
	require.Len(t, f.Panels, 2)
	assert.Equal(t, chart.Shade{From: 7, To: 8, Name: "writers were slowed"}, *f.Panels[0].Marks[0].(*chart.Shade))
	written := f.Panels[0].Marks[1].(*chart.Line)
	assert.EqualValues(t, 3, written.Y[19])
	assert.Contains(t, f.SVG(), "The LSM tree over time")
	assert.NotContains(t, f.SVG(), "NaN")
	files := OverTime(r, r.Cells[0], run)
	assert.Equal(t, "base: the oldest tables, merged; values: large values, apart from their keys; "+
		"garbage: of these, overwritten or deleted; log: to recover writes that are not in tables.", files.Note[1])

	first := strings.Count(f.SVG(), `class="sh"`)
	run.Series[0].Store.Pressure = 0.5
	assert.Equal(t, first+2, strings.Count(TreeOverTime(r, r.Cells[0], run).SVG(), `class="sh"`), "the first second is on the axis, in both panels")
	for i := range run.Series {
		run.Series[i].Store.Debt = 0
	}
	f = TreeOverTime(r, r.Cells[0], run)
	assert.Len(t, f.Panels, 1, "no axis of fractions of a byte")
	assert.Contains(t, f.Note[len(f.Note)-1], "wait to be compacted")

	for i := range run.Series {
		run.Series[i].Store.Put = 0
	}
	assert.Nil(t, TreeOverTime(r, r.Cells[0], run), "nothing was put")
}

// TestStagesAreExplained: those that the figure has.
func TestStagesAreExplained(t *testing.T) {
	r := testResult()
	stages := results.Stages{Operation: "get", Bands: []results.StageBand{{From: 0, To: 1, Count: 1, Nanos: results.StagedCall{3: 10, 5: 20}}}}
	f := WhereTimeGoes(r, r.Cells[0], &stages)
	assert.Equal(t, "inbox: until the partition takes the call; engine: reading, or writing to memory and waking the caller.", f.Note[len(f.Note)-1])
}

func TestTailsHaveABandOfAllRuns(t *testing.T) {
	r := testResult()
	r.Cells[0].Runs[0].Latencies = []results.Latencies{{Operation: "get", Buckets: [][2]uint64{{500, 1000}}}}
	f := Tails(r, r.Cells[0], r.Cells[0].MedianRun())
	line := f.Panels[0].Marks[0].(*chart.Line)
	assert.EqualValues(t, 1000, line.Y[0])
	assert.EqualValues(t, 500, line.Low[0])
	assert.EqualValues(t, 1000, line.High[0])
	r.Cells[0].Runs = r.Cells[0].Runs[:1]
	assert.Nil(t, Tails(r, r.Cells[0], r.Cells[0].MedianRun()).Panels[0].Marks[0].(*chart.Line).Low, "one run has no spread")
}
