package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/results"
	"github.com/kvd-db/kvd/internal/workload"
)

// TestAReportThatCannotBeWrittenEndsBeforeTheMeasurement: a measurement may take hours.
func TestAReportThatCannotBeWrittenEndsBeforeTheMeasurement(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for _, command := range []string{"run", "sweep", "ycsb", "txn", "partitions", "lsm", "microbatch", "reads", "restart"} {
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

// TestADefaultDirectoryKeepsItsReport: a command that is repeated writes beside it, and --resume
// goes on with the last one.
func TestADefaultDirectoryKeepsItsReport(t *testing.T) {
	t.Chdir(t.TempDir())
	execute := func(line string) {
		synctest.Test(t, func(t *testing.T) {
			code, stderr, _ := onTargets(t.Context(), line, slowTarget)
			require.Equal(t, exitOK, code, stderr)
		})
	}
	for command, dir := range map[string]string{
		"sweep --rps 10 --threads 2 --keys 20 --duration 3s":                                            "kvbench-sweep",
		"partitions --mixes PUT_HEAVY --partitions 1 --threads 1 --duration 3s --scale 0.0001 --runs 1": "kvbench-partitions",
		"ycsb --workload C --threads 1 --records 64 --duration 3s --runs 1":                             "kvbench-ycsb",
	} {
		execute(command)
		first, err := os.ReadFile(filepath.Join(dir, results.ResultFile))
		require.NoError(t, err)
		for _, next := range []string{"-2", "-3"} {
			execute(command + " --seed 7")
			assert.FileExists(t, filepath.Join(dir+next, results.ReportFile))
		}
		third, err := results.Read(dir + "-3")
		require.NoError(t, err)
		third.Cells[0].Runs = nil
		require.NoError(t, results.Write(dir+"-3", third, nil))
		execute(command + " --seed 7 --resume")
		third, err = results.Read(dir + "-3")
		require.NoError(t, err)
		assert.True(t, third.Complete(), "%s: it was resumed", command)
		assert.NoDirExists(t, dir+"-4")

		still, err := os.ReadFile(filepath.Join(dir, results.ResultFile))
		require.NoError(t, err)
		assert.Equal(t, first, still)
		execute(command + " --seed 8 --report " + dir)
		still, err = os.ReadFile(filepath.Join(dir, results.ResultFile))
		require.NoError(t, err)
		assert.NotEqual(t, first, still, "%s: it was named", command)
	}
}

// TestADefaultDirectoryOfReportsKeepsThem: of a source, which has one for each experiment.
func TestADefaultDirectoryOfReportsKeepsThem(t *testing.T) {
	t.Chdir(t.TempDir())
	c := newSourceCommand(openTarget)
	name := func(resume bool) string { return reportDirectory(c, "kvbench-source-x", resume, holdsReports) }
	assert.Equal(t, "kvbench-source-x", name(false))
	assert.Equal(t, "kvbench-source-x", name(true))
	for _, dir := range []string{"kvbench-source-x", "kvbench-source-x-2"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "lsm"), 0o755))
		assert.Equal(t, dir, name(false), "a directory without a report")
		require.NoError(t, os.WriteFile(filepath.Join(dir, "lsm", results.ResultFile), nil, 0o600))
	}
	assert.Equal(t, "kvbench-source-x-3", name(false))
	assert.Equal(t, "kvbench-source-x-2", name(true))
	require.NoError(t, c.Flags().Set("report", "mine"))
	assert.Equal(t, "kvbench-source-x", name(false), "it was named")
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

// TestWhatWasMeasuredIsSavedWhileItGoesOn: for a process that is killed. The page says that runs
// are missing.
func TestWhatWasMeasuredIsSavedWhileItGoesOn(t *testing.T) {
	for _, command := range []string{
		"run --threads 1 --keys 20 --value-size 100 --runs 3 --duration 31s",
		"partitions --scale 0.001 --mixes PUT_HEAVY --partitions 1 --threads 1,2,3 --runs 1 --duration 31s",
		"ycsb --workload C --threads 1,2,3 --records 20 --memory 64MiB --duration 31s",
		"sweep --rps 1,2,3 --threads 1 --keys 20 --value-size 100 --duration 31s",
		"sweep --rps auto --threads 8 --keys 20 --value-size 100 --duration 31s",
	} {
		t.Run(strings.Join(strings.Fields(command)[:3], " "), func(t *testing.T) {
			dir := t.TempDir()
			t.Chdir(t.TempDir())
			auto := strings.Contains(command, "auto")
			synctest.Test(t, func(t *testing.T) {
				target := &memoryTarget{values: make(map[string][]byte), takes: 5 * time.Second}
				missing, whole := 0, 0
				var mu sync.Mutex
				target.onWork = func() {
					mu.Lock()
					defer mu.Unlock()
					r, err := results.Read(dir)
					if err != nil {
						missing++
						assert.ErrorIs(t, err, os.ErrNotExist)
						return
					}
					whole++
					assert.Positive(t, r.Measured())
					assert.False(t, r.Complete())
					if !auto {
						assert.Equal(t, 3, r.Planned)
					}
				}
				var stdout, stderr bytes.Buffer
				code := execute(t.Context(), append(strings.Fields(command), "--report", dir), &stdout, &stderr,
					func(*targetOptions) (workload.Target, targetInfo, error) { return target, targetInfo{}, nil })
				require.Equal(t, exitOK, code, stderr.String())
				assert.Positive(t, missing)
				assert.Positive(t, whole)
				r, err := results.Read(dir)
				require.NoError(t, err)
				assert.Equal(t, r.Planned, r.Measured())
				assert.True(t, auto || r.Planned == 3)
			})
		})
	}
}

// TestADirectoryThatCannotBeSavedToDoesNotEndAnExperiment: it says so, and the report is written
// at the end if it then can be.
func TestADirectoryThatCannotBeSavedToDoesNotEndAnExperiment(t *testing.T) {
	dir := t.TempDir()
	blocked := filepath.Join(dir, results.SeriesFile)
	require.NoError(t, os.MkdirAll(filepath.Join(blocked, "full"), 0o755))
	t.Chdir(t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		opened := 0
		var stdout, stderr bytes.Buffer
		code := execute(t.Context(), strings.Fields("run --threads 1 --keys 1000 --value-size 100 --runs 3 --duration 65s --report "+dir), &stdout, &stderr,
			func(*targetOptions) (workload.Target, targetInfo, error) {
				if opened++; opened == 3 {
					require.NoError(t, os.RemoveAll(blocked))
				}
				return &memoryTarget{values: make(map[string][]byte), takes: 5 * time.Second}, targetInfo{}, nil
			})
		require.Equal(t, exitOK, code, stderr.String())
		assert.Contains(t, stderr.String(), "what was measured so far is not saved")
	})
	r, err := results.Read(dir)
	require.NoError(t, err)
	assert.Equal(t, 3, r.Measured())
}

// TestARunThatFailsLeavesThoseBefore: in the report, which names the error.
func TestARunThatFailsLeavesThoseBefore(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		opened := 0
		var stdout, stderr bytes.Buffer
		code := execute(t.Context(), strings.Fields("run --threads 1 --keys 1000 --value-size 100 --runs 3 --duration 3s --report "+dir), &stdout, &stderr,
			func(*targetOptions) (workload.Target, targetInfo, error) {
				opened++
				target := &memoryTarget{values: make(map[string][]byte), takes: time.Millisecond}
				if opened == 2 {
					target.onPut = func(n int) error {
						if n > 50 {
							return errors.New("the server is gone")
						}
						return nil
					}
				}
				return target, targetInfo{}, nil
			})
		assert.Equal(t, exitError, code)
		assert.Contains(t, stderr.String(), "the server is gone")
		assert.Equal(t, 2, opened)
	})
	r, err := results.Read(dir)
	require.NoError(t, err)
	require.Equal(t, 2, r.Measured())
	assert.Empty(t, r.Cells[0].Runs[0].Error)
	assert.Contains(t, r.Cells[0].Runs[1].Error, "the server is gone")
	page, err := os.ReadFile(filepath.Join(dir, results.ReportFile))
	require.NoError(t, err)
	assert.Contains(t, string(page), "Only 2 of 3 runs were measured")
	assert.Contains(t, string(page), "its figures mean nothing")
}

// TestAnInterruptedRunMeetsNoObjective: of what was not measured nothing is known.
func TestAnInterruptedRunMeetsNoObjective(t *testing.T) {
	t.Chdir(t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		r := runCommand(t, ctx, func(m *memoryTarget) { m.takes = time.Millisecond }, strings.Fields("run --threads 1 --keys 1000 --value-size 100 --duration 5s --slo p99<1s")...)
		assert.Equal(t, exitError, r.code)
		assert.Contains(t, r.stdout, "interrupted, all answers right")
		assert.Contains(t, r.stderr, "the objectives of --slo are not judged")

		ctx, cancel = context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		r = runCommand(t, ctx, func(m *memoryTarget) { m.takes = time.Second }, strings.Fields("run --threads 1 --keys 1000 --value-size 100 --preload 1000")...)
		assert.Equal(t, exitError, r.code)
		assert.Contains(t, r.stderr, "ended by a signal before anything was measured")
	})
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
