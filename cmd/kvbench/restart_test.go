package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/results"
	"github.com/kvd-db/kvd/internal/workload"
)

var tinyRestart = []string{"restart", "--keys", "1000,2000", "--logs", "0,100KiB", "--value-size", "400", "--partitions", "2",
	"--duration", "10ms", "--runs", "1", "--report", "r"}

func TestRestartMeasuresStartsAfterAKillAndACleanStop(t *testing.T) {
	code, stdout, stderr := bench(t, openTarget, append(tinyRestart, missed("start")...)...)
	require.Equal(t, exitSLO, code, stderr)
	assertMissed(t, "start", stderr)
	assert.Contains(t, stderr, "run 8 of 8  keys 2000, unflushed 100 KiB, stop clean")
	for _, says := range []string{"filling tables", "filling the log", "reading"} {
		assert.Contains(t, stderr, "stop kill  "+says)
	}
	assert.NotContains(t, stderr, "run 9 of 8")
	assert.Regexp(t, `2k keys \(\S+ \S+\) are ready \S+ \S+ after a clean stop, and \S+ \S+ after a kill with 100 KiB unflushed; a further key costs`, stdout)
	left, err := os.ReadDir(".")
	require.NoError(t, err)
	require.Len(t, left, 1, "the stores are removed")

	back, err := results.Read("r")
	require.NoError(t, err)
	require.Len(t, back.Cells, 8)
	for _, c := range back.Cells {
		require.Len(t, c.Runs, 1, c.Name())
		run := c.Runs[0]
		assert.EqualValues(t, 1, run.Ops)
		assert.Equal(t, "start", run.Operations[0].Name)
		assert.Positive(t, run.Measures["openNanos"])
		assert.Positive(t, run.Measures["firstReadNanos"])
		assert.Greater(t, run.Measures["dataBytes"], 400_000.0, "all keys were flushed")
		if c.Param("unflushed") != "0 B" {
			assert.Greater(t, run.Measures["replayedRecords"], 10.0, "the unflushed entries are replayed: %s", c.Name())
			assert.Greater(t, run.Measures["logBytes"], 100_000.0, c.Name())
		}
		assert.Contains(t, run.Measures, "heapBytesReads")
		a := run.Counters()
		require.NotNil(t, a, c.Name())
		assert.Zero(t, a.FlushedBytes, "a start does not flush: %s", c.Name())
	}
	html := redrawn(t, "r")
	for _, says := range []string{"What it took", "disk read", "Start by size of the data", "Start by size of the log, 2k keys", "each further key", "121 s at best", "SIGKILL"} {
		assert.Contains(t, html, says)
	}
}

// TestRestartNoticesALostKey: the store that is opened is not the one that was filled.
func TestRestartNoticesALostKey(t *testing.T) {
	code, _, stderr := bench(t, func(o *targetOptions) (workload.Target, targetInfo, error) {
		other := *o
		other.data = t.TempDir()
		return openEngine(&other)
	}, tinyRestart...)
	require.Equal(t, exitError, code)
	assert.Contains(t, stderr, "wrong answer: key "+strings.Repeat("0", 64)+" is lost")
	stores, err := filepath.Glob("kvbench-data-*")
	require.NoError(t, err)
	assert.Empty(t, stores)
}

func TestRestartSaysWhyAStoreCannotBeFilled(t *testing.T) {
	t.Chdir(t.TempDir())
	_, err := fillAndKill(t.Context(), &filling{Target: fillOptions{Partitions: 100_000}}, nil)
	require.ErrorContains(t, err, "a process that fills a store failed")
	require.ErrorContains(t, err, "100000 partitions")
}

// TestAFilledStoreHasNoMoreInItsLogThanAsked: a log that is not trimmed is an error, and none if
// it is trimmed late.
func TestAFilledStoreHasNoMoreInItsLogThanAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		err := awaitTrim(t.Context(), func() int64 { return 5 << 20 }, 4<<20)
		require.ErrorContains(t, err, "the log still has 5.0 MiB, 2m0s after everything was flushed, and should have 4.0 MiB at most")

		began := time.Now()
		trimmed := func() int64 {
			if time.Since(began) < 35*time.Second {
				return 5 << 20
			}
			return 4 << 20
		}
		require.NoError(t, awaitTrim(t.Context(), trimmed, 4<<20))

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, awaitTrim(ctx, func() int64 { return 1 }, 0), context.Canceled)
	})
}

func TestFillRefusesOtherInput(t *testing.T) {
	for _, in := range []string{"", "x\n"} {
		assert.ErrorContains(t, fill(t.Context(), strings.NewReader(in), &bytes.Buffer{}), "read what to fill")
	}
}

func TestRestartRefusesWhatMakesNoSense(t *testing.T) {
	refuses(t, "restart", map[string][]string{
		"--logs: \"big\"":    {"--logs", "big"},
		"nothing to measure": {"--logs", ""},
		"--partitions 0":     {"--partitions", "0"},
		"--scale 0":          {"--scale", "0"},
		"values of 3":        {"--value-size", "3"},
		"keys of 5 bytes":    {"--key-size", "5"},
	})
}
