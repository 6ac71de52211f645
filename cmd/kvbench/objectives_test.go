package main

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/results"
)

// TestEveryMeasuringCommandJudgesObjectives: on a store of which each operation takes 10 ms, of
// two objectives the one that is missed. The tests of txn, reads, restart and microbatch, for which
// a store in memory is too simple, judge one too.
func TestEveryMeasuringCommandJudgesObjectives(t *testing.T) {
	const mix = " --mixes PUT_HEAVY --duration 1s --runs 1"
	for line, met := range map[string]string{
		"run --threads 1 --keys 20 --duration 1s":                                   "put.p99<11ms",
		"sweep --rps 10,20 --threads 2 --keys 20 --duration 1s --warmup 0s":         "get.p99<11ms",
		"ycsb --workload C,A --threads 1 --records 20 --memory 64MiB --duration 1s": "update.max<11ms",
		"partitions --partitions 1 --threads 1,2 --scale 0.0001" + mix:              "p50<11ms",
		"lsm --find-rates 50 --keys 10000 --flush-keys 1000 --threads 1" + mix:      "p50<11ms",
		"source partitions --scale 0.0001 -- --partitions 1 --threads 1" + mix:      "p50<11ms",
	} {
		t.Chdir(t.TempDir())
		synctest.Test(t, func(t *testing.T) {
			r := runCommand(t, t.Context(), func(m *memoryTarget) { m.takes = 10 * time.Millisecond }, append(strings.Fields(line), "--slo", met+",p50<1ms")...)
			require.Equal(t, exitSLO, r.code, "%s: %s", line, r.stderr)
			assert.Contains(t, r.stderr, "kvbench: objective missed: ", line)
			if !strings.HasPrefix(line, "sweep") { // which names both, as no load bore both
				assert.NotContains(t, r.stderr, met, line)
			}
		})
	}
}

// missed are objectives of which a run meets one only.
func missed(operation string) []string {
	return []string{"--slo", operation + ".max<1ns," + operation + ".p50<1h"}
}

// assertMissed checks that a run judged the objectives of missed.
func assertMissed(t *testing.T, operation, stderr string) {
	t.Helper()
	assert.Contains(t, stderr, operation+".max<1ns: "+operation+".max was ")
	assert.NotContains(t, stderr, "1h0m0s")
	assert.NotContains(t, stderr, "no such operations")
}

// TestAnErrorIsMoreThanAMissedObjective: its exit code remains 1.
func TestAnErrorIsMoreThanAMissedObjective(t *testing.T) {
	for _, line := range []string{"run --threads 1 --keys 20 --mix BALANCED --duration 1h", "partitions --mixes BALANCED --scale 0.001"} {
		r := runCommand(t, t.Context(), func(m *memoryTarget) { m.garbled = true }, append(strings.Fields(line), "--slo", "p99<1ns")...)
		assert.Equal(t, exitError, r.code, line)
		assert.Contains(t, r.stderr, "wrong answer")
		assert.NotContains(t, r.stderr, "objective")
	}
}

func TestAnInterruptedExperimentMeetsNoObjective(t *testing.T) {
	for _, line := range []string{
		"partitions --mixes PUT_HEAVY --scale 0.0001",
		"ycsb --workload C --records 10 --duration 1h",
		"sweep --rps 10 --keys 10 --threads 1 --warmup 0s --duration 1h",
	} {
		t.Chdir(t.TempDir())
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			r := runCommand(t, ctx, func(m *memoryTarget) { m.takes = 10 * time.Millisecond }, append(strings.Fields(line), "--slo", "max<1ms")...)
			assert.Equal(t, exitError, r.code, line)
			assert.Contains(t, r.stderr, "the objectives of --slo are not judged", line)
		})
	}
}

func TestObjectivesOfOtherOperationsAreRefused(t *testing.T) {
	for command, slo := range map[string]string{
		"ycsb": "get.p99<1s", "txn": "get.p99<1s", "snapshots": "read.p99<1s", "reads": "put.p99<1s", "restart": "get.p99<1s", "microbatch": "put.p99<1s", "lsm": "read.p99<1s",
	} {
		refuses(t, command, map[string][]string{"--slo: ": {"--slo", slo}})
	}
}

func TestManyMissedObjectivesAreCounted(t *testing.T) {
	var all objectiveOptions
	all.slo = "p99<1ms" + strings.Repeat(",p99<1ms", 12)
	require.NoError(t, all.parse(nil))
	c := newReportCommand()
	c.SetContext(t.Context())
	err := all.judge(c, []*results.Cell{{Runs: []*results.Run{oneRunOf(2 * time.Millisecond)}}})
	require.ErrorIs(t, err, errMissed)
	assert.Equal(t, mostMissed, strings.Count(err.Error(), "p99 was 2ms"))
	assert.Contains(t, err.Error(), "; and 3 more")
}

// oneRunOf is a run whose operations all took so long.
func oneRunOf(took time.Duration) *results.Run {
	return &results.Run{Trial: &loadgen.Trial{All: loadgen.Latency{P99: int64(took)}}}
}
