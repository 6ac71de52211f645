package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/results"
)

func TestYCSBMeasuresEveryWorkloadWithEachCache(t *testing.T) {
	code, stdout, stderr := bench(t, openTarget, "ycsb", "--scale", "0.001", "--field-bytes", "10", "--threads", "1,2",
		"--operations", "200", "--caches", "1GiB,4MiB", "--theta", "0.8", "--compressible", "0.5", "--report", "r")
	require.Equal(t, exitOK, code, stderr)
	assert.Contains(t, stdout, "500 records of 100 bytes on the embedded engine", "scaled")
	assert.Regexp(t, `with a block cache of 1GiB: A \S+ \([12]\), B `, stdout)
	entries, err := os.ReadDir(".")
	require.NoError(t, err)
	assert.Len(t, entries, 1, "the stores are removed")

	back, err := results.Read("r")
	require.NoError(t, err)
	assert.Equal(t, 0.001, back.Scale)
	require.Len(t, back.Cells, 6*2*2)
	assert.Equal(t, "workload A, cache 4MiB, threads 1", back.Cells[0].Name())
	staged := 0
	for _, c := range back.Cells {
		require.Len(t, c.Runs, 1, c.Name())
		for _, run := range c.Runs {
			assert.Positive(t, run.Ops, c.Name())
			assert.NotEmpty(t, run.Latencies, c.Name())
			assert.NotEmpty(t, run.Series, c.Name())
			countsOnlyTheMeasurement(t, c, run, 500*100)
			staged += len(run.Stages)
		}
	}
	assert.Positive(t, staged, "runs say where the time of their calls went")
	settings := back.Cells[0].Workload.(map[string]any)
	assert.Equal(t, 0.8, settings["theta"], "so that a diff with another skew is refused")
	assert.Equal(t, 0.5, settings["compressible"])
	assert.EqualValues(t, 200, settings["operations"])
	info := back.Cells[0].Target.(map[string]any)
	assert.EqualValues(t, int64(4<<20)/1000, info["cacheBytes"])
	large := back.Cells[2].Target.(map[string]any)
	assert.EqualValues(t, int64(1<<30)/1000, large["cacheBytes"])

	html := redrawn(t, "r")
	for _, says := range []string{"Workload F", "By threads", "cache 1GiB", "nearly 6 times as fast", "49.2k", "scaled by 0.001", `<div class="narrow">`} {
		assert.Contains(t, html, says)
	}
}

// TestTheTransactionsSourceRunsYCSB: the operations of the preset are scaled, once.
func TestTheTransactionsSourceRunsYCSB(t *testing.T) {
	code, stdout, stderr := bench(t, openTarget, "source", "transactions", "--scale", "0.002", "--report", "s", "--", "--workload", "C", "--threads", "1,4")
	require.Equal(t, exitOK, code, stderr)
	assert.Contains(t, stdout, "What the source measured")
	back, err := results.Read(filepath.Join("s", "ycsb"))
	require.NoError(t, err)
	assert.Equal(t, "transactions", back.Source)
	require.Len(t, back.Cells, 4)
	for _, c := range back.Cells {
		assert.EqualValues(t, 1000, c.Runs[0].Ops, c.Name())
	}
}

func TestYCSBOnAStoreThatIsThereHasOneCache(t *testing.T) {
	code, stdout, stderr := bench(t, openTarget, "ycsb", "--workload", "C", "--records", "100", "--operations", "50", "--threads", "1", "--data", "d")
	require.Equal(t, exitOK, code, stderr)
	assert.Contains(t, stdout, "kvbench-ycsb")
	back, err := results.Read("kvbench-ycsb")
	require.NoError(t, err)
	require.Len(t, back.Cells, 1)
	assert.Equal(t, "workload C, threads 1", back.Cells[0].Name())
	assert.EqualValues(t, 50, back.Cells[0].Runs[0].Ops)
}

// countsOnlyTheMeasurement checks that the counters of a run that only reads contain neither
// the load of the store, of so many bytes, nor earlier runs. A few bytes of these may have
// been on the way to the log.
func countsOnlyTheMeasurement(t *testing.T, c *results.Cell, run *results.Run, load uint64) {
	t.Helper()
	a := run.Counters()
	if run.Operation("read").Count+run.Operation("get").Count < run.Ops {
		return
	}
	require.NotNil(t, a, c.Name())
	assert.Less(t, a.LogBytes, load, c.Name())
	assert.Less(t, a.FlushedBytes, load, c.Name())
}
