package main

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/results"
)

func TestASweepOfAStoreWithAKnownCapacity(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	synctest.Test(t, func(t *testing.T) {
		// Four threads that take 10 ms for an operation do 400 a second.
		r := runCommand(t, t.Context(), func(m *memoryTarget) { m.takes = 10 * time.Millisecond }, "sweep", "--threads", "4", "--keys", "500",
			"--value-size", "100", "--duration", "3s", "--report", dir)
		require.Equal(t, exitOK, r.code, r.stderr)
		assert.Regexp(t, `The knee is at (3\d\d|40\d) operations/s, with a p99 of \S+ ms`, r.stdout)
		assert.Contains(t, r.stderr, "closed loop")
	})
	back, err := results.Read(dir)
	require.NoError(t, err)
	last := back.Cells[len(back.Cells)-1]
	assert.Greater(t, last.Runs[0].Late.Busy, uint64(100))
	most, err := strconv.Atoi(last.Param("offered"))
	require.NoError(t, err)
	assert.Greater(t, most, 410, "more than it can do")

	redrawn(t, dir)
}

func TestASweepRunsOnTheEngineAndOnAServer(t *testing.T) {
	for _, where := range [][]string{{"--partitions", "2"}, {"--addr", serve(t)}} {
		code, stdout, stderr := bench(t, pausing(t, time.Millisecond), append([]string{"sweep", "--rps", "100,200", "--threads", "4", "--keys", "300", "--value-size", "100",
			"--warmup", "0s", "--duration", "100ms", "--slo", "p50<1h", "--arrivals", "poisson"}, where...)...)
		// A busy machine may not keep up with either rate.
		require.True(t, code == exitOK || code == exitSLO && strings.Contains(stderr, "every load was too much"), stderr)
		assert.Contains(t, stdout, "offered/s")
		assert.FileExists(t, filepath.Join("kvbench-sweep", results.ReportFile))
	}
}

func TestSweepRefusesWhatMakesNoSense(t *testing.T) {
	refuses(t, "sweep", map[string][]string{
		"--rps":        {"--rps", "fast"},
		"--report":     {"--report", ""},
		"--runs 0":     {"--runs", "0"},
		"0 threads":    {"--threads", "0"},
		"is no object": {"--slo", "p98<1s"},
	})
}
