package experiment

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/results"
)

// TestAResumedExperimentMeasuresTheRest: each cell of the interrupted round, then the other
// rounds.
func TestAResumedExperimentMeasuresTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var order []string
		o := Options{Runs: 2, Scale: 1, Open: opener(&order, false), Progress: func(p Progress) {
			if p.Run == 3 && p.Sample != nil {
				cancel()
			}
		}}
		r, err := small().Run(ctx, o)
		require.ErrorIs(t, err, context.Canceled)
		assert.Equal(t, "114", strings.Join(order, ""))
		require.True(t, r.Cells[2].Runs[0].Interrupted)
		r.Cells[2].Runs = nil // as results.Resume does
		first := r.Cells[0].Runs[0]

		order = nil
		var progress []Progress
		o.Resumed, o.Progress = r, func(p Progress) { progress = append(progress, p) }
		r, err = small().Run(t.Context(), o)
		require.NoError(t, err)
		assert.Equal(t, "441144"+"11441144", strings.Join(order, ""))
		assert.Same(t, first, r.Cells[0].Runs[0])
		for _, c := range r.Cells {
			assert.Len(t, c.Runs, 2)
		}
		assert.Equal(t, 3, progress[0].Run)
		assert.Equal(t, 16, progress[len(progress)-1].Run)
		assert.InDelta(t, float64(39*time.Second), float64(progress[4].Left), float64(time.Second), "13 more runs of three seconds")

		order = nil
		o.Resumed = r
		_, err = small().Run(t.Context(), o)
		require.NoError(t, err)
		assert.Empty(t, order, "nothing is missing")
	})
}

// TestCellsOfOneStoreAreMeasuredAgainTogether: a raw read belongs to the read of its store.
func TestCellsOfOneStoreAreMeasuredAgainTogether(t *testing.T) {
	run := new(results.Run)
	r := &results.Result{Cells: []*results.Cell{{Runs: []*results.Run{run, run}}, {Runs: []*results.Run{run}}, {Runs: []*results.Run{run}}, {}}}
	(&Experiment{Together: 2}).keepWhole(r)
	var counts []int
	for _, c := range r.Cells {
		counts = append(counts, len(c.Runs))
	}
	assert.Equal(t, []int{1, 1, 0, 0}, counts)
	assert.Equal(t, 2, (Reads{}).Experiment().Together)
	assert.Equal(t, 2, (Restart{}).Experiment().Together)
}

// TestARestartIsResumedWithTheStoresThatAreMissing: those that were measured are not filled.
func TestARestartIsResumedWithTheStoresThatAreMissing(t *testing.T) {
	var filled []uint64
	x := Restart{
		Keys: []uint64{10, 20, 30}, LogBytes: []int64{0}, KeepPages: true,
		Fill: func(_ context.Context, keys, _ uint64, _ func(loadgen.Progress)) (string, error) {
			filled = append(filled, keys)
			return "", assert.AnError
		},
	}
	x.Config.ValueBytes = 100
	e := x.Experiment()
	o := Options{Runs: 1, Progress: func(Progress) {}}
	o.Resumed = e.Plan(o)
	for _, i := range []int{0, 1} {
		o.Resumed.Cells[i].Runs = []*results.Run{oneRun(1)}
	}
	_, err := e.Run(t.Context(), o)
	require.ErrorIs(t, err, assert.AnError)
	assert.Equal(t, []uint64{20}, filled)
}

// TestRunsThatDidNotEndHaveNoRow: a resumed experiment measures them again.
func TestRunsThatDidNotEndHaveNoRow(t *testing.T) {
	runs := []*results.Run{oneRun(1), oneRun(2), oneRun(3)}
	runs[1].Interrupted, runs[2].Error = true, "x"
	rows := Statistics(&results.Result{Cells: []*results.Cell{{Params: BatchParams(StoreDisk, 1, BatchNone), Runs: runs}}})
	require.Len(t, rows, 1)
	assert.True(t, slices.Contains(rows[0], "1.000"))
}
