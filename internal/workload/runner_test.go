package workload

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/testsize"
)

// runSteps runs the workers of a run alternately in one goroutine, for tests that need
// many operations and no clock.
func runSteps(t *testing.T, cfg Config, target Target, steps int) (*run, error) {
	t.Helper()
	require.NoError(t, cfg.Validate())
	r := newRun(newShared(&cfg, target, cfg.newPool()))
	if err := r.preload(t.Context(), nil); err != nil {
		return r, err
	}
	for i := range steps {
		if err := r.workers[i%len(r.workers)].step(t.Context(), 0); err != nil {
			return r, err
		}
	}
	return r, nil
}

// totals returns what all workers have counted.
func (r *run) totals() *loadgen.Counts {
	tallies := make([]*loadgen.Tally, len(r.workers))
	for i, w := range r.workers {
		tallies[i] = w.tally
	}
	return loadgen.NewCounts(tallies...)
}

// The clock of a bubble stands still while workers are busy, so that the cost of the generator is
// measured in one round. The workers run at the same time all the same.
func TestACorrectStoreIsNeverAccused(t *testing.T) {
	for _, mix := range Mixes {
		for _, d := range Distributions {
			t.Run(mix.Name+"/"+string(d), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					cfg := testConfig()
					cfg.Mix, cfg.Distribution, cfg.CheckDeletes = mix, d, true
					cfg.Keys, cfg.FindRate, cfg.Preload = 200, 0.9, 100 // so that workers share keys
					cfg.Duration = time.Hour
					ctx, enough := context.WithCancel(t.Context())
					defer enough()
					s, err := Run(ctx, &callback{mapTarget: newMapTarget(), at: 700, do: enough}, cfg, Observer{})
					require.NoError(t, err)
					assert.NotZero(t, s.Put.Count)
					assert.NotZero(t, s.Get.Count)
					assert.NotZero(t, s.Delete.Count)
				})
			})
		}
	}
}

func TestFoundRateIsNearTheNominalOne(t *testing.T) {
	testsize.OneGoroutine(t)
	for _, rate := range []float64{0, 0.1, 0.5, 0.9, 1} {
		cfg := testConfig()
		cfg.Mix, cfg.FindRate, cfg.CheckDeletes = Mixes[1], rate, true
		cfg.Keys = 1_000_000
		r, err := runSteps(t, cfg, newMapTarget(), 50_000)
		require.NoError(t, err)
		sum := r.totals()
		known := loadgen.Ratio(sum.Extra[getKnown], sum.Of(int(kindGet)))
		assert.InDelta(t, rate, known, 0.01)
		assert.InDelta(t, rate, loadgen.Ratio(sum.Extra[getFound], sum.Of(int(kindGet))), 0.02, "of gets at rate %v", rate)
		assert.InDelta(t, rate, loadgen.Ratio(sum.Extra[deleteFound], sum.Of(int(kindDelete))), 0.05, "of deletes at rate %v", rate)
	}
}

func TestKeysThatOthersDeletedMakeTheFoundRateSmallerThanTheKnownOne(t *testing.T) {
	testsize.OneGoroutine(t)
	cfg := testConfig()
	cfg.Mix, cfg.FindRate, cfg.Keys = Mixes[2], 1, 20
	r, err := runSteps(t, cfg, newMapTarget(), 20_000)
	require.NoError(t, err)
	sum := r.totals()
	assert.Less(t, sum.Extra[getFound], sum.Extra[getKnown])
}

func TestReadsOfAPreloadedStoreReachAllOfIt(t *testing.T) {
	testsize.OneGoroutine(t)
	const keys = 4 * knownCapacity
	cfg := testConfig()
	cfg.Mix = Mix{Name: "reads", Get: 100}
	cfg.Workers, cfg.Keys, cfg.Preload, cfg.FindRate = 1, keys, keys, 1
	target := newMapTarget()
	read := &readRecorder{mapTarget: target, seen: make(map[string]int)}
	_, err := runSteps(t, cfg, read, 4*keys)
	require.NoError(t, err)
	require.Len(t, target.values, keys)
	assert.InDelta(t, 1-math.Exp(-4), float64(len(read.seen))/keys, 0.01, "4n uniform draws leave e^-4 of n out")
}

type readRecorder struct {
	*mapTarget
	seen map[string]int
}

func (r *readRecorder) Get(ctx context.Context, key, buf []byte) ([]byte, bool, error) {
	r.seen[string(key)]++
	return r.mapTarget.Get(ctx, key, buf)
}

func TestReadsKeepTheSkewOfTheDistribution(t *testing.T) {
	testsize.OneGoroutine(t)
	const keys = 100_000
	cfg := testConfig()
	cfg.Workers, cfg.Keys, cfg.FindRate, cfg.Distribution = 1, keys, 1, Zipfian
	cfg.Mix = Mix{Name: "no deletes", Put: 50, Get: 50}
	read := &readRecorder{mapTarget: newMapTarget(), seen: make(map[string]int)}
	const steps = 200_000
	_, err := runSteps(t, cfg, read, steps)
	require.NoError(t, err)
	assert.InDelta(t, 1/zeta(keys, DefaultTheta), float64(read.seen["0000000000000000"])/(steps/2), 0.01)
}

// lie changes some answers of a correct store.
type lie struct {
	*mapTarget
	put func(m *mapTarget, key, value []byte) (handled bool)
	get func(key, value []byte, found bool) ([]byte, bool)
}

func (l *lie) Put(ctx context.Context, key, value []byte) error {
	if l.put != nil && l.put(l.mapTarget, key, value) {
		return nil
	}
	return l.mapTarget.Put(ctx, key, value)
}

func (l *lie) Get(ctx context.Context, key, buf []byte) ([]byte, bool, error) {
	value, found, err := l.mapTarget.Get(ctx, key, buf)
	if l.get != nil {
		value, found = l.get(key, value, found)
	}
	return value, found, err
}

func TestAStoreThatLiesIsCaught(t *testing.T) {
	testsize.OneGoroutine(t)
	var rng *rand.Rand // a new one for each case
	seldom := func() bool { return rng.IntN(200) == 0 }
	for name, c := range map[string]struct {
		target *lie
		says   string
	}{
		"a flipped bit": {
			&lie{get: func(_, value []byte, found bool) ([]byte, bool) {
				if found && seldom() {
					value[rng.IntN(len(value))] ^= 1 << rng.IntN(8)
				}
				return value, found
			}}, "fails its checksum"},
		"a value cut short": {
			&lie{get: func(_, value []byte, found bool) ([]byte, bool) {
				if found && seldom() {
					value = value[:len(value)-1]
				}
				return value, found
			}}, "fails its checksum"},
		"an empty value": {
			&lie{get: func(_, value []byte, found bool) ([]byte, bool) {
				if found && seldom() {
					value = nil
				}
				return value, found
			}}, "has a value of 0 bytes"},
		"the value of another key": {
			&lie{put: func(m *mapTarget, key, value []byte) bool {
				if seldom() {
					for other := range m.values {
						if other != string(key) {
							m.values[other] = bytes.Clone(value)
							break
						}
					}
				}
				return false
			}}, "has the value of key"},
		"a lost put": {
			&lie{put: func(m *mapTarget, key, _ []byte) bool {
				_, there := m.values[string(key)]
				return !there && seldom()
			}}, "a second read does not find it either"},
		"a lost overwrite": {
			&lie{put: func(m *mapTarget, key, _ []byte) bool {
				_, there := m.values[string(key)]
				return there && seldom()
			}}, "came after and was acknowledged"},
		"not found": {
			&lie{get: func(_, value []byte, found bool) ([]byte, bool) {
				return value, found && !seldom()
			}}, "a second read finds put"},
		"a key from nowhere": {
			&lie{get: func(key, value []byte, found bool) ([]byte, bool) {
				return value, found || len(key) > KeyBytes && seldom()
			}}, "was never put"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig()
			cfg.Mix = Mix{Name: "few deletes", Put: 50, Delete: 5, Get: 45}
			cfg.Keys, cfg.FindRate = 20_000, 0.9
			rng = testRand()
			c.target.mapTarget = newMapTarget()
			_, err := runSteps(t, cfg, c.target, 100_000)
			require.ErrorIs(t, err, ErrWrongAnswer)
			assert.ErrorContains(t, err, c.says)
		})
	}
}

func TestTheFirstErrorEndsTheRunAndIsInTheSummary(t *testing.T) {
	synctest.Test(t, theFirstErrorEndsTheRunAndIsInTheSummary)
}

func theFirstErrorEndsTheRunAndIsInTheSummary(t *testing.T) {
	broken := errors.New("disk on fire")
	for _, operation := range []string{"put", "get", "delete"} {
		target := &failing{mapTarget: newMapTarget(), operation: operation, after: 100, err: broken}
		cfg := testConfig()
		cfg.Duration = time.Hour
		s, err := Run(t.Context(), target, cfg, Observer{})
		require.ErrorIs(t, err, broken)
		assert.ErrorContains(t, err, operation+" key 0")
		require.NotNil(t, s)
		assert.Equal(t, err.Error(), s.Error)
		assert.NotZero(t, s.Ops)
		assert.False(t, s.Interrupted)
	}
}

func TestAnErrorWhilePreloadingEndsTheRun(t *testing.T) {
	broken := errors.New("disk on fire")
	cfg := testConfig()
	cfg.Preload = 5000
	target := &failing{mapTarget: newMapTarget(), operation: "put", after: 100, err: broken}
	s, err := Run(t.Context(), target, cfg, Observer{})
	require.ErrorIs(t, err, broken)
	assert.ErrorContains(t, err, "preload: ")
	assert.Nil(t, s)
}

// failing fails one kind of operation, after some have succeeded.
type failing struct {
	*mapTarget
	operation string
	after     int64
	err       error
	calls     atomic.Int64
}

func (f *failing) fails(operation string) bool {
	return operation == f.operation && f.calls.Add(1) > f.after
}

func (f *failing) Put(ctx context.Context, key, value []byte) error {
	if f.fails("put") {
		return f.err
	}
	return f.mapTarget.Put(ctx, key, value)
}

func (f *failing) Delete(ctx context.Context, key []byte) error {
	if f.fails("delete") {
		return f.err
	}
	return f.mapTarget.Delete(ctx, key)
}

func (f *failing) Get(ctx context.Context, key, buf []byte) ([]byte, bool, error) {
	if f.fails("get") {
		return nil, false, f.err
	}
	return f.mapTarget.Get(ctx, key, buf)
}

func (f *failing) DiskBytes() (int64, error) {
	if f.fails("disk") {
		return 0, f.err
	}
	return f.mapTarget.DiskBytes()
}

func TestDiskSpaceThatCannotBeReadIsAnError(t *testing.T) {
	synctest.Test(t, diskSpaceThatCannotBeReadIsAnError)
}

func diskSpaceThatCannotBeReadIsAnError(t *testing.T) {
	broken := errors.New("no such directory")
	target := &failing{mapTarget: newMapTarget(), operation: "disk", err: broken}
	cfg := testConfig()
	cfg.OpsPerSecond = 100 // so that workers wait, and the clock goes on
	s, err := Run(t.Context(), target, cfg, Observer{})
	require.ErrorIs(t, err, broken)
	assert.Equal(t, err.Error(), s.Error)
	assert.Nil(t, s.DataBytes)
}

func TestACancelledRunReportsWhatItHas(t *testing.T) { synctest.Test(t, aCancelledRunReportsWhatItHas) }

func aCancelledRunReportsWhatItHas(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cfg := testConfig()
	cfg.Duration = time.Hour
	target := &callback{mapTarget: newMapTarget(), at: 1000, do: cancel}
	s, err := Run(ctx, target, cfg, Observer{})
	require.NoError(t, err)
	assert.True(t, s.Interrupted)
	assert.GreaterOrEqual(t, s.Ops+10, uint64(1000))
	assert.Empty(t, s.Error)
}

func TestACancelledPreloadReportsNothing(t *testing.T) {
	synctest.Test(t, aCancelledPreloadReportsNothing)
}

func aCancelledPreloadReportsNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cfg := testConfig()
	cfg.Keys, cfg.Preload = MaxKeys, MaxKeys
	target := &callback{mapTarget: newMapTarget(), at: 1000, do: cancel}
	s, err := Run(ctx, target, cfg, Observer{})
	require.ErrorIs(t, err, context.Canceled)
	assert.Nil(t, s)
}

// callback calls a function during one of the puts.
type callback struct {
	*mapTarget
	at   int64
	puts atomic.Int64
	do   func()
}

func (c *callback) Put(ctx context.Context, key, value []byte) error {
	if c.puts.Add(1) == c.at {
		c.do()
	}
	return c.mapTarget.Put(ctx, key, value)
}

// slow takes a fixed time for every operation.
type slow struct {
	*mapTarget
	takes func(n int64) time.Duration
	calls atomic.Int64
}

func (s *slow) wait(ctx context.Context) error {
	timer := time.NewTimer(s.takes(s.calls.Add(1)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *slow) Put(ctx context.Context, key, value []byte) error {
	if err := s.wait(ctx); err != nil {
		return err
	}
	return s.mapTarget.Put(ctx, key, value)
}

func (s *slow) Delete(ctx context.Context, key []byte) error {
	if err := s.wait(ctx); err != nil {
		return err
	}
	return s.mapTarget.Delete(ctx, key)
}

func (s *slow) Get(ctx context.Context, key, buf []byte) ([]byte, bool, error) {
	if err := s.wait(ctx); err != nil {
		return nil, false, err
	}
	return s.mapTarget.Get(ctx, key, buf)
}

func always(d time.Duration) func(int64) time.Duration {
	return func(int64) time.Duration { return d }
}

func TestOpenLoopKeepsItsTimetable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		cfg.OpsPerSecond, cfg.Duration, cfg.Interval = 300, 10*time.Second, 10*time.Second
		target := &slow{mapTarget: newMapTarget(), takes: always(time.Millisecond)}
		var seconds []loadgen.Sample
		s, err := Run(t.Context(), target, cfg, Observer{Second: func(s loadgen.Sample) { seconds = append(seconds, s) }})
		require.NoError(t, err)
		require.Len(t, seconds, 10)
		for i, second := range seconds {
			assert.InDelta(t, 300, second.OpsPerSecond, 1, "second %d", i)
		}
		assert.InDelta(t, 3000, s.Ops, 4)
		assert.InEpsilon(t, time.Millisecond.Nanoseconds(), s.Put.Nanos.Max, 0.01)
		require.NotNil(t, s.Generator.LatenessNanos)
		assert.Zero(t, s.Generator.LatenessNanos.Max)
		assert.Equal(t, "open", s.Workload.Loop)
	})
}

func TestOpenLoopChargesAStallToAllWhoWouldHaveCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		cfg.Workers, cfg.OpsPerSecond, cfg.Duration = 1, 100, 10*time.Second
		cfg.Mix = Mix{Name: "puts", Put: 100}
		stallOnce := func(n int64) time.Duration {
			if n == 100 {
				return time.Second
			}
			return time.Millisecond
		}
		open, err := Run(t.Context(), &slow{mapTarget: newMapTarget(), takes: stallOnce}, cfg, Observer{})
		require.NoError(t, err)
		assert.InDelta(t, 1000, open.Ops, 2, "what was late is made up for")
		assert.Greater(t, open.Put.Nanos.P99, 800*time.Millisecond.Nanoseconds(), "a tenth of the operations were due in the stall")

		cfg.OpsPerSecond = 0
		closed, err := Run(t.Context(), &slow{mapTarget: newMapTarget(), takes: stallOnce}, cfg, Observer{})
		require.NoError(t, err)
		assert.InEpsilon(t, time.Millisecond.Nanoseconds(), closed.Put.Nanos.P99, 0.01, "a closed loop hides it")
		assert.Equal(t, "closed", closed.Workload.Loop)
		require.NotNil(t, closed.SlowestSecond)
		assert.Less(t, *closed.SlowestSecond, closed.OpsPerSecond/2, "but the slowest second shows it")
	})
}

// TestAnOperationThatHangsDelaysNoOtherOfAnOpenLoop: the free workers do what is due
// meanwhile.
func TestAnOperationThatHangsDelaysNoOtherOfAnOpenLoop(t *testing.T) {
	for _, poisson := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			cfg := testConfig()
			cfg.OpsPerSecond, cfg.Poisson, cfg.Duration = 100, poisson, 10*time.Second
			hangOnce := func(n int64) time.Duration {
				if n == 100 {
					return 5 * time.Second
				}
				return time.Millisecond
			}
			s, err := Run(t.Context(), &slow{mapTarget: newMapTarget(), takes: hangOnce}, cfg, Observer{})
			require.NoError(t, err)
			assert.InDelta(t, 1000, s.Ops, 100)
			assert.Less(t, s.Trial.Late.Busy, uint64(5))
			assert.Less(t, time.Duration(s.Trial.All.P99), 5*time.Millisecond)
			assert.InEpsilon(t, 5*time.Second, s.Trial.All.Max, 0.01)
		})
	}
}

// TestWhatAnOpenLoopNeverBeganIsMissed: one worker does 50 of 100 operations a second, so that
// half of them have not begun at the end.
func TestWhatAnOpenLoopNeverBeganIsMissed(t *testing.T) {
	for _, poisson := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			cfg := testConfig()
			cfg.Workers, cfg.OpsPerSecond, cfg.Poisson, cfg.Duration = 1, 100, poisson, 10*time.Second
			s, err := Run(t.Context(), &slow{mapTarget: newMapTarget(), takes: always(20 * time.Millisecond)}, cfg, Observer{})
			require.NoError(t, err)
			assert.InDelta(t, 500, s.Ops, 5)
			assert.InDelta(t, 50, s.OpsPerSecond, 1, "missed operations were not done")
			require.NotNil(t, s.Missed)
			assert.InDelta(t, 500, s.Missed.Count, 80)
			assert.InDelta(t, 5*time.Second, s.Missed.Nanos.Max, float64(800*time.Millisecond), "since it was due")
			assert.InDelta(t, 2500*time.Millisecond, s.Missed.MeanNanos, float64(400*time.Millisecond))
			assert.Equal(t, s.Ops+s.Missed.Count, s.Trial.Due())

			get := s.Trial.Operation("get")
			require.NotNil(t, get.DueNanos)
			assert.Greater(t, get.DueNanos.Max, 4*time.Second.Nanoseconds())
			assert.Contains(t, strings.Join(s.Warnings(), "\n"), "refused or had not begun at the end")
		})
	}
}

func TestAnOpenLoopThatKeepsUpMissesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		cfg.OpsPerSecond, cfg.Warmup, cfg.Duration = 100, time.Second, 10*time.Second
		s, err := Run(t.Context(), &slow{mapTarget: newMapTarget(), takes: always(time.Millisecond)}, cfg, Observer{})
		require.NoError(t, err)
		assert.Zero(t, s.Missed.Count)
		assert.Nil(t, s.Get.DueNanos)

		cfg.OpsPerSecond, cfg.Warmup, cfg.Duration, cfg.Operations = 100, 0, 0, 50
		s, err = Run(t.Context(), &slow{mapTarget: newMapTarget(), takes: always(time.Second)}, cfg, Observer{})
		require.NoError(t, err)
		assert.EqualValues(t, 50, s.Ops, "all workers together")
		assert.Zero(t, s.Missed.Count)
	})
}

func TestPreloadAndWarmUpAreNotMeasured(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		cfg.Mix = Mix{Name: "no deletes", Put: 50, Get: 50}
		cfg.Workers, cfg.Keys, cfg.Preload, cfg.FindRate = 1, 10, 10, 1
		cfg.Warmup, cfg.Duration = 5505*time.Millisecond, 2*time.Second
		target := &slow{mapTarget: newMapTarget(), takes: func(n int64) time.Duration {
			switch {
			case n <= 10:
				return 7 * time.Second
			case n <= 15:
				return time.Second
			}
			return 10 * time.Millisecond
		}}
		s, err := Run(t.Context(), target, cfg, Observer{})
		require.NoError(t, err)
		assert.InDelta(t, 200, s.Ops, 2)
		assert.InDelta(t, 2, s.Seconds, 0.02)
		assert.Less(t, s.Put.Nanos.Max, 11*time.Millisecond.Nanoseconds())
		assert.EqualValues(t, 1, s.Found.Known)
		assert.EqualValues(t, 1, s.Found.Get)
	})
}

func TestAnOperationThatNeverEndsIsCancelledAndReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		target := &slow{mapTarget: newMapTarget(), takes: always(time.Hour)}
		began := time.Now()
		s, err := Run(t.Context(), target, cfg, Observer{})
		require.ErrorIs(t, err, context.Canceled)
		assert.Zero(t, s.Ops)
		assert.Equal(t, cfg.Duration+30*time.Second, time.Since(began))
	})
}

func TestIntervalLinesHaveTheSchemaOfTheArticles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		cfg.Duration, cfg.Interval = 25*time.Second, 10*time.Second
		var lines []Line
		target := &slow{mapTarget: newMapTarget(), takes: always(10 * time.Millisecond)}
		s, err := Run(t.Context(), target, cfg, Observer{Interval: func(l Line) error {
			lines = append(lines, l)
			return nil
		}})
		require.NoError(t, err)
		require.Len(t, lines, 3, "two whole intervals and what was left")
		for i, at := range []time.Duration{10, 20, 25} {
			assert.InDelta(t, at*time.Second, lines[i].NanoTime, 1e8)
			assert.InDelta(t, 400, lines[i].OpsPerSecond, 5)
			require.NotNil(t, lines[i].SlowestSecond)
			assert.InDelta(t, 400, *lines[i].SlowestSecond, 5)
			assert.Nil(t, lines[i].DeleteFound)
			require.NotNil(t, lines[i].FileSize)
		}
		ops := func(l Line) uint64 { return l.Put + l.Delete + l.Get }
		assert.InDelta(t, 4000, ops(lines[0]), 50)
		assert.InDelta(t, 4000, ops(lines[1]), 50, "counts are of the interval alone")
		assert.InDelta(t, 2000, ops(lines[2]), 50)
		assert.Equal(t, s.Ops, ops(lines[0])+ops(lines[1])+ops(lines[2]))

		text, err := json.Marshal(lines[0])
		require.NoError(t, err)
		assert.Equal(t, []string{
			"nanoTime", "put", "delete", "deleteFound", "get", "getFound", "fileSize",
			"opsPerSecond", "slowestSecondOpsPerSecond", "putNanos", "deleteNanos", "getNanos",
		}, keysInOrder(t, string(text)))
		assert.Contains(t, string(text), `"deleteFound":null`)
		assert.Contains(t, string(text), `"putNanos":{"p50":1`)
	})
}

// keysInOrder returns the names of a JSON object's members in their order.
func keysInOrder(t *testing.T, object string) []string {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(object))
	var names []string
	depth, name := 0, true
	for {
		token, err := d.Token()
		if err != nil {
			return names
		}
		switch token {
		case json.Delim('{'):
			depth++
			name = true
			continue
		case json.Delim('}'):
			depth--
			name = true
			continue
		}
		if depth == 1 && name {
			names = append(names, token.(string))
		}
		name = !name
	}
}

func TestCheckedDeletesCountWhatTheyFound(t *testing.T) {
	synctest.Test(t, checkedDeletesCountWhatTheyFound)
}

func checkedDeletesCountWhatTheyFound(t *testing.T) {
	cfg := testConfig()
	cfg.CheckDeletes, cfg.Duration = true, time.Hour
	ctx, enough := context.WithCancel(t.Context())
	defer enough()
	var last Line
	s, err := Run(ctx, &callback{mapTarget: newMapTarget(), at: 2000, do: enough}, cfg, Observer{Interval: func(l Line) error { last = l; return nil }})
	require.NoError(t, err)
	require.NotNil(t, last.DeleteFound)
	assert.NotZero(t, *last.DeleteFound)
	assert.Less(t, *last.DeleteFound, last.Delete)
	require.NotNil(t, s.Found.Delete)
	assert.InDelta(t, float64(*last.DeleteFound)/float64(last.Delete), *s.Found.Delete, 1e-9)
}

func TestPreloadTellsHowFarItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		cfg.Preload = 1001
		target := &slow{mapTarget: newMapTarget(), takes: always(10 * time.Millisecond)}
		var told []uint64
		_, err := Run(t.Context(), target, cfg, Observer{Preload: func(done, total uint64) {
			assert.EqualValues(t, 1001, total)
			told = append(told, done)
		}})
		require.NoError(t, err)
		require.Len(t, told, 4, "at the beginning, after one second, after two, and at the end")
		assert.Zero(t, told[0])
		assert.InDelta(t, 400, told[1], 4)
		assert.EqualValues(t, 1001, told[3])
	})
}

func TestAnErrorOfTheReportEndsTheRun(t *testing.T) {
	full := errors.New("disk full")
	synctest.Test(t, func(t *testing.T) {
		cfg := testConfig()
		cfg.Duration = time.Hour
		target := &slow{mapTarget: newMapTarget(), takes: always(time.Millisecond)}
		began := time.Now()
		_, err := Run(t.Context(), target, cfg, Observer{Interval: func(Line) error { return full }})
		require.ErrorIs(t, err, full)
		assert.Less(t, time.Since(began), 2*time.Second)
	})
}

func TestStepsDoNotAllocate(t *testing.T) {
	testsize.OneGoroutine(t)
	for _, d := range Distributions {
		cfg := testConfig()
		cfg.Workers, cfg.Distribution, cfg.CheckDeletes = 1, d, true
		w := newWorker(newShared(&cfg, newSlotTarget(cfg.Keys, cfg.ValueBytes), cfg.newPool()), 0)
		ctx := t.Context()
		step := func() {
			if err := w.step(ctx, 0); err != nil {
				t.Error(err)
			}
		}
		for range 20_000 {
			step()
		}
		assert.Zero(t, testing.AllocsPerRun(20_000, step), d)
	}
}

func TestTheGeneratorIsCheapAndItsCostIsReported(t *testing.T) {
	cfg := testConfig()
	cfg.ValueBytes = 1024
	cost, err := measureCost(cfg, cfg.newPool())
	require.NoError(t, err)
	assert.Positive(t, cost)

	cfg.Duration = time.Hour
	ctx, enough := context.WithCancel(t.Context())
	defer enough()
	s, err := Run(ctx, &callback{mapTarget: newMapTarget(), at: 2000, do: enough}, cfg, Observer{})
	require.NoError(t, err)
	assert.Positive(t, s.Generator.NanosPerOp)
	assert.Positive(t, s.Generator.Share)
	assert.Positive(t, s.CPUMicrosPerOp)
	assert.Positive(t, s.PeakRSSBytes)
	require.NotNil(t, s.DataBytes)
	assert.Positive(t, *s.DataBytes)
}

func TestWarningsSayWhyNotToTrustTheFigures(t *testing.T) {
	data := int64(1 << 30)
	s := Summary{
		OpsPerSecond: 900, DataBytes: &data,
		Workload:    Settings{Loop: "closed"},
		Generator:   loadgen.Generator{NanosPerOp: 300, Share: 0.25},
		Environment: loadgen.Environment{FileSystem: "tmpfs", MemoryBytes: 16 << 30},
	}
	all := strings.Join(s.Warnings(), "\n")
	assert.Contains(t, all, "generator took 25 %")
	assert.Contains(t, all, "open loop of, say, 600 operations")
	assert.Contains(t, all, "fit into memory")
	assert.Contains(t, all, "tmpfs")

	late := loadgen.Latency{P99: 2e6}
	s.Workload.Loop, s.Generator.LatenessNanos = "open", &late
	assert.Contains(t, strings.Join(s.Warnings(), "\n"), "2ms late")

	large, punctual := int64(64<<30), loadgen.Latency{P99: 1e5}
	trusted := Summary{
		DataBytes:   &large,
		Workload:    Settings{Loop: "open"},
		Generator:   loadgen.Generator{Share: 0.02, LatenessNanos: &punctual},
		Environment: loadgen.Environment{FileSystem: "ext4", MemoryBytes: 16 << 30},
	}
	assert.Empty(t, trusted.Warnings())
}

func TestConfigThatCannotWorkIsRefusedAsAWhole(t *testing.T) {
	cfg := Config{
		Mix: Mix{Name: "odd", Put: 50}, ValueBytes: 3, FindRate: 2, Distribution: "normal",
		Preload: 5, OpsPerSecond: 2e9, Warmup: -1, Interval: 1500 * time.Millisecond,
	}
	_, err := Run(t.Context(), newMapTarget(), cfg, Observer{})
	for _, says := range []string{
		`mix "odd" is 50/0/0`, "0 threads", "0 keys", "values of 3 bytes", "find rate 2", `unknown distribution "normal"`,
		"preload of 5 keys", "2000000000 operations a second", "warm-up of -1ns", "duration of 0s", "interval of 1.5s",
	} {
		assert.ErrorContains(t, err, says)
	}
	ok := testConfig()
	require.NoError(t, ok.Validate())
}

func BenchmarkStep(b *testing.B) {
	cfg := testConfig()
	cfg.Workers, cfg.ValueBytes = 1, 1024
	w := newWorker(newShared(&cfg, newSlotTarget(cfg.Keys, cfg.ValueBytes), cfg.newPool()), 0)
	b.ReportAllocs()
	for range b.N {
		if err := w.step(b.Context(), 0); err != nil {
			b.Fatal(err)
		}
	}
}
