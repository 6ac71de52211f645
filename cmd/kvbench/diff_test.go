package main

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestDiffFindsADelayAndNothingElse measures three stores on a fake clock: two alike, and
// one whose operations take a tenth longer. The time of each operation depends on its key, so
// that runs with other seeds differ a little.
func TestDiffFindsADelayAndNothingElse(t *testing.T) {
	dir := t.TempDir()
	for name, unit := range map[string]time.Duration{"before": time.Millisecond, "same": time.Millisecond, "slow": 1100 * time.Microsecond} {
		synctest.Test(t, func(t *testing.T) {
			r := runCommand(t, t.Context(), func(m *memoryTarget) { m.jitter = unit }, "run", "--threads", "2", "--keys", "5000", "--value-size", "100",
				"--duration", "3s", "--runs", "3", "--seed", map[string]string{"before": "1", "same": "11", "slow": "21"}[name], "--report", filepath.Join(dir, name))
			require.Equal(t, exitOK, r.code, r.stderr)
		})
	}
	before, same, slow := filepath.Join(dir, "before"), filepath.Join(dir, "same"), filepath.Join(dir, "slow")

	r := runCommand(t, t.Context(), nil, "diff", before, same, "--strict")
	require.Equal(t, exitOK, r.code, r.stderr)
	assert.Contains(t, r.stdout, "No difference in 1 rate")

	page := filepath.Join(dir, "diff.html")
	r = runCommand(t, t.Context(), nil, "diff", before, slow, "--page", page)
	require.Equal(t, exitOK, r.code, r.stderr)
	assert.Contains(t, r.stdout, "1 of 1 rate worse")
	html, err := os.ReadFile(page)
	require.NoError(t, err)
	assert.Contains(t, string(html), "slow against before")

	r = runCommand(t, t.Context(), nil, "diff", before, slow, "--strict")
	assert.Equal(t, exitError, r.code)
	assert.Contains(t, r.stderr, "a rate is worse")

	synctest.Test(t, func(t *testing.T) {
		r := runCommand(t, t.Context(), func(m *memoryTarget) { m.jitter = time.Millisecond }, "run", "--threads", "2", "--keys", "4000", "--value-size", "200",
			"--duration", "3s", "--report", filepath.Join(dir, "other"))
		require.Equal(t, exitOK, r.code, r.stderr)
	})
	r = runCommand(t, t.Context(), nil, "diff", before, filepath.Join(dir, "other"))
	assert.Equal(t, exitError, r.code, "the workloads differ")
	assert.Contains(t, r.stderr, "the workloads differ: keys 5000 and 4000, valueBytes 100 and 200")

	r = runCommand(t, t.Context(), nil, "diff", before, filepath.Join(dir, "nowhere"))
	assert.Equal(t, exitError, r.code)
	r = runCommand(t, t.Context(), nil, "diff", before)
	assert.Equal(t, exitUsage, r.code)
}
