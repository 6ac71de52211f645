package load

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/loadgen"
)

// slots is a target that serves a number of calls at once, each in a millisecond, and
// rejects calls while too many wait.
type slots struct {
	*store
	places  chan struct{}
	waiting atomic.Int64
	most    int64
}

var errBusy = errors.New("busy")

func (s *slots) do(f func() error) error {
	if s.waiting.Add(1) > s.most {
		s.waiting.Add(-1)
		return errBusy
	}
	defer s.waiting.Add(-1)
	s.places <- struct{}{}
	defer func() { <-s.places }()
	time.Sleep(time.Millisecond)
	return f()
}

func (s *slots) Get(ctx context.Context, key []byte) (value []byte, err error) {
	err = s.do(func() (err error) {
		value, err = s.store.Get(ctx, key)
		return err
	})
	return value, err
}

func (s *slots) Set(ctx context.Context, key, value []byte) error {
	return s.do(func() error { return s.store.Set(ctx, key, value) })
}

func testOpen() *Overload {
	return &Overload{
		CalmPerSecond: 100, OverPerSecond: 5000, Calm: time.Second, Over: 2 * time.Second, Rest: time.Second,
		MaxCallers: 5000, GetPercent: 50, Keys: 100, ValueBytes: 40, Patience: time.Second,
	}
}

func runOpen(t *testing.T, o *Overload, most int64) *loadgen.Overload {
	s := &slots{store: newStore(t, o.Keys, o.ValueBytes), places: make(chan struct{}, 1), most: most}
	r, err := o.Run(t.Context(), []Target{s}, func(err error) bool { return errors.Is(err, errBusy) })
	require.NoError(t, err)
	for _, p := range []*loadgen.Part{&r.Calm, &r.Over, &r.Rest} {
		assert.Equal(t, p.Due, p.Unsent+p.Accepted.Count+p.Late+p.Refused.Count+p.Failed, "every request has one fate")
	}
	assert.Equal(t, uint64(100), r.Calm.Due)
	assert.Equal(t, uint64(10_000), r.Over.Due)
	assert.Equal(t, uint64(100), r.Calm.Accepted.Count)
	return r
}

func TestAServiceThatRefusesWhatIsTooMuchKeepsItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := runOpen(t, testOpen(), 10)
		assert.InDelta(t, 1000, r.Over.GoodPerSecond(), 20)
		assert.InDelta(t, 10*time.Millisecond, r.Over.Accepted.Nanos.P99, float64(time.Millisecond))
		assert.Zero(t, r.Over.Unsent)
		assert.Less(t, r.Over.Refused.Nanos.Max, time.Microsecond.Nanoseconds())
		assert.LessOrEqual(t, r.Recovery, loadgen.ArrivalWindow, "no more than what was queued")
	})
}

// TestAServiceThatQueuesIsCharged: latencies count from when requests were due, answers
// after the caller's patience are not counted as good, and queued requests delay the
// calm part.
func TestAServiceThatQueuesIsCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOpen()
		o.OverPerSecond = 2000 // a second of it queues two seconds' work, of which one is late
		o.Over, o.Rest = time.Second, 2*time.Second
		s := &slots{store: newStore(t, o.Keys, o.ValueBytes), places: make(chan struct{}, 1), most: 1 << 40}
		r, err := o.Run(t.Context(), []Target{s}, func(error) bool { return false })
		require.NoError(t, err)
		assert.InDelta(t, 990*time.Millisecond, r.Over.Accepted.Nanos.P99, float64(50*time.Millisecond))
		assert.GreaterOrEqual(t, r.Recovery, time.Second)
		assert.LessOrEqual(t, r.Recovery, 1300*time.Millisecond)
	})
}

func TestCallersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOpen()
		o.MaxCallers = 20
		r := runOpen(t, o, 1<<40)
		assert.InDelta(t, 8000, float64(r.Over.Unsent), 100)
		assert.InDelta(t, 20*time.Millisecond, r.Over.Accepted.Nanos.P99, float64(time.Millisecond))
	})
}

func TestAWrongAnswerEndsAnOpenLoad(t *testing.T) {
	o := testOpen()
	s := newStore(t, o.Keys, o.ValueBytes)
	s.spoil = func(v []byte) []byte { return v[1:] }
	_, err := o.Run(t.Context(), []Target{s}, func(error) bool { return true })
	require.ErrorIs(t, err, ErrWrongAnswer)
	o.MaxCallers = 0
	_, err = o.Run(t.Context(), []Target{s}, func(error) bool { return true })
	require.Error(t, err)
}
