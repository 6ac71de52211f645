package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/experiment"
	"github.com/kvd-db/kvd/internal/results"
	"github.com/kvd-db/kvd/internal/workload"
)

// inMemory runs a command line until a context ends, on new stores in memory of which each
// operation takes 50 ms, and returns how many of them it opened.
func inMemory(ctx context.Context, line string) (code int, stderr string, opened int) {
	return onTargets(ctx, line, slowTarget)
}

func slowTarget() *memoryTarget {
	return &memoryTarget{values: make(map[string][]byte), takes: 50 * time.Millisecond}
}

func onTargets(ctx context.Context, line string, target func() *memoryTarget) (code int, stderr string, opened int) {
	var out, errs bytes.Buffer
	code = execute(ctx, strings.Fields(line), &out, &errs, func(*targetOptions) (workload.Target, targetInfo, error) {
		opened++
		return target(), targetInfo{}, nil
	})
	return code, errs.String(), opened
}

// TestAnInterruptedExperimentGoesOnWhereItStopped: with --resume the runs that are complete stay
// as they are, and the others are measured.
func TestAnInterruptedExperimentGoesOnWhereItStopped(t *testing.T) {
	for _, test := range []struct {
		line            string
		ends            time.Duration // of the first command
		planned, stores int           // of all, and opened by the resumed command
	}{
		{"partitions --mixes PUT_HEAVY --partitions 1,2 --threads 1,2 --duration 3s --scale 0.0001 --runs 2", 10500 * time.Millisecond, 8, 5},
		{"lsm --mixes PUT_HEAVY --find-rates 50 --threads 1 --keys 10000 --flush-keys 1000,2000 --duration 3s", 4500 * time.Millisecond, 2, 1},
		{"ycsb --workload C,A --threads 1 --records 64 --duration 3s --runs 2", 17 * time.Second, 8, 2},
		{"run --threads 2 --keys 100 --duration 3s --runs 3", 7500 * time.Millisecond, 3, 1},
		{"sweep --rps 10,20,40 --threads 2 --keys 20 --warmup 0s --duration 3s --runs 2", 15 * time.Second, 6, 1},
	} {
		dir := t.TempDir()
		t.Chdir(t.TempDir())
		synctest.Test(t, func(t *testing.T) {
			line := test.line + " --report " + dir
			ctx, cancel := context.WithTimeout(t.Context(), test.ends)
			defer cancel()
			code, stderr, _ := inMemory(ctx, line)
			require.Equal(t, exitOK, code, stderr)
			before, err := results.Read(dir)
			require.NoError(t, err)
			first, err := json.Marshal(before.Cells[0].Runs[0])
			require.NoError(t, err)

			code, stderr, opened := inMemory(t.Context(), line+" --resume")
			require.Equal(t, exitOK, code, stderr)
			assert.Contains(t, stderr, "runs are complete\n")
			assert.Equal(t, test.stores, opened, line)
			after, err := results.Read(dir)
			require.NoError(t, err)
			assert.Equal(t, test.planned, after.Measured())
			assert.Equal(t, before.Began, after.Began)
			kept, err := json.Marshal(after.Cells[0].Runs[0])
			require.NoError(t, err)
			assert.JSONEq(t, string(first), string(kept))
			for _, c := range after.Cells {
				for _, run := range c.Runs {
					assert.False(t, run.Interrupted, c.Name())
				}
			}

			code, stderr, opened = inMemory(t.Context(), line+" --resume")
			require.Equal(t, exitOK, code, stderr)
			assert.Zero(t, opened, "nothing is missing")

			code, stderr, opened = inMemory(t.Context(), line+" --resume --threads 3 --durability sync")
			assert.Equal(t, exitError, code)
			assert.Contains(t, stderr, "--durability was buffered, now it is sync; ")
			assert.Contains(t, stderr, "--threads was ")
			assert.Zero(t, opened)
		})
		redrawn(t, dir)
	}
}

// TestAnExperimentThatWasKilledIsResumedFromWhatWasSaved: a process that is killed leaves its
// result as of the last minute.
func TestAnExperimentThatWasKilledIsResumedFromWhatWasSaved(t *testing.T) {
	dir, saved := t.TempDir(), t.TempDir()
	t.Chdir(t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		const line = "partitions --mixes PUT_HEAVY --partitions 1,2,3,4 --threads 1 --duration 31s --scale 0.0001 --runs 1 --report "
		opened := 0
		code := execute(t.Context(), strings.Fields(line+dir), &bytes.Buffer{}, &bytes.Buffer{}, func(*targetOptions) (workload.Target, targetInfo, error) {
			if opened++; opened == 4 { // here the process would be killed
				r, err := results.Read(dir)
				require.NoError(t, err)
				require.NoError(t, results.Write(saved, r, nil))
			}
			return slowTarget(), targetInfo{}, nil
		})
		require.Equal(t, exitOK, code)
		code, stderr, opened := inMemory(t.Context(), line+saved+" --resume")
		require.Equal(t, exitOK, code, stderr)
		assert.Contains(t, stderr, "resumed: 2 of 4 runs are complete\n")
		assert.Equal(t, 2, opened)
	})
}

func TestResumeNeedsAnInterruptedExperiment(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, command := range []string{"partitions", "lsm", "microbatch", "reads", "restart", "ycsb"} {
		code, stderr, opened := inMemory(t.Context(), command+" --scale 0.01 --resume")
		assert.Equal(t, exitError, code, command)
		assert.Contains(t, stderr, "has no result that could be continued", command)
		assert.Zero(t, opened, command)
	}
	for _, command := range []string{"run", "sweep", "txn"} {
		code, stderr, opened := inMemory(t.Context(), command+" --report r --resume")
		assert.Equal(t, exitError, code, command)
		assert.Contains(t, stderr, "has no result that could be continued", command)
		assert.Zero(t, opened, command)
	}
	for _, command := range []string{"ycsb", "run", "sweep", "txn"} {
		refuses(t, command, map[string][]string{"--resume needs a new store": {"--resume", "--report", "r", "--data", "d"}})
	}
	for _, command := range []string{"run", "txn"} {
		refuses(t, command, map[string][]string{"--resume has no effect without --report": {"--resume"}})
	}
}

// TestASweepGoesOnWithTheLoadsThatItHadFound: also if these were chosen by itself.
func TestASweepGoesOnWithTheLoadsThatItHadFound(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(t.TempDir())
	offered := func() (loads []string) {
		r, err := results.Read(dir)
		require.NoError(t, err)
		for _, c := range r.Cells {
			assert.Len(t, c.Runs, 1, c.Name())
			loads = append(loads, c.Param("offered"))
		}
		return loads
	}
	synctest.Test(t, func(t *testing.T) {
		line := "sweep --threads 2 --keys 20 --warmup 0s --duration 2s --report " + dir
		ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
		defer cancel()
		code, stderr, _ := inMemory(ctx, line)
		require.Equal(t, exitOK, code, stderr)
		before := offered()
		code, stderr, opened := inMemory(t.Context(), line+" --resume")
		require.Equal(t, exitOK, code, stderr)
		assert.Contains(t, stderr, "resumed: 4 runs are complete\n")
		assert.NotContains(t, stderr, "closed loop")
		assert.Equal(t, 1, opened)
		after := offered()
		assert.Greater(t, len(after), 8)
		assert.Equal(t, before, after[:len(before)])
		code, stderr, opened = inMemory(t.Context(), line+" --resume")
		require.Equal(t, exitOK, code, stderr)
		assert.Zero(t, opened, "nothing is missing")
	})
}

// TestMicrobatchLoadsNoTableIfNothingIsMissing: and its statistics have each run once, also those of
// earlier commands.
func TestMicrobatchLoadsNoTableIfNothingIsMissing(t *testing.T) {
	t.Chdir(t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		const line = "microbatch --stores server --readers 64 --sizes 16 --rows 10000 --reads 1000 --runs 1 --value-size 40 --report m"
		table := slowTarget() // which all stores share
		code, stderr, opened := onTargets(t.Context(), line, func() *memoryTarget { return table })
		require.Equal(t, exitOK, code, stderr)
		assert.Equal(t, 1+3, opened)
		lines := len(textLines(t, filepath.Join("m", "statistics.csv")))
		assert.Equal(t, 1+3, lines)
		code, stderr, opened = inMemory(t.Context(), line+" --resume")
		require.Equal(t, exitOK, code, stderr)
		assert.Zero(t, opened)
		assert.Len(t, textLines(t, filepath.Join("m", "statistics.csv")), lines)
		code, stderr, _ = onTargets(t.Context(), line, func() *memoryTarget { return table })
		require.Equal(t, exitOK, code, stderr)
		assert.Len(t, textLines(t, filepath.Join("m", "statistics.csv")), lines+3, "one head")
	})
}

// TestASourceResumesTheExperimentsThatBegan: others are measured from their beginning.
func TestASourceResumesTheExperimentsThatBegan(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	t.Chdir(t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		line := "source partitions --scale 0.0001 --runs 1 --resume --report " + dir + " -- --mixes BALANCED --partitions 1 --threads 1,2"
		code, stderr, opened := inMemory(t.Context(), line)
		require.Equal(t, exitOK, code, stderr)
		assert.Equal(t, 2, opened)
		code, stderr, opened = inMemory(t.Context(), line)
		require.Equal(t, exitOK, code, stderr)
		assert.Contains(t, stderr, "resumed: 2 of 2 runs are complete")
		assert.Zero(t, opened)
	})
}

// ending ends a context when its second trial begins, after the load and the first one.
type ending struct {
	*engineTarget
	trials int
	end    context.CancelFunc
}

func (e *ending) begin() {
	e.engineTarget.begin()
	if e.trials++; e.trials == 3 {
		e.end()
	}
}

// TestTransactionsGoOnWhereTheyStopped: with the numbers of threads that are missing.
func TestTransactionsGoOnWhereTheyStopped(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	line := []string{"txn", "--keys", "200", "--field-bytes", "10", "--threads", "1,2,4", "--duration", "20ms", "--report", "r"}
	code, _, stderr := benchUntil(t, ctx, func(o *targetOptions) (workload.Target, targetInfo, error) {
		target, info, err := openEngine(o)
		if err != nil {
			return nil, info, err
		}
		return &ending{engineTarget: target.(*engineTarget), end: cancel}, info, nil
	}, line...)
	require.Equal(t, exitOK, code, stderr)
	before, err := results.Read("r")
	require.NoError(t, err)
	assert.True(t, before.Cells[1].Runs[0].Interrupted)

	for _, trials := range []string{"4r2w", ""} { // then nothing is missing
		var out, errs bytes.Buffer
		require.Equal(t, exitOK, execute(t.Context(), append(line, "--resume"), &out, &errs, openTarget), errs.String())
		assert.Contains(t, errs.String(), " of 3 runs are complete\n")
		assert.Contains(t, out.String(), trials)
		assert.Equal(t, trials == "", !strings.Contains(out.String(), "operation"))
	}
	after, err := results.Read("r")
	require.NoError(t, err)
	assert.Equal(t, 3, after.Measured())
	assert.Equal(t, before.Cells[0].Runs[0].Ops, after.Cells[0].Runs[0].Ops)

	var out, errs bytes.Buffer
	assert.Equal(t, exitError, execute(t.Context(), append(line, "--resume", "--hot-rate", "0.1"), &out, &errs, openTarget))
	assert.Contains(t, errs.String(), "--hot-rate was 0.5, now it is 0.1")
	assert.Contains(t, redrawn(t, "r"), "of the attempts met a conflict")
}

// TestALostUpdateMarksTheRunsBefore: the audit finds it after runs whose answers were right.
func TestALostUpdateMarksTheRunsBefore(t *testing.T) {
	o := coreOptions{cores: []workload.Core{{Name: "A"}}}
	o.threads = []int{1}
	r := &results.Result{Cells: []*results.Cell{{Params: experiment.CoreParams("A", "", 1), Runs: []*results.Run{oneRunOf(1), oneRunOf(1)}}}}
	o.blame(r, "", 1, workload.ErrWrongAnswer)
	assert.Empty(t, r.Cells[0].Runs[0].Error)
	assert.Equal(t, workload.ErrWrongAnswer.Error(), r.Cells[0].Runs[1].Error)
}

func textLines(t *testing.T, name string) []string {
	t.Helper()
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	return strings.Split(strings.TrimSpace(string(data)), "\n")
}
