package conformance

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// golden is the directory that the package results of kvd is tested with.
const golden = "../../internal/results/testdata/v1"

// TestALogIsReadByHdrHistogram: the library reads the log that kvbench writes, and finds in
// it the operations and percentiles of the result beside it.
func TestALogIsReadByHdrHistogram(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(golden, "result.json"))
	require.NoError(t, err)
	var result struct {
		Cells []struct {
			Runs []struct {
				Operations []struct {
					Operation string
					Count     int64
					Nanos     struct{ P50, P99, Max int64 }
				}
			}
		}
	}
	require.NoError(t, json.Unmarshal(data, &result))

	f, err := os.Open(filepath.Join(golden, "001.hlog"))
	require.NoError(t, err)
	defer func() { require.NoError(t, f.Close()) }()
	all, intervals := make(map[string]*hdrhistogram.Histogram), 0
	for reader := hdrhistogram.NewHistogramLogReader(f); ; intervals++ {
		h, err := reader.NextIntervalHistogram()
		require.NoError(t, err)
		if h == nil {
			break
		}
		if all[h.Tag()] == nil {
			all[h.Tag()] = hdrhistogram.New(h.LowestTrackableValue(), h.HighestTrackableValue(), int(h.SignificantFigures()))
		}
		assert.Zero(t, all[h.Tag()].Merge(h), "every value has a place")
	}
	assert.Equal(t, 6, intervals, "of three seconds and two operations")

	operations := result.Cells[0].Runs[0].Operations // all runs of it are alike
	require.Len(t, operations, len(all))
	for _, o := range operations {
		h := all[o.Operation]
		require.NotNil(t, h, o.Operation)
		assert.Equal(t, o.Count, h.TotalCount(), o.Operation)
		for quantile, want := range map[float64]int64{50: o.Nanos.P50, 99: o.Nanos.P99, 100: o.Nanos.Max} {
			// The result knows the longest operation exactly, the log knows its bucket. Other
			// percentiles differ, as the library rounds ranks to the nearest integer.
			assert.InEpsilon(t, float64(want), float64(h.ValueAtQuantile(quantile)), 1.0/128, "%s, %v %%", o.Operation, quantile)
		}
	}
}
