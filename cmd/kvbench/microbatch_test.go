package main

import (
	"encoding/csv"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/results"
)

func TestMicrobatchMeasuresItsStores(t *testing.T) {
	code, stdout, stderr := bench(t, openTarget, append([]string{"microbatch", "--runs", "1", "--sizes", "1,16", "--rows", "10000", "--reads", "1000",
		"--report", "m", "--readers", "8,1", "--read-latency", "20us", "--linger", "1ms"}, missed("get")...)...)
	require.Equal(t, exitSLO, code, stderr)
	assertMissed(t, "get", stderr)
	assert.Contains(t, stdout, "Over the network: The default reads")
	assert.Contains(t, stdout, "On a slow disk: The default reads")

	back, err := results.Read("m")
	require.NoError(t, err)
	require.Len(t, back.Cells, 2*(4+3))
	for _, c := range back.Cells {
		require.Len(t, c.Runs, 1, c.Name())
		get := c.Runs[0].Operation("get")
		assert.EqualValues(t, 1000, get.Count, "fewer mean nothing, also for one reader")
		counted := c.Runs[0].Counters()
		require.NotNil(t, counted, c.Name())
		switch {
		case c.Param("batch") == "1", c.Param("readers") == "1" && c.Param("store") == "disk":
			// The first reads go by a stream of gRPC, whose frames are not counted.
			assert.InDelta(t, 1, max(counted.ReadsPerFrame, counted.OpsPerReadBatch), 0.5, c.Name())
		case c.Param("batch") == "16" && c.Param("store") == "disk":
			assert.Greater(t, counted.OpsPerReadBatch, 2.0, c.Name())
		}
	}
	page, err := os.ReadFile(filepath.Join("m", results.ReportFile))
	require.NoError(t, err)
	for _, says := range []string{"each read of a file takes 20 µs longer, at most 10 at a time", "no measurement of a disk", "770 ms", "Reads by batch size", "The adaptive default reaches"} {
		assert.Contains(t, string(page), says)
	}
	left, err := os.ReadDir(".")
	require.NoError(t, err)
	assert.Len(t, left, 1, "the table is removed")

	f, err := os.Open(filepath.Join("m", "statistics.csv"))
	require.NoError(t, err)
	rows, err := csv.NewReader(f).ReadAll()
	require.NoError(t, err)
	require.NoError(t, f.Close())
	assert.Len(t, rows, 1+14, "a row for each run, and a head")
	assert.Equal(t, []string{"server", "8", "none", "1", "1000"}, rows[1][2:7])
}

func TestMicrobatchWritesAReportThatCanBeDrawnAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "m")
	synctest.Test(t, func(t *testing.T) {
		r := runCommand(t, t.Context(), func(m *memoryTarget) { m.takes = time.Millisecond },
			"microbatch", "--rows", "10000", "--reads", "3000", "--sizes", "16", "--readers", "3", "--runs", "2", "--report", dir)
		require.Equal(t, exitOK, r.code, r.stderr)
		assert.Contains(t, r.stderr, "run 12 of 12  store disk, readers 3, batch adaptive")
	})
	redrawn(t, dir)
}

func TestAWrongAnswerEndsMicrobatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := runCommand(t, t.Context(), func(m *memoryTarget) { m.takes, m.garbled = time.Millisecond, true },
			"microbatch", "--rows", "10000", "--report", "there")
		assert.Equal(t, exitError, r.code)
		assert.Contains(t, r.stderr, "wrong answer")
	})
}

func TestMicrobatchRefusesWhatMakesNoSense(t *testing.T) {
	refuses(t, "microbatch", map[string][]string{
		"--stores tape":         {"--stores", "tape"},
		"--sizes 0":             {"--sizes", "0"},
		"--sizes 2000":          {"--sizes", "2000"},
		"0 threads":             {"--readers", "0"},
		"--partitions 0":        {"--partitions", "0"},
		"--workers 0":           {"--workers", "0"},
		"--read-latency -1s":    {"--read-latency", "-1s"},
		"nothing to measure":    {"--stores", ""},
		"--scale 0: want more ": {"--scale", "0"},
	})
}
