package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	benchreport "github.com/kvd-db/kvd/bench/report"
	"github.com/kvd-db/kvd/internal/experiment"
	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/results"
)

// madeUp returns a result in which every store has the rates of two rounds.
func madeUp(rates map[[2]string][2]float64) *results.Result {
	r := &results.Result{Program: "bench", Experiment: "postgres", Environment: loadgen.Environment{Commit: "abc"}}
	for _, store := range stores {
		for _, batch := range []string{"none", "1", "16", "adaptive"} {
			both, ok := rates[[2]string{store, batch}]
			if !ok {
				continue
			}
			c := &results.Cell{Params: experiment.BatchParams(store, 300, batch)}
			for _, rate := range both {
				get := loadgen.Operation{Name: "get"}
				get.Count, get.OpsPerSecond, get.MeanNanos = 3000, rate, int64(300*float64(time.Second)/rate)
				get.Nanos.P99, get.Nanos.Max = 2*get.MeanNanos, 10*get.MeanNanos
				c.Runs = append(c.Runs, &results.Run{Trial: &loadgen.Trial{
					Seconds: 3000 / rate, Ops: 3000, OpsPerSecond: rate, Operations: []loadgen.Operation{get},
				}, Measures: map[string]float64{experiment.MeasureReadsPerBatch: 15.5}})
			}
			r.Cells = append(r.Cells, c)
		}
	}
	return r
}

func TestThePageComparesBatchesWithUnbatchedReadsAndKvdWithBoth(t *testing.T) {
	page := newExperiment(&options{}, nil).Report(madeUp(map[[2]string][2]float64{
		{storePostgreSQL, "none"}: {1000, 1000}, {storePostgreSQL, "1"}: {500, 600}, {storePostgreSQL, "16"}: {3000, 5000},
		{storeServer, "none"}: {2000, 2000}, {storeServer, "16"}: {3000, 3000}, {storeServer, "adaptive"}: {6000, 15000},
		{storeEmbedded, "adaptive"}: {30000, 30000},
	}))
	assert.Equal(t, "PostgreSQL answers 4.00 (3.00-5.00) times as many reads in batches of 16 as unbatched; the article measured 9.2 times. "+
		"kvd serve answers 2.50 (2.00-3.00) times as many as these batches. kvd embedded answers 8.00 (6.00-10.00) times as many as these batches.", page.Lead)
	require.Len(t, page.Sections, 3)
	var text bytes.Buffer
	require.NoError(t, benchreport.PrintPage(&text, page))
	assert.Regexp(t, `(?m)^ +kvd serve +adaptive .* 10\.5k +10\.50 \(6\.00-15\.00\) +2\.50 \(2\.00-3\.00\)$`, text.String())
	assert.Regexp(t, `(?m)^ +PostgreSQL +16 .* 4k +4\.00 \(3\.00-5\.00\) +1$`, text.String())
	assert.Regexp(t, `(?m)^ +16 +15\.5 .* 4k +4\.0$`, text.String(), "the table by batch size")
	assert.Regexp(t, `(?m)^ +16 .* 4k +4\.0 +5\.5 s +450 µs +21 ms +550k +9\.2$`, text.String(), "the article's figures")
	html := page.HTML()
	assert.True(t, strings.Contains(html, "bench postgres; closed loop") && !strings.Contains(html, "kvbench"), "the note names the program")
}

func TestPagesOfPartsOfAnExperimentCanBeDrawn(t *testing.T) {
	e := newExperiment(&options{}, nil)
	for _, r := range []*results.Result{
		{}, {Cells: []*results.Cell{{Params: experiment.BatchParams(storePostgreSQL, 300, "none")}}},
		madeUp(map[[2]string][2]float64{{storePostgreSQL, "none"}: {1, 1}}),
		madeUp(map[[2]string][2]float64{{storeEmbedded, "adaptive"}: {1, 1}}),
	} {
		page := e.Report(r)
		html := page.HTML()
		assert.True(t, strings.HasSuffix(html, "</html>\n"))
		assert.False(t, strings.Contains(html, "NaN") || strings.Contains(html, "Inf"), "a figure is no number")
		assert.False(t, strings.Contains(html, "adaptive default"), "the legend names what was measured")
	}
}
