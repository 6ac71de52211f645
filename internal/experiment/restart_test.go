package experiment

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/results"
	"github.com/kvd-db/kvd/internal/workload"
)

// TestARestartTellsTheWorkOfItsStartAndTheStagesOfItsReads: what the store counts until the
// first answer, and where the time of the later reads goes.
func TestARestartTellsTheWorkOfItsStartAndTheStagesOfItsReads(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		filled := &store{values: make(map[string][]byte), takes: time.Millisecond}
		var began []bool
		x := Restart{
			Keys: []uint64{20}, LogBytes: []int64{0}, KeepPages: true,
			Config: workload.Config{ValueBytes: 40, Workers: 1, Distribution: workload.Uniform, Seed: 1, Duration: time.Second, Interval: time.Second},
			Fill: func(ctx context.Context, keys, _ uint64, _ func(loadgen.Progress)) (string, error) {
				config := workload.Config{Keys: keys, ValueBytes: 40, Duration: time.Second, Interval: time.Second}
				return dir, workload.Load(ctx, filled, &config, 1, nil)
			},
			Remove: func(string) error { return nil },
			Start: func(string) (*Started, error) {
				reads := 0
				return &Started{Store: Store{
					Target: filled,
					Activity: func() any {
						reads++
						return &results.Activity{DiskReadBytes: uint64(1000 * reads), DiskWrittenBytes: 7}
					},
					Measured: func(begins bool) { began = append(began, begins) },
					Stages: func() []results.Stages {
						return []results.Stages{results.NewStages("get", []results.StagedCall{{5: 100}})}
					},
					Close: func() error { return nil },
				}}, nil
			},
		}
		e := x.Experiment()
		r, err := e.Run(t.Context(), Options{Runs: 1, Scale: 1, Progress: func(Progress) {}})
		require.NoError(t, err)
		assert.Equal(t, []bool{true, false, true, false}, began, "the reads of two starts")
		for _, c := range r.Cells {
			require.Len(t, c.Runs, 1)
			assert.EqualValues(t, 1000, c.Runs[0].Counters().DiskReadBytes, "until the first answer")
			assert.Len(t, c.Runs[0].Stages, 1)
		}
		html := e.Report(r).HTML()
		for _, says := range []string{"<td>1000 B</td><td>7 B</td>", "What it took", "Where the time of a get goes"} {
			assert.Contains(t, html, says)
		}
	})
}

func TestARangeOfTimesHasItsUnitOnce(t *testing.T) {
	assert.Equal(t, "65.6–158 ms", nanosRange(65.6e6, 158e6))
	assert.Equal(t, "900 µs–1.5 ms", nanosRange(900e3, 1.5e6))
	assert.Equal(t, "1–1 s", nanosRange(1e9, 1e9))
}
