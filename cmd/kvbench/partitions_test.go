package main

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/results"
)

func TestPartitionsWritesAReportThatCanBeDrawnAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "p")
	synctest.Test(t, func(t *testing.T) {
		r := runCommand(t, t.Context(), func(m *memoryTarget) { m.takes = time.Millisecond },
			"partitions", "--mixes", "BALANCED,PUT_HEAVY", "--partitions", "1,2", "--threads", "1,2", "--scale", "0.0001", "--runs", "1", "--report", dir)
		require.Equal(t, exitOK, r.code, r.stderr)
		assert.Contains(t, r.stdout, "2 partitions against 1")
		assert.Contains(t, r.stderr, "run 8 of 8  mix PUT_HEAVY, partitions 2, threads 2")
		assert.Equal(t, 2, r.options.partitions)
		left, err := os.ReadDir(".")
		require.NoError(t, err)
		assert.Empty(t, left, "the stores are removed")
	})
	back, err := results.Read(dir)
	require.NoError(t, err)
	assert.Len(t, back.Cells, 8)
	assert.Equal(t, 0.0001, back.Scale)

	redrawn(t, dir)
}

func TestAWrongAnswerEndsPartitions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := runCommand(t, t.Context(), func(m *memoryTarget) { m.takes, m.garbled = time.Millisecond, true },
			"partitions", "--scale", "0.0001", "--runs", "1", "--report", "there")
		assert.Equal(t, exitError, r.code)
		assert.Contains(t, r.stderr, "wrong answer")
		assert.FileExists(t, filepath.Join("there", results.ReportFile), "what was measured is kept")
	})
}

func TestPartitionsRefusesWhatMakesNoSense(t *testing.T) {
	refuses(t, "partitions", map[string][]string{
		"--scale 0":       {"--scale", "0"},
		"--runs 0":        {"--runs", "0"},
		"--report needs":  {"--report", ""},
		"unknown mix":     {"--mixes", "ODD"},
		"--partitions 0":  {"--partitions", "0"},
		"0 threads":       {"--threads", "0"},
		"--duration -1s":  {"--duration", "-1s"},
		"choose memory":   {"--durability", "default"},
		"values of 3":     {"--value-size", "3"},
		"nothing to meas": {"--mixes", ""},
	})
}

func TestReportRefusesOtherDirectories(t *testing.T) {
	r := runCommand(t, t.Context(), nil, "report", t.TempDir())
	assert.Equal(t, exitError, r.code)
	assert.Contains(t, r.stderr, "result.json")

	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, results.ResultFile), []byte(`{"version":1,"experiment":"alchemy"}`), 0o644))
	r = runCommand(t, t.Context(), nil, "report", dir)
	assert.Equal(t, exitError, r.code)
	assert.Contains(t, r.stderr, `no experiment "alchemy"`)
}
