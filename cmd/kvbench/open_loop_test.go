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

func TestAnOpenLoopCountsLateStarts(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "r")
	for _, arrivals := range []string{"fixed", "poisson"} {
		synctest.Test(t, func(t *testing.T) {
			// Two threads that take 10 ms for an operation do 200 of 300 a second.
			r := runCommand(t, t.Context(), func(m *memoryTarget) { m.takes = 10 * time.Millisecond }, "run", "--threads", "2", "--keys", "500",
				"--value-size", "100", "--warmup", "2s", "--duration", "3s", "--rate", "300", "--arrivals", arrivals, "--report", dir)
			require.Equal(t, exitOK, r.code, r.stderr)
			assert.Regexp(t, `open loop    300 operations/s due, `+arrivals+` arrivals; over 1 ms late: [56]\d\d as all threads waited, 0 as the generator woke late; 0 refused`, r.stdout)
		})
		back, err := results.Read(dir)
		require.NoError(t, err)
		run := back.Cells[0].Runs[0]
		assert.EqualValues(t, 300, run.OfferedPerSecond)
		assert.InDelta(t, 600, run.Ops, 5)
		require.NotNil(t, run.Late)
		assert.InDelta(t, 600, run.Late.Busy, 5, "every operation waits")
		assert.InDelta(t, float64(5*time.Second/3), float64(run.All.Max), float64(200*time.Millisecond), "a third of the time is missing at the end")
	}
}

// TestARunThatDidNothingFails: also without objectives.
func TestARunThatDidNothingFails(t *testing.T) {
	for _, slo := range [][]string{nil, {"--slo", "p99<5ms"}} {
		synctest.Test(t, func(t *testing.T) {
			t.Chdir(t.TempDir())
			code, stdout, stderr := bench(t, refusing(func(int64) bool { return true }),
				append([]string{"run", "--mix", "WRITE_ONLY", "--threads", "2", "--keys", "500", "--value-size", "100", "--duration", "2s", "--rate", "100"}, slo...)...)
			assert.Equal(t, exitError, code)
			assert.Regexp(t, "no operation was done: the store refused 20[01], and 0 had not begun at the end", stderr)
			assert.NotContains(t, stdout, "all answers right")
		})
	}
}

// TestAStoreThatRefusesMissesItsObjective, and the output does not hide it.
func TestAStoreThatRefusesMissesItsObjective(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t.Chdir(t.TempDir())
		code, stdout, stderr := bench(t, refusing(func(n int64) bool { return n%20 == 0 }),
			"run", "--mix", "WRITE_ONLY", "--threads", "2", "--keys", "500", "--value-size", "100", "--duration", "4s", "--rate", "100", "--slo", "p99<5ms", "--report", "r")
		assert.Equal(t, exitSLO, code, stderr)
		assert.Contains(t, stderr, "p99<5ms: p99 has no bound, because the store refused operations")
		assert.Contains(t, stderr, "refused 5")
		assert.Contains(t, stdout, "20 refused, 0 not begun at the end")
		assert.Contains(t, stdout, "5.0 % of the operations that were due were refused or had not begun")
		text, err := os.ReadFile(filepath.Join("r", results.TextFile))
		require.NoError(t, err)
		assert.Contains(t, string(text), "! Up to 5 % of the operations that were due were refused or never began")
		assert.Contains(t, string(text), "| operation | count | refused |")
		assert.Contains(t, string(text), "operations/s; 5 % of the operations that were due were refused or never began.")
	})
}

func TestArrivalsThatMakeNoSense(t *testing.T) {
	refuses(t, "run", map[string][]string{
		"--arrivals tidal": {"--arrivals", "tidal"},
		"without a rate":   {"--arrivals", "poisson"},
		"--slo":            {"--slo", "p99"},
	})
}

func TestAMissedObjectiveIsAnExitCode(t *testing.T) {
	for objective, code := range map[string]int{"p99<3ms,get.max<3ms": exitOK, "p50<3ms,put.p99<1500us": exitSLO} {
		synctest.Test(t, func(t *testing.T) {
			r := runCommand(t, t.Context(), func(m *memoryTarget) { m.takes = 2 * time.Millisecond }, "run", "--threads", "2", "--keys", "500",
				"--value-size", "100", "--duration", "3s", "--runs", "2", "--slo", objective)
			assert.Equal(t, code, r.code, r.stderr)
			if code == exitOK {
				assert.Contains(t, r.stdout, "objective    get.max<3ms met")
				return
			}
			assert.Contains(t, r.stderr, "objective missed: put.p99<1.5ms: put.p99 was 2ms, ")
			assert.Contains(t, r.stderr, "too long, in 2 of 2 runs")
			assert.NotContains(t, r.stderr, "p50<3ms")
		})
	}
}
