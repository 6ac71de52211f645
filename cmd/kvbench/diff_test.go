package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
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
	assert.Contains(t, r.stderr, "a rate is worse: mix PUT_HEAVY, ")

	// An open loop does what is due in either case.
	for name, unit := range map[string]time.Duration{"open before": time.Millisecond, "open slow": 1500 * time.Microsecond} {
		synctest.Test(t, func(t *testing.T) {
			r := runCommand(t, t.Context(), func(m *memoryTarget) { m.jitter = unit }, "run", "--threads", "4", "--keys", "5000", "--value-size", "100",
				"--duration", "3s", "--rate", "200", "--runs", "4", "--report", filepath.Join(dir, name))
			require.Equal(t, exitOK, r.code, r.stderr)
		})
	}
	r = runCommand(t, t.Context(), nil, "diff", filepath.Join(dir, "open before"), filepath.Join(dir, "open slow"), "--strict")
	assert.Equal(t, exitError, r.code, r.stdout)
	assert.Contains(t, r.stdout, "No difference in 1 rate")
	assert.Contains(t, r.stderr, "a latency is worse: ")

	synctest.Test(t, func(t *testing.T) {
		r := runCommand(t, t.Context(), func(m *memoryTarget) { m.jitter = time.Millisecond }, "run", "--threads", "2", "--keys", "4000", "--value-size", "200",
			"--duration", "3s", "--report", filepath.Join(dir, "other"))
		require.Equal(t, exitOK, r.code, r.stderr)
	})
	r = runCommand(t, t.Context(), nil, "diff", before, filepath.Join(dir, "other"))
	assert.Equal(t, exitError, r.code, "the workloads differ")
	assert.Contains(t, r.stderr, "the workloads differ: keys 5000 and 4000, valueBytes 100 and 200")

	r = runCommand(t, t.Context(), nil, "diff", before, slow, "--strict", "--least", "0.2")
	require.Equal(t, exitOK, r.code, r.stderr)
	assert.Contains(t, r.stdout, "No difference in 1 rate", "a tenth is less than a fifth")
	r = runCommand(t, t.Context(), nil, "diff", before, slow, "--least", "0.001")
	assert.Equal(t, exitUsage, r.code)
	assert.Contains(t, r.stderr, "want 0.01 to less than 1")

	r = runCommand(t, t.Context(), nil, "diff", before, filepath.Join(dir, "nowhere"))
	assert.Equal(t, exitError, r.code)
	r = runCommand(t, t.Context(), nil, "diff", before)
	assert.Equal(t, exitUsage, r.code)
}

// TestStrictDoesNotPassAStoreThatRefuses: what it accepts is as quick as before.
func TestStrictDoesNotPassAStoreThatRefuses(t *testing.T) {
	dir := t.TempDir()
	for name, refuses := range map[string]func(int64) bool{"a": func(int64) bool { return false }, "b": func(n int64) bool { return n%50 == 0 }} {
		synctest.Test(t, func(t *testing.T) {
			code, _, stderr := bench(t, refusing(refuses), "run", "--mix", "WRITE_ONLY", "--threads", "2", "--keys", "500", "--value-size", "100",
				"--duration", "4s", "--rate", "100", "--runs", "3", "--report", filepath.Join(dir, name))
			require.Equal(t, exitOK, code, stderr)
		})
	}
	r := runCommand(t, t.Context(), nil, "diff", filepath.Join(dir, "a"), filepath.Join(dir, "b"), "--strict")
	assert.Equal(t, exitError, r.code)
	assert.Contains(t, r.stderr, "more operations were refused or never began")
	assert.Contains(t, r.stdout, "In 1 combination, operations were refused or never began.")
}

// TestDiffOfRunsThatTookTurns: single runs of two programs give a verdict together, and none
// one by one.
func TestDiffOfRunsThatTookTurns(t *testing.T) {
	dir := t.TempDir()
	var sides [2][]string
	for n := range 3 {
		for side, unit := range []time.Duration{time.Millisecond, 1500 * time.Microsecond} {
			to := filepath.Join(dir, strconv.Itoa(n)+"ab"[side:side+1])
			sides[side] = append(sides[side], to)
			synctest.Test(t, func(t *testing.T) {
				r := runCommand(t, t.Context(), func(m *memoryTarget) { m.jitter = unit }, "run", "--threads", "1", "--keys", "1000", "--value-size", "100",
					"--duration", "2s", "--seed", strconv.Itoa(n), "--report", to)
				require.Equal(t, exitOK, r.code, r.stderr)
			})
		}
	}
	r := runCommand(t, t.Context(), nil, "diff", strings.Join(sides[0], ","), strings.Join(sides[1], ","))
	require.Equal(t, exitOK, r.code, r.stderr)
	assert.Contains(t, r.stdout, "1 of 1 rate worse")

	r = runCommand(t, t.Context(), nil, "diff", sides[0][0], sides[1][0], "--strict")
	assert.Equal(t, exitError, r.code)
	assert.Contains(t, r.stdout, "No verdict on 1 rate: each side needs at least 3 runs.")
	assert.Contains(t, r.stderr, "--strict cannot say")

	r = runCommand(t, t.Context(), nil, "diff", sides[0][0]+","+sides[0][0], sides[1][0])
	assert.Equal(t, exitError, r.code)
	assert.Contains(t, r.stderr, "named twice")
}
