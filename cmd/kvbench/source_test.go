package main

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/experiment"
	"github.com/kvd-db/kvd/internal/results"
)

func TestASourceRunsItsExperimentBesideItsFigures(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	synctest.Test(t, func(t *testing.T) {
		r := runCommand(t, t.Context(), func(m *memoryTarget) { m.takes = 10 * time.Millisecond }, "source", "partitions", "--scale", "0.0001", "--runs", "1", "--report", dir,
			"--", "--mixes", "BALANCED", "--partitions=1,2", "--threads", "1")
		require.Equal(t, exitOK, r.code, r.stderr)
		assert.Contains(t, r.stdout, "kvbench partitions --keys 100000000 --value-size 1024 --scale 0.0001")
		assert.Contains(t, r.stdout, "2 partitions against 1")
		assert.Contains(t, r.stdout, "What the source measured: DBFromZero")
		assert.Regexp(t, `PUT_HEAVY +67\.7 +111\.1 +\+64 % +33\.1`, r.stdout)
	})
	back, err := results.Read(filepath.Join(dir, "partitions"))
	require.NoError(t, err)
	assert.Equal(t, "partitions", back.Source)
	assert.Len(t, back.Cells, 2)
	assert.Contains(t, redrawn(t, filepath.Join(dir, "partitions")), "What the source measured")
}

func TestSourcesThatMakeNoSense(t *testing.T) {
	refuses(t, "source", map[string][]string{
		"name a source":           {},
		`"alchemy" is no source`:  {"alchemy"},
		`unexpected "partitions"`: {"partitions", "partitions"},
		"--runs -1":               {"partitions", "--runs=-1"},
		"--scale 0":               {"partitions", "--scale", "0"},
		"unknown flag: --alchemy": {"partitions", "--", "--alchemy"},
	})
	r := runCommand(t, t.Context(), func(m *memoryTarget) { m.garbled = true }, "source", "partitions", "--scale", "0.0001")
	assert.Equal(t, exitError, r.code)
	assert.Contains(t, r.stderr, "wrong answer")
}

func TestStepsOfASourceHaveReportsOfTheirOwn(t *testing.T) {
	for _, source := range experiment.Sources {
		seen := make(map[string]bool)
		for n := range source.Steps {
			name := reportName(source, n)
			assert.False(t, seen[name], "%s: %s", source.Name, name)
			seen[name] = true
		}
	}
	reads := []string{"reads", "--threads", "64", "--distributions", "zipfian", "--theta", "0.999"}
	assert.Equal(t, reads, withoutFlags(reads, []string{"--value-size=99"}))
	assert.Equal(t, reads[:3], withoutFlags(reads, []string{"--distributions", "uniform"}), "which has no skew")
	line := []string{"ycsb", "--operations", "500000", "--threads", "1"}
	scaleOperations(line, 0.01)
	assert.Equal(t, []string{"ycsb", "--operations", "5000", "--threads", "1"}, line)
	scaleOperations(line, 1e-6)
	assert.Equal(t, "1000", line[2])
}

// TestTheFlagsOfSourcesExist parses the command line of each experiment that this kvbench has.
func TestTheFlagsOfSourcesExist(t *testing.T) {
	for _, source := range experiment.Sources {
		assert.NotEmpty(t, source.Section().Tables, source.Name)
		for _, step := range source.Steps {
			r := runCommand(t, t.Context(), nil, append(append([]string{}, step...), "--scale", "0", "--report", "r", "--runs", "1")...)
			assert.Equal(t, exitUsage, r.code)
			assert.True(t, assert.ObjectsAreEqual("kvbench: --scale 0: want more than 0, and at most 100\nsee kvbench "+step[0]+" --help\n", r.stderr) ||
				assert.ObjectsAreEqual("kvbench: unknown command \""+step[0]+"\" for \"kvbench\"\nsee kvbench --help\n", r.stderr), r.stderr)
		}
	}
}
