package experiment

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/chart"
	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/results"
)

// microbatchResult has round figures: a batch of n is n times as fast as one of 1.
func microbatchResult() *results.Result {
	e := Microbatch{Stores: []string{StoreServer, StoreDisk}, Sizes: []int{1, 16, 32}, Readers: []int{300, 1}, Reads: 60_000}.Experiment()
	r := &results.Result{Experiment: e.Name, Began: "2026-01-02T03:04:05Z", Environment: loadgen.Environment{Commit: "abc"}}
	for _, c := range e.Cells {
		cell := &results.Cell{Params: c.Params, Target: map[string]any{"readLatencyNanos": 500_000, "readDepth": 10}}
		batch := cell.Param("batch")
		n := map[string]float64{BatchNone: 2, BatchAdaptive: 31}[batch]
		if size, err := strconv.Atoi(batch); err == nil {
			n = float64(size)
		}
		mean := int64(float64(300*time.Millisecond) / n)
		get := loadgen.Operation{Name: "get"}
		get.Count, get.MeanNanos = c.Config.Operations, mean
		get.Nanos.P50, get.Nanos.P90, get.Nanos.P99, get.Nanos.P999, get.Nanos.Max = mean, mean, 2*mean, 4*mean, 10*mean
		cell.Runs = []*results.Run{{
			Trial:    &loadgen.Trial{Seconds: 60 / n, Ops: get.Count, OpsPerSecond: 1000 * n, Operations: []loadgen.Operation{get}},
			Activity: &results.Activity{OpsPerReadBatch: n, ReadsPerFrame: n},
		}}
		r.Cells = append(r.Cells, cell)
	}
	return r
}

// captions of tables are single lines of words.
var captions = regexp.MustCompile("(?m)^The .*\n\n")

func TestMicrobatchTables(t *testing.T) {
	e := Microbatch{}.Experiment()
	page := e.Report(microbatchResult())
	assert.Equal(t, "Over the network: The default reads 15.5 times as much as unbatched, and 96.9 % of the best fixed batch size, 32. "+
		"On a slow disk: The default reads 15.5 times as much as unbatched, and 96.9 % of the best fixed batch size, 32.", page.Lead)
	require.Len(t, page.Sections, 4)
	var text bytes.Buffer
	for _, table := range page.Sections[0].Tables {
		require.NoError(t, table.WriteText(&text))
	}
	assert.Equal(t, strings.TrimPrefix(`
     batch  reads/batch     run     mean      p50      p90      p99    p99.9    worst  reads/s  x none
      none          1.0    30 s   150 ms   150 ms   150 ms   300 ms   600 ms    1.5 s       2k     1.0
         1          1.0    60 s   300 ms   300 ms   300 ms   600 ms    1.2 s      3 s       1k     0.5
        16         16.0  3.75 s  18.8 ms  18.8 ms  18.8 ms  37.5 ms    75 ms   188 ms      16k     8.0
        32         32.0  1.88 s  9.38 ms  9.38 ms  9.38 ms  18.8 ms  37.5 ms  93.8 ms      32k    16.0
  adaptive         31.0  1.94 s  9.68 ms  9.68 ms  9.68 ms  19.4 ms  38.7 ms  96.8 ms      31k    15.5
     batch  kvd: mean  reads/s  x none  article: run    mean   worst  reads/s  x none
      none     150 ms       2k     1.0          50 s  5.2 ms  770 ms      60k     1.0
         1     300 ms       1k     0.5          87 s  7.9 ms       -    34.5k     0.6
        16    18.8 ms      16k     8.0         5.5 s  450 µs   21 ms     550k     9.2
        32    9.38 ms      32k    16.0         4.8 s  380 µs   18 ms     625k    10.4
  adaptive    9.68 ms      31k    15.5             -       -       -        -       -
`, "\n"), captions.ReplaceAllString(text.String(), ""))

	panels := page.Sections[0].Figures[0].Panels
	require.Len(t, panels, 3, "rate, gain and mean")
	assert.Equal(t, []chart.Mark{
		&chart.Line{X: []float64{0, 1, 2, 3}, Y: []float64{1, 0.5, 8, 16}},
		&chart.Line{Series: 1, X: []float64{0, 1, 2, 3}, Y: []float64{1, 34.5 / 60, 550.0 / 60, 625.0 / 60}},
		&chart.Reference{X: []float64{0, 1, 2, 3}, Y: []float64{15.5, 15.5, 15.5, 15.5}},
	}, panels[1].Marks)

	lone := page.Sections[1]
	assert.Len(t, lone.Tables[0].Rows, 3, "unbatched, the article's size and the default")
	assert.Contains(t, lone.Text[0], "A lone reader waits 9.68 ms on average with the adaptive default and 150 ms unbatched")
	assert.Empty(t, lone.Figures)
	assert.Contains(t, page.Sections[2].Text[0], "each read of a file takes 500 µs longer, at most 10 at a time")
	assert.Contains(t, page.HTML(), "kvd, adaptive default")
	for _, r := range []*results.Result{{}, {Cells: []*results.Cell{{}}}} {
		assert.NotEmpty(t, e.Report(r).HTML(), "pages of nothing can be drawn")
	}
}

func TestStatisticsHasARowForEachRun(t *testing.T) {
	rows := Statistics(microbatchResult())
	require.Len(t, rows, 2*(5+3))
	assert.Len(t, rows[0], len(StatisticsHead))
	assert.Equal(t, []string{"2026-01-02T03:04:05Z", "abc", "server", "300", "none", "1", "60000", "30.000", "150000000", "150000000", "300000000", "1500000000", "2000.000", "1.000"}, rows[0])
	assert.Equal(t, []string{"server", "1", "none", "1", "1000"}, rows[5][2:7], "a lone reader reads less")
}
