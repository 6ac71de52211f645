package main

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/results"
)

// tinyReads measures two distributions on a store with more data than its cache.
var tinyReads = []string{"reads", "--keys", "10000", "--value-size", "100..300", "--distributions", "uniform,latest", "--threads", "2",
	"--duration", "20ms", "--runs", "2", "--report", "r"}

func TestReadsMeasuresTheStoreAndRawReadsInTurns(t *testing.T) {
	code, stdout, stderr := bench(t, openTarget, append(tinyReads, missed("get")...)...)
	require.Equal(t, exitSLO, code, stderr)
	assertMissed(t, "get", stderr)
	assert.NotContains(t, stderr, "raw preads: get", "what is measured beside the store has no objective")
	assert.Contains(t, stderr, "waiting for flushes and compactions")
	assert.Contains(t, stderr, "run 8 of 8  distribution latest, threads 2, reader raw preads")
	assert.Regexp(t, `2 threads: uniform \S+ reads/s \([0-9.]+ % of raw preads\), latest`, stdout)
	left, err := os.ReadDir(".")
	require.NoError(t, err)
	require.Len(t, left, 1, "the stores are removed")

	back, err := results.Read("r")
	require.NoError(t, err)
	require.Len(t, back.Cells, 4)
	var staged, gets, read int
	for _, c := range back.Cells {
		require.Len(t, c.Runs, 2, c.Name())
		for _, run := range c.Runs {
			staged += len(run.Stages)
			assert.Positive(t, run.Ops, c.Name())
			if count := run.Operation("get").Count; count > 0 {
				gets += int(count)
				countsOnlyTheMeasurement(t, c, run, 10_000*100)
			} else {
				assert.Positive(t, run.Measures["fileReads"], c.Name())
				assert.Positive(t, run.Measures["fileBytes"], c.Name())
			}
			read += int(run.Measures["fileReads"])
			assert.Greater(t, run.Measures["dataBytes"], 1e6, c.Name())
			if runtime.GOOS == "linux" {
				assert.EqualValues(t, 1, run.Measures[results.Evicted], c.Name())
			}
		}
	}
	assert.Positive(t, read)
	if gets > 1000 { // one in 16 is staged, at random, and a slow machine does few
		assert.Positive(t, staged, "runs say where the time of their calls went")
	}
	raw := back.Cells[1].Runs[0]
	assert.Equal(t, "pread", raw.Operations[0].Name)
	assert.InDelta(t, float64(raw.Ops), raw.Measures["fileReads"], 0.5, "each operation is one read of a file")

	html := redrawn(t, "r")
	for _, says := range []string{"Reads by 2 threads", "file reads a read", "times the block cache of 512 MiB", "40,846 and 42,876"} {
		assert.Contains(t, html, says)
	}
	if runtime.GOOS == "linux" {
		assert.Contains(t, html, "were dropped from the page cache before each run")
		assert.NotContains(t, html, "so the page cache served reads")
	}
}

func TestReadsSaysThatPagesWereKept(t *testing.T) {
	code, stdout, stderr := bench(t, openTarget, "reads", "--keys", "10000", "--value-size", "100", "--distributions", "zipfian", "--theta", "1.1",
		"--threads", "2", "--duration", "20ms", "--runs", "1", "--keep-pages", "--report", "r")
	require.Equal(t, exitOK, code, stderr)
	assert.Contains(t, stdout, "2 threads: zipfian ")
	back, err := results.Read("r")
	require.NoError(t, err)
	require.Len(t, back.Cells, 2)
	assert.Zero(t, back.Cells[0].Runs[0].Measures[results.Evicted])
	html, err := os.ReadFile(filepath.Join("r", results.ReportFile))
	require.NoError(t, err)
	assert.Contains(t, string(html), "The files were left in the page cache")
}

func TestReadsNeedsFiles(t *testing.T) {
	r := runCommand(t, t.Context(), nil, tinyReads...)
	assert.Equal(t, exitError, r.code)
	assert.Contains(t, r.stderr, "the store has no files to read from")
}

func TestReadsRefusesWhatMakesNoSense(t *testing.T) {
	refuses(t, "reads", map[string][]string{
		"unknown distribution":  {"--distributions", "odd"},
		"nothing to measure":    {"--distributions", ""},
		"--partitions 0":        {"--partitions", "0"},
		"0 threads":             {"--threads", "0"},
		"theta of 20":           {"--theta", "20"},
		"values of 10 bytes":    {"--value-size", "10"},
		"sizes with weights":    {"--value-size", "much"},
		"--runs 0":              {"--runs", "0"},
		"unknown flag: --mixes": {"--mixes", "BALANCED"},
	})
}
