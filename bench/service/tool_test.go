package main

import (
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const redisBenchmarkOutput = `"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms","max_latency_ms"
"GET","106951.88","0.275","0.072","0.271","0.335","0.503","1.303"
`

func TestTheOutputOfRedisBenchmarkIsRead(t *testing.T) {
	kind, err := parseRedisBenchmark([]byte(redisBenchmarkOutput), 20_000)
	require.NoError(t, err)
	assert.EqualValues(t, 20_000, kind.Count)
	assert.InDelta(t, 106951.88, kind.OpsPerSecond, 0)
	assert.EqualValues(t, 275*time.Microsecond, kind.MeanNanos)
	assert.EqualValues(t, 271*time.Microsecond, kind.Nanos.P50)
	assert.EqualValues(t, 503*time.Microsecond, kind.Nanos.P99)
	assert.EqualValues(t, 1303*time.Microsecond, kind.Nanos.Max)
}

func TestOutputThatIsNotOfRedisBenchmarkIsRefused(t *testing.T) {
	for says, text := range map[string]string{
		"0 lines":                         "",
		"1 lines":                         "ERR unknown command\n",
		`no figure is named "rps"`:        "\"test\"\n\"GET\"\n",
		"invalid syntax":                  "rps,avg_latency_ms,p50_latency_ms,p95_latency_ms,p99_latency_ms,max_latency_ms\nnan?,1,1,1,1,1\n",
		"a rate of 0":                     "rps,avg_latency_ms,p50_latency_ms,p95_latency_ms,p99_latency_ms,max_latency_ms\n0,1,1,1,1,1\n",
		`no figure is named "p95_latency`: "rps,avg_latency_ms,p50_latency_ms,p99_latency_ms,max_latency_ms\n1,1,1,1,1\n",
	} {
		_, err := parseRedisBenchmark([]byte(text), 1)
		require.ErrorContains(t, err, says)
	}
}

func TestRedisBenchmarkTakesItsTurns(t *testing.T) {
	for _, program := range []string{"redis-server", redisBench} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("NOT TESTED: %v; install Debian's packages redis-server and redis-tools to run this test", err)
		}
	}
	o := testOptions(t, "get", "set")
	o.contestants = []string{redisBench}
	stdout, stderr, slots := runCompare(t, o)
	require.Len(t, slots, len(getCallers)+len(setCallers))
	for _, s := range slots {
		assert.Equal(t, s.Cell[:3] == "get", s.Run.Gets.Count > 0, s.Cell)
		assert.True(t, s.Run.Unchecked)
		assert.Positive(t, s.Run.Keys)
		assert.Positive(t, s.Run.Seconds)
	}
	assert.Regexp(t, `(?m)^ *redis-benchmark +[0-9.]+ .* [0-9]+/[0-9]+/- `, stdout)
	assert.Contains(t, stderr, "redis-always-apart: 2000 keys in")
}
