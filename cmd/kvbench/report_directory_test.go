package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/results"
	"github.com/kvd-db/kvd/internal/workload"
)

// TestAReportThatCannotBeWrittenEndsBeforeTheMeasurement: a measurement may take hours.
func TestAReportThatCannotBeWrittenEndsBeforeTheMeasurement(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for _, command := range []string{"run", "sweep", "ycsb", "partitions", "lsm", "microbatch", "reads", "restart"} {
		opened := false
		code, _, stderr := bench(t, func(*targetOptions) (workload.Target, targetInfo, error) {
			opened = true
			return nil, targetInfo{}, assert.AnError
		}, command, "--report", file)
		assert.Equal(t, exitError, code, command)
		assert.Contains(t, stderr, "the report cannot be written", command)
		assert.False(t, opened, command)
	}
}

// TestAnExperimentEndedByASignalReportsWhatItMeasured: with exit code 0, as the help says,
// and without its stores.
func TestAnExperimentEndedByASignalReportsWhatItMeasured(t *testing.T) {
	for _, command := range []string{
		"partitions --mixes PUT_HEAVY --partitions 1 --threads 1,2",
		"lsm --mixes PUT_HEAVY --threads 1 --keys 10000 --find-rates 50",
	} {
		t.Chdir(t.TempDir())
		ctx, cancel := context.WithCancel(t.Context())
		var stdout, stderr bytes.Buffer
		code := execute(ctx, append(strings.Fields(command), "--scale", "0.001", "--runs", "1", "--report", "r"), &stdout, &stderr,
			func(o *targetOptions) (workload.Target, targetInfo, error) {
				cancel()
				return openTarget(o)
			})
		assert.Equal(t, exitOK, code, "%s: %s", command, stderr.String())
		left, err := os.ReadDir(".")
		require.NoError(t, err)
		require.Len(t, left, 1, "no store is left")
		page, err := os.ReadFile(filepath.Join("r", "report.html"))
		require.NoError(t, err)
		assert.Contains(t, string(page), "interrupted", command)
	}
}

func TestAScaleMustBeANumber(t *testing.T) {
	for _, command := range []string{"partitions", "ycsb"} {
		code, _, stderr := bench(t, openTarget, command, "--scale", "NaN")
		assert.Equal(t, exitUsage, code, command)
		assert.Contains(t, stderr, "--scale NaN: want more than 0", command)
	}
}

// TestReportsOfOtherProgramsAreRefused: they have the format of kvbench's, but sections of
// their own.
func TestReportsOfOtherProgramsAreRefused(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, results.Write(dir, &results.Result{Version: results.Version, Program: "bench", Experiment: "postgres"}, map[string][]byte{results.ReportFile: []byte("drawn")}))
	code, _, stderr := bench(t, openTarget, "report", dir)
	assert.Equal(t, exitError, code)
	assert.Contains(t, stderr, "bench postgres measured it and drew its report")
	page, err := os.ReadFile(filepath.Join(dir, results.ReportFile))
	require.NoError(t, err)
	assert.Equal(t, "drawn", string(page))
}
