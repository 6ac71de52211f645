package report

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/chart"
	"github.com/kvd-db/kvd/internal/loadgen"
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
	assert.Equal(t, []float64{0, 1, 3}, area.X, "the first second from its beginning on")
	assert.Equal(t, []float64{0.2, 0.2, 0.2}, area.Layers[1].Y)
	assert.Contains(t, (&Page{Result: r, Sections: Cells(r)}).HTML(), "this process, with the store")

	c.Target = map[string]any{"kind": "server"}
	assert.Contains(t, ProcessorsOverTime(r, c, run).SVG(), "this process: load and client")
	assert.Len(t, ProcessorsOverTime(r, c, run).Panels, 1, "nothing is known of the server")
	for _, n := range []int{3, 5} {
		run.Series[n].ServerCPU = &own
	}
	f := ProcessorsOverTime(r, c, run)
	require.Len(t, f.Panels, 2)
	assert.Equal(t, []float64{4, 6}, f.Panels[1].Marks[0].(*chart.Area).X)
	assert.Contains(t, f.SVG(), "the server")

	r.Cells = append(r.Cells, &results.Cell{Params: []results.Param{{Name: "mix", Value: "OTHER"}}, Runs: []*results.Run{testRun(10)}})
	run.Stages = []results.Stages{results.NewStages("get", []results.StagedCall{{5: 100}})}
	s := costs(r)
	require.Len(t, s.Figures, 2, "of the fastest cell")
	assert.Equal(t, "Processors over time", s.Figures[1].Title)
}

// TestClientAndServerAreToldApart: in tables too, and what is not known is said.
func TestClientAndServerAreToldApart(t *testing.T) {
	r := testResult()
	c := r.Cells[0]
	run := c.MedianRun()
	text := func() string {
		page := Page{Result: r, Sections: Cells(r)}
		return string(page.Markdown())
	}
	run.Server = &loadgen.ServerUse{Processors: 8, Share: 0.25, CPUMicrosPerOp: 12}
	assert.NotContains(t, text(), "server", "the store is in this process")
	c.Target, run.CPUMicrosPerOp = map[string]any{"kind": "server"}, 3
	own, other := 0.125, 0.5
	run.OwnCPU, run.OtherCPU = &own, &other
	for _, says := range []string{
		"| CPU time of an operation, in this process | 3 µs |", "| CPU time of an operation, in the server | 12 µs |", "| the server, of its 8 processors | 25 % |",
		"(the server among them, if it ran here: it used up to 25 % of its own)",
	} {
		assert.Contains(t, text(), says)
	}
	run.Server = &loadgen.ServerUse{Unknown: "gone"}
	assert.Contains(t, text(), "| CPU time of an operation, in the server | not known: gone |")
	run.Server = nil
	assert.Contains(t, text(), "| CPU time of an operation, in the server | not known: pass --admin |")

	fast := testRun(5000)
	fast.OwnCPU, fast.OtherCPU, fast.Server = &own, &other, &loadgen.ServerUse{Processors: 8, Share: 0.25}
	r.Cells = append(r.Cells, &results.Cell{Params: []results.Param{{Name: "mix", Value: "fast"}}, Target: c.Target, Runs: []*results.Run{fast}})
	assert.Contains(t, text(), "| fast | - | - | 12.5 % | 50 % | 25 % |")
	assert.Contains(t, text(), "| - | - | 12.5 % | 50 % | not known |")
}
