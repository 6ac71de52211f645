package results

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestMemtierHasTheFiguresOfTheRun: by the names and in the units of memtier_benchmark.
func TestMemtierHasTheFiguresOfTheRun(t *testing.T) {
	r := measured(t)
	run := r.Cells[0].MedianRun()
	type row struct {
		Count       uint64
		Rate        float64 `json:"Ops/sec"`
		Latency     float64
		Max         float64            `json:"Max Latency"`
		Percentiles map[string]float64 `json:"Percentile Latencies"`
		Series      map[string]struct {
			Count uint64
			P99   float64 `json:"p99.00"`
		} `json:"Time-Serie"`
	}
	var doc struct {
		Stats struct {
			Runtime struct {
				Start    int64  `json:"Start time"`
				Finish   int64  `json:"Finish time"`
				Duration int64  `json:"Total duration"`
				Unit     string `json:"Time unit"`
			}
			Gets, Sets, Totals row
		} `json:"ALL STATS"`
	}
	require.NoError(t, json.Unmarshal(memtier(r, run), &doc))
	s := doc.Stats
	get, put := run.Operation("get"), run.Operation("put")
	assert.Equal(t, get.Count, s.Gets.Count)
	assert.Equal(t, put.OpsPerSecond, s.Sets.Rate)
	assert.Equal(t, run.Ops, s.Totals.Count)
	assert.InEpsilon(t, 1.003, s.Gets.Percentiles["p50.00"], 0.01, "milliseconds")
	assert.InEpsilon(t, 501.5, s.Sets.Max, 0.01)
	assert.InEpsilon(t, float64(get.MeanNanos)/1e6, s.Gets.Latency, 1e-9)
	assert.Greater(t, s.Totals.Latency, s.Gets.Latency)
	assert.Less(t, s.Totals.Latency, s.Sets.Latency)
	require.Len(t, s.Gets.Series, 3)
	assert.Equal(t, get.Count, s.Gets.Series["0"].Count+s.Gets.Series["1"].Count+s.Gets.Series["2"].Count)
	assert.Positive(t, s.Sets.Series["1"].P99)
	assert.Equal(t, "MILLISECONDS", s.Runtime.Unit)
	assert.InDelta(t, 3000, s.Runtime.Duration, 5)
	assert.Equal(t, s.Runtime.Duration, s.Runtime.Finish-s.Runtime.Start)

	for operation, name := range map[string]string{"get": "Gets", "put": "Sets", "read-modify-write": "Read-modify-writes", "": "Others"} {
		assert.Equal(t, name, memtierName(operation))
	}
	run.OpsPerSecond = math.NaN()
	assert.Equal(t, "{}\n", string(memtier(r, run)))
}
