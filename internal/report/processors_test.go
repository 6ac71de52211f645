package report

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/chart"
	"github.com/kvd-db/kvd/internal/results"
)

// TestProcessorsAreDrawnWhereTheyAreKnown: seconds of which they are not known are left out.
func TestProcessorsAreDrawnWhereTheyAreKnown(t *testing.T) {
	r := testResult()
	c := r.Cells[0]
	run := c.MedianRun()
	assert.Nil(t, ProcessorsOverTime(r, c, run))
	own, other := 0.75, 0.2
	for _, n := range []int{0, 2} {
		assert.Nil(t, ProcessorsOverTime(r, c, run), "one second is no time series")
		run.Series[n].OwnCPU, run.Series[n].OtherCPU = &own, &other
	}
	area := ProcessorsOverTime(r, c, run).Panels[0].Marks[0].(*chart.Area)
	assert.Equal(t, []float64{1, 3}, area.X)
	assert.Equal(t, []float64{0.2, 0.2}, area.Layers[1].Y)
	assert.Contains(t, (&Page{Result: r, Sections: Cells(r)}).HTML(), "this process, with the store")

	c.Target = map[string]any{"kind": "server"}
	assert.Contains(t, ProcessorsOverTime(r, c, run).SVG(), "this process: load and client")

	r.Cells = append(r.Cells, &results.Cell{Params: []results.Param{{Name: "mix", Value: "OTHER"}}, Runs: []*results.Run{testRun(10)}})
	run.Stages = []results.Stages{results.NewStages("get", []results.StagedCall{{5: 100}})}
	s := costs(r)
	require.Len(t, s.Figures, 2, "of the fastest cell")
	assert.Equal(t, "Processors over time", s.Figures[1].Title)
}
