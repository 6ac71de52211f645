package loadgen

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A run that is over before its workers begin has an operation of each of them all the same.
func TestEveryWorkerDoesAnOperation(t *testing.T) {
	const workers = 3
	r := &Run{Clock: NewClock(), Operations: []string{"step"}, Span: Span{Workers: workers, Duration: 1, Interval: time.Second}}
	for range workers {
		tally := NewTally(1, 0)
		r.Workers = append(r.Workers, Worker{Tally: tally, Step: func(context.Context, int64) error {
			tally.Record(0, 1, 2, 0)
			return nil
		}})
	}
	trial, err := r.Do(t.Context())
	require.NoError(t, err)
	assert.GreaterOrEqual(t, trial.Ops, uint64(workers))

	c := newCrew()
	defer c.cancelOps()
	var steps atomic.Int64
	step := func(context.Context, int64) error { steps.Add(1); return nil }
	c.halt()
	require.NoError(t, c.repeat(step, nil, 0))
	assert.EqualValues(t, 1, steps.Load(), "after the end")
	c.fail(errors.New("broken"))
	require.NoError(t, c.repeat(step, nil, 0))
	assert.EqualValues(t, 1, steps.Load(), "none after an error")
}
