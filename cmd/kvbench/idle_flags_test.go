package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kvd-db/kvd/internal/workload"
)

// TestFlagsWithoutEffectAreRefused: beside flags with which they would change nothing. The error
// says what to do, and nothing is opened.
func TestFlagsWithoutEffectAreRefused(t *testing.T) {
	t.Chdir(t.TempDir())
	open := func(*targetOptions) (workload.Target, targetInfo, error) { return nil, targetInfo{}, assert.AnError }
	for line, says := range map[string]string{
		"run --theta 0.5":                                         "--theta has no effect on keys without a Zipfian distribution: leave it out, or choose zipfian",
		"run --distribution hotspot --theta 0.99":                 "--theta has no effect",
		"sweep --theta 0.5":                                       "--theta has no effect",
		"partitions --theta 0.5":                                  "--theta has no effect",
		"lsm --distribution sequential --theta 0.5":               "--theta has no effect",
		"reads --distributions uniform --theta 0.5":               "--theta has no effect",
		"microbatch --theta 0.5":                                  "unknown flag: --theta",
		"restart --theta 0.5":                                     "unknown flag: --theta",
		"run --mix WRITE_ONLY --find-rate 0.1":                    "--find-rate has no effect on the mix WRITE_ONLY, which neither gets nor deletes",
		"sweep --mix WRITE_ONLY --find-rate 0.1":                  "--find-rate has no effect",
		"lsm --mixes WRITE_ONLY --find-rates 10":                  "--find-rates has no effect",
		"run --mix WRITE_ONLY --verify=false":                     "--verify has no effect",
		"run --mix READ_ONLY --check-deletes":                     "--check-deletes has no effect",
		"run --mix READ_ONLY --value-size 99":                     "--value-size has no effect",
		"run --mix READ_ONLY --compressible 1":                    "--compressible has no effect",
		"run --mix READ_ONLY --find-rate 0 --distribution latest": "--distribution has no effect",
		"run --arrivals fixed":                                    "--arrivals fixed has no effect without a rate",
		"run --interval 5s":                                       "--interval has no effect without --out",
		"ycsb --interval 5s":                                      "--interval has no effect without --out",
		"txn --interval 5s":                                       "--interval has no effect without --out",
		"run --reuse":                                             "--reuse has no effect on a new store",
		"sweep --reuse":                                           "--reuse has no effect on a new store",
		"snapshots --reuse":                                       "--reuse has no effect on a new store",
		"run --batch-ops 1 --linger 1ms":                          "--linger has no effect with --batch-ops 1",
		"txn --hot-rate 0 --hot-fraction 0.5":                     "--hot-fraction has no effect with --hot-rate 0",
		"txn --hot-rate 0.5 --hot-fraction 0":                     "--hot-rate has no effect with --hot-fraction 0",
		"microbatch --stores server --read-latency 1ms":           "--read-latency has no effect on the store server",
		"microbatch --stores server --workers 3":                  "--workers has no effect on the store server",
		"microbatch --readers 1 --sizes 4,16":                     "--sizes has no effect but for 16 if every reader is alone",
		"microbatch --sizes 1 --linger 1ms":                       "--linger has no effect without a fixed batch size above 1",
		"microbatch --readers 1 --sizes 4 --workers 3":            "--workers has no effect without a fixed batch size",
		"microbatch --read-latency 0 --read-depth 3":              "--read-depth has no effect with --read-latency 0",
	} {
		var stdout, stderr strings.Builder
		assert.Equal(t, exitUsage, execute(t.Context(), strings.Fields(line), &stdout, &stderr, open), line)
		assert.Contains(t, stderr.String(), says, line)
	}
}

// TestFlagsWithAnEffectAreTaken: beside others with which they change something.
func TestFlagsWithAnEffectAreTaken(t *testing.T) {
	t.Chdir(t.TempDir())
	open := func(*targetOptions) (workload.Target, targetInfo, error) { return nil, targetInfo{}, assert.AnError }
	for _, line := range []string{
		"run --distribution latest --theta 0.5",
		"sweep --mix READ_ONLY --value-size 99 --verify",
		"reads --distributions uniform,zipfian --theta 0.5",
		"run --mix READ_ONLY --preload 100 --value-size 99 --find-rate 0",
		"run --arrivals fixed --rate 5",
		"run --interval 5s --out r",
		"run --addr :1 --reuse",
		"ycsb --theta 0.5",
		"txn --hot-rate 0 --hot-fraction 0",
		"microbatch --stores server --sizes 4",
		"microbatch --readers 1 --sizes 16 --workers 3",
	} {
		var stdout, stderr strings.Builder
		assert.Equal(t, exitError, execute(t.Context(), strings.Fields(line), &stdout, &stderr, open), "%s: %s", line, stderr.String())
		assert.Contains(t, stderr.String(), assert.AnError.Error(), line)
	}
}
