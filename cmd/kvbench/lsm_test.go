package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/results"
)

func TestLSMMeasuresARealStore(t *testing.T) {
	t.Chdir(t.TempDir())
	var out, errs strings.Builder
	require.Equal(t, exitOK, execute(t.Context(), []string{
		"lsm", "--mixes", "BALANCED", "--find-rates", "50", "--threads", "2", "--keys", "1000,2000", "--flush-keys", "1000",
		"--duration", "50ms", "--value-size", "50", "--report", "l",
	}, &out, &errs, openTarget), errs.String())
	assert.Contains(t, out.String(), "operations/s at best")
	back, err := results.Read("l")
	require.NoError(t, err)
	require.Len(t, back.Cells, 2)
	for _, c := range back.Cells {
		require.Len(t, c.Runs, 1)
		assert.NotNil(t, c.Runs[0].DataBytes)
	}
	left, err := os.ReadDir(".")
	require.NoError(t, err)
	assert.Len(t, left, 1, "the stores are removed")
}

func TestLSMWritesAReportThatCanBeDrawnAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "l")
	synctest.Test(t, func(t *testing.T) {
		r := runCommand(t, t.Context(), func(m *memoryTarget) { m.takes = time.Millisecond },
			"lsm", "--mixes", "PUT_HEAVY,BALANCED", "--find-rates", "90", "--threads", "4", "--keys", "100000000,1000000000", "--scale", "0.0001", "--duration", "1s", "--report", dir)
		require.Equal(t, exitOK, r.code, r.stderr)
		assert.Contains(t, r.stderr, "run 8 of 8  mix BALANCED, find rate 90 %, threads 4, flush at 1M, keys 1G")
		assert.Equal(t, 300, r.options.flushKeys, "no less than files can be synced")
		assert.Equal(t, 1, r.options.partitions)
	})
	back, err := results.Read(dir)
	require.NoError(t, err)
	assert.Len(t, back.Cells, 8)
	assert.Contains(t, redrawn(t, dir), "100M keys are 10k")
}

func TestAWrongAnswerEndsLSM(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := runCommand(t, t.Context(), func(m *memoryTarget) { m.takes, m.garbled = time.Millisecond, true },
			"lsm", "--scale", "0.0001", "--duration", "1s", "--report", "there")
		assert.Equal(t, exitError, r.code)
		assert.Contains(t, r.stderr, "wrong answer")
	})
}

func TestLSMRefusesWhatMakesNoSense(t *testing.T) {
	refuses(t, "lsm", map[string][]string{
		"--scale 0":       {"--scale", "0"},
		"unknown mix":     {"--mixes", "ODD"},
		"--flush-keys 0":  {"--flush-keys", "0"},
		"0 threads":       {"--threads", "0"},
		"find rate 2":     {"--find-rates", "200"},
		"--keys 0":        {"--keys", "0"},
		"--partitions 0":  {"--partitions", "0"},
		"nothing to meas": {"--mixes", ""},
	})
}
