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

// TestEveryMeasuringCommandJudgesObjectives: on a store of which each operation takes 10 ms.
func TestEveryMeasuringCommandJudgesObjectives(t *testing.T) {
	const mixes = " --mixes PUT_HEAVY --threads 1,2 --scale 0.0001 --duration 1s --runs 1 --report r"
	for line, met := range map[string]string{
		"run --threads 1 --keys 20 --duration 1s":                                                     "put.p99<11ms",
		"sweep --rps 10,20 --threads 2 --keys 20 --duration 1s --warmup 0s":                           "get.p99<11ms",
		"ycsb --workload C,A --threads 1 --records 20 --memory 64MiB --duration 1s":                   "update.max<11ms",
		"partitions --partitions 1" + mixes:                                                           "p50<11ms",
		"lsm --find-rates 50 --keys 10000 --flush-keys 1000" + mixes:                                  "p50<11ms",
		"source partitions --scale 0.0001 --runs 1 -- --partitions 1 --mixes PUT_HEAVY --duration 1s": "p50<11ms",
	} {
		for objective, code := range map[string]int{met: exitOK, "p50<1ms": exitSLO} {
			t.Chdir(t.TempDir())
			synctest.Test(t, func(t *testing.T) {
				r := runCommand(t, t.Context(), func(m *memoryTarget) { m.takes = 10 * time.Millisecond }, append(strings.Fields(line), "--slo", objective)...)
				require.Equal(t, code, r.code, "%s --slo %s: %s", line, objective, r.stderr)
				if code == exitSLO {
					assert.Contains(t, r.stderr, "kvbench: objective missed: ", line)
				}
			})
		}
	}
}

// TestObjectivesOfRealStores: of the commands for which a target in memory is too simple.
func TestObjectivesOfRealStores(t *testing.T) {
	for line, operation := range map[string]string{
		"txn --keys 100 --threads 1,2 --duration 20ms":                                                          "transaction",
		"reads --keys 10000 --value-size 100 --distributions uniform --threads 2 --duration 20ms --runs 1":      "get",
		"restart --keys 1000 --logs 0 --value-size 400 --partitions 2 --duration 10ms --runs 1":                 "start",
		"microbatch --stores server --readers 16 --sizes 16 --rows 10000 --reads 1000 --runs 1 --value-size 40": "get",
	} {
		code, _, stderr := bench(t, openTarget, append(strings.Fields(line), "--slo", operation+".max<1ns,"+operation+".p50<1h")...)
		assert.Equal(t, exitSLO, code, stderr)
		assert.Contains(t, stderr, operation+".max<1ns: "+operation+".max was ")
		assert.NotContains(t, stderr, "raw preads: "+operation, "what is measured beside the store has no objective")
		assert.NotContains(t, stderr, "no such operations")
	}
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
