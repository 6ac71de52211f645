package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/workload"
)

// extremes are values of flags by their type that hardly any flag should take.
var extremes = map[string][]string{
	"int":         {"-1", "0", "9223372036854775807"},
	"uint64":      {"-1", "0", "18446744073709551615"},
	"float64":     {"-1", "0", "1e300", "NaN", "+Inf"},
	"duration":    {"-1s", "0s", "2540400h"},
	"size":        {"-1", "0", "1152921504606846976", "9223372036854775807"},
	"sizes":       {"", "-1", "0", "1000000000", "500..100", "100:0", "100:-1", "9223372036854775807:1"},
	"intSlice":    {"", "-1", "0", "9223372036854775807", "7,7"},
	"uintSlice":   {"", "-1", "0", "18446744073709551615", "7000,7000"},
	"stringSlice": {"", "nothing"},
}

// accepted are the extremes that have a meaning: by flag, or by command and flag.
var accepted = map[string][]string{
	"--seed":            {"0", "18446744073709551615"}, // any number
	"--compressible":    {"0"},
	"--find-rate":       {"0"},
	"--find-rates":      {"0"},
	"--hot-fraction":    {"0"},
	"--hot-rate":        {"0"},
	"--preload":         {"0"},
	"--rate":            {"0"}, // a closed loop
	"--rps":             {"0"},
	"--warmup":          {"0s"},
	"--linger":          {"0s"},
	"--read-latency":    {"0s"},
	"--read-depth":      {"0"},                        // any number at a time
	"--batch-ops":       {"0"},                        // the engine's default, as the following
	"--flush-keys":      {"0", "9223372036854775807"}, // no limit
	"--value-threshold": {"0", "9223372036854775807"}, // never apart
	"--memory":          {"0"},
	"--operations":      {"0"}, // as many as fit into --duration
	"--write-rate":      {"0"}, // a tenth of what the writer can do
	"--writes":          {"0"}, // transactions that only read
	"source --runs":     {"0"}, // the default of the experiment
	"--logs":            {},

	"partitions --duration": {"0s"}, // that of the experiment
	"lsm --duration":        {"0s"},
	"reads --duration":      {"0s"},
	"restart --duration":    {"0s"},
	"partitions --memory":   {},
	"lsm --memory":          {},
	"lsm --flush-keys":      {},
	"reads --memory":        {},
	"microbatch --memory":   {},
}

// with are flags without which another one is refused.
var with = map[string]string{"txn --write-rate": "--read-beside", "txn --rounds": "--read-beside"}

// TestFlagsRefuseValuesWithoutMeaning gives each flag of each command each extreme of its type.
// A value without a meaning is a usage error, before anything is opened or written.
func TestFlagsRefuseValuesWithoutMeaning(t *testing.T) {
	t.Chdir(t.TempDir())
	file := filepath.Join(t.TempDir(), "file") // in place of the directory of a report
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	open := func(*targetOptions) (workload.Target, targetInfo, error) { return nil, targetInfo{}, assert.AnError }
	tried := 0
	for _, c := range newRootCommand(open).Commands() {
		for _, f := range visited(c.Flags().VisitAll) {
			for _, value := range valuesFor(f.Value) {
				tried++
				args := []string{c.Name(), "--" + f.Name + "=" + value}
				if more, ok := with[c.Name()+" --"+f.Name]; ok {
					args = append(args, more) // which excludes --report
				} else if c.Flags().Lookup("report") != nil {
					args = append(args, "--report", file)
				}
				if c.Name() == "source" {
					args = append(args, "partitions")
				}
				var stdout, stderr bytes.Buffer
				code := execute(t.Context(), args, &stdout, &stderr, open)
				line := strings.Join(args, " ")
				if !meaning(c.Name(), f.Name, value) {
					assert.Equal(t, exitUsage, code, "%s: %s", line, stderr.String())
					continue
				}
				assert.Equal(t, exitError, code, "%s: %s", line, stderr.String())
			}
		}
	}
	assert.Greater(t, tried, 300)
	left, err := os.ReadDir(".")
	require.NoError(t, err)
	assert.Empty(t, left)
}

// valuesFor returns the extremes of a flag; for a list of words also its first default, twice.
func valuesFor(flag interface{ Type() string }) []string {
	values := extremes[flag.Type()]
	if list, ok := flag.(interface{ GetSlice() []string }); ok && flag.Type() == "stringSlice" && len(list.GetSlice()) > 0 {
		first := list.GetSlice()[0]
		values = append([]string{first + "," + first, first + "," + strings.ToLower(first) + "," + strings.ToUpper(first)}, values...)
	}
	return values
}

func meaning(command, flag, value string) bool {
	values, ok := accepted[command+" --"+flag]
	if !ok {
		values = accepted["--"+flag]
	}
	return slices.Contains(values, value)
}

func TestNumbersThatScaleMakesEqualAreRefused(t *testing.T) {
	refuses(t, "restart", map[string][]string{
		`"keys 1000, unflushed 0 B, stop kill" would be measured twice`: {"--scale", "0.0001", "--logs", "0"},
	})
	refuses(t, "sweep", map[string][]string{
		"1000 is there twice":      {"--rps", "1000,2000,1000"},
		"want auto, or operations": {"--rps", "5000000000"},
	})
	refuses(t, "ycsb", map[string][]string{"--workload: A is there twice": {"--workload", "A,a"}})
}

func TestTheHelpOfRunHasTheSharesOfEachMix(t *testing.T) {
	r := runCommand(t, t.Context(), nil, "run", "--help")
	for _, row := range []string{"PUT_HEAVY      90 %      5 %   5 %\n", "READ_ONLY       0 %      0 % 100 %\n"} {
		assert.Contains(t, r.stdout, row)
	}
}
