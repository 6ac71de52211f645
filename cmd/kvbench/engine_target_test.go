package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheEmbeddedEngineAnswersRight(t *testing.T) {
	for _, flags := range [][]string{
		{"--durability", "buffered", "--memory", "1MiB"}, // flushes
		{"--durability", "sync", "--flush-keys", "100", "--distribution", "zipfian", "--theta", "1.2", "--value-size", "300..500", "--key-size", "64"},
		{"--durability", "memory", "--batch-ops", "16", "--linger", "500us", "--distribution", "latest"},
	} {
		args := append([]string{"run", "--threads", "4", "--partitions", "2", "--keys", "2000", "--preload", "1000", "--mix", "BALANCED",
			"--find-rate", "0.9", "--value-size", "400", "--duration", "1h", "--check-deletes", "--data", "d", "--out", "r"}, flags...)
		ctx, open := endingAfter(t, 2500)
		code, stdout, stderr := benchUntil(t, ctx, open, args...)
		require.Equal(t, exitOK, code, "%v: %s", flags, stderr)
		assert.Contains(t, stdout, "all answers right")
		assert.Contains(t, stdout, "a micro-batch")
		assert.FileExists(t, filepath.Join("d", "STORE"))

		lines := readLines(t, "r")
		var last struct {
			Summary struct {
				DataBytes int64
				Target    targetInfo
			}
		}
		require.NoError(t, json.Unmarshal(lines[len(lines)-1], &last))
		assert.Positive(t, last.Summary.DataBytes)
		assert.Equal(t, 2, last.Summary.Target.Partitions)
		activity := last.Summary.Target.Activity
		require.NotNil(t, activity)
		assert.GreaterOrEqual(t, activity.OpsPerWriteBatch, 1.0)
		assert.GreaterOrEqual(t, activity.OpsPerReadBatch, 1.0)
		assert.Positive(t, activity.LogBytes)
		assert.Positive(t, activity.WrittenPerUserBytes)
		if flags[1] == "sync" {
			assert.Positive(t, activity.LogSyncs)
		}
	}
}

func TestAnEngineThatCannotBeOpenedIsAnError(t *testing.T) {
	t.Chdir(t.TempDir())
	var stdout, stderr bytes.Buffer
	require.NoError(t, os.WriteFile("d", nil, 0o600))
	code := execute(t.Context(), []string{"run", "--data", "d"}, &stdout, &stderr, openTarget)
	assert.Equal(t, exitError, code)
	assert.Contains(t, stderr.String(), "not a directory")
}
