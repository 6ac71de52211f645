package workload

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/testsize"
)

func TestACorrectStoreIsNeverAccusedByAnyCoreWorkload(t *testing.T) {
	b := loaded(t, newStoreTarget(), 500)
	for _, workers := range []int{1, 4} {
		for _, c := range Cores {
			trial, err := b.RunCore(t.Context(), c, operations(workers, 503), loadgen.Observer{})
			require.NoError(t, err, "%s, %d threads", c.Name, workers)
			assert.EqualValues(t, 503, trial.Ops)
			var kinds uint64
			for _, o := range trial.Operations {
				kinds += o.Count
				assert.Positive(t, o.Nanos.P99)
			}
			assert.Equal(t, trial.Ops, kinds)
			assert.Positive(t, trial.Generator.NanosPerOp)
			assert.Positive(t, trial.Generator.Share)
			require.NoError(t, b.Audit(t.Context(), 2, nothing))
		}
	}
	assert.Greater(t, b.acknowledged(), uint64(520), "D and E inserted")
}

func TestAStoreThatLiesAboutRecordsIsCaught(t *testing.T) {
	var rng *rand.Rand // a new one for each case
	seldom := func() bool { return rng.IntN(50) == 0 }
	for name, c := range map[string]struct {
		workload string
		plant    func(s *storeTarget)
		says     string
	}{
		"a lost commit": {"F", func(s *storeTarget) { s.lose = seldom }, "an update was lost"},
		"a commit on what was read before another": {"F", func(s *storeTarget) { s.stale = seldom }, "acknowledged"},
		"a missing record": {"C", func(s *storeTarget) {
			s.onGet = func(value []byte) ([]byte, bool) { return value, !seldom() }
		}, "is lost"},
		"a flipped bit": {"B", func(s *storeTarget) {
			s.onGet = func(value []byte) ([]byte, bool) {
				if seldom() {
					value[rng.IntN(len(value))] ^= 1 << rng.IntN(8)
				}
				return value, true
			}
		}, "checksum"},
		"a lost update": {"A", func(s *storeTarget) {
			s.onPut = func([]byte) bool { return seldom() }
		}, "came after and was acknowledged"},
		"a lost insertion, read": {"D", func(s *storeTarget) {
			s.onPut = func([]byte) bool { return seldom() }
		}, "is lost"},
		"a lost insertion, scanned": {"E", func(s *storeTarget) {
			s.onPut = func([]byte) bool { return seldom() }
		}, "leaves out key user"},
		"a scan out of order": {"E", func(s *storeTarget) {
			s.scanned = func(keys []string) []string {
				if len(keys) > 2 {
					keys[1], keys[2] = keys[2], keys[1]
				}
				return keys
			}
		}, "wrong answer"},
		"a scan backward": {"E", func(s *storeTarget) {
			s.scanned = func(keys []string) []string {
				for len(keys) > 1 && keys[len(keys)-1] > keys[0] {
					return []string{keys[0], keys[1], keys[0]}
				}
				return keys
			}
		}, "does not follow it"},
		"a scan that leaves one out": {"E", func(s *storeTarget) {
			s.scanned = func(keys []string) []string {
				if len(keys) > 2 && seldom() {
					return append(keys[:1:1], keys[2:]...)
				}
				return keys
			}
		}, "leaves out key user"},
		"a scan that leaves the first out": {"E", func(s *storeTarget) {
			s.scanned = func(keys []string) []string { return keys[min(1, len(keys)-1):] }
		}, "leaves out key user"},
		"a scan that ends early": {"E", func(s *storeTarget) {
			s.scanned = func(keys []string) []string { return keys[:len(keys)/2] }
		}, "should follow"},
		"a scan that goes on": {"E", func(s *storeTarget) {
			s.scanned = func(keys []string) []string { return append(keys, keys[len(keys)-1]) }
		}, "wrong answer"},
		"a scan with the value of another record": {"E", func(s *storeTarget) {
			var last []byte
			s.onScan = func(key, value []byte) ([]byte, []byte) {
				other := last
				last = value
				if other != nil && seldom() {
					return key, other
				}
				return key, value
			}
		}, "has the value of record"},
		"a scan with a foreign key": {"E", func(s *storeTarget) {
			s.onScan = func(key, value []byte) ([]byte, []byte) { return bytes.ToUpper(key), value }
		}, "which is no record's"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng = testRand()
				target := newStoreTarget()
				b := loaded(t, target, 200)
				c.plant(target)
				trial, err := b.RunCore(t.Context(), core(t, c.workload), operations(1, 100_000), loadgen.Observer{})
				require.ErrorIs(t, err, ErrWrongAnswer)
				assert.ErrorContains(t, err, c.says)
				assert.Equal(t, err.Error(), trial.Error)
			})
		})
	}
}

func TestTwoModificationsOfOneReadAreALostUpdate(t *testing.T) {
	target := newStoreTarget()
	b := loaded(t, target, 1)
	modify := core(t, "F")
	one := b.newCoreWorker(&modify, &loadgen.Span{}, 0, loadgen.NewTally(coreKinds, 0))
	two := b.newCoreWorker(&modify, &loadgen.Span{}, 1, loadgen.NewTally(coreKinds, 0))
	b.ledger.grow(1)
	once := true
	target.conflict = func() {
		if once {
			once = false
			require.NoError(t, two.change(t.Context(), 0, 0))
		}
	}
	require.NoError(t, one.change(t.Context(), 0, 0))
	assert.EqualValues(t, 1, loadgen.NewCounts(one.tally).Conflicts, "a correct store lets the second try again")
	require.NoError(t, b.Audit(t.Context(), 1, nothing))

	once = true
	target.conflict = func() {
		if once {
			once = false
			require.NoError(t, two.change(t.Context(), 0, 0))
			// As if no other transaction had written since one read.
			target.versions[string(positionOf(0).key())]--
		}
	}
	require.NoError(t, one.change(t.Context(), 0, 0))
	err := one.read(t.Context(), coreRead, 0, 0)
	require.ErrorIs(t, err, ErrWrongAnswer)
	assert.ErrorContains(t, err, "record 0 (key user00000000000000000000) has 3 changes")
	assert.ErrorContains(t, err, "but 4 were acknowledged before")
	assert.ErrorContains(t, b.Audit(t.Context(), 1, nothing), "audit: wrong answer")
}

func TestAnAuditFindsWhatNobodyReadAgain(t *testing.T) {
	for name, damage := range map[string]struct {
		do   func(b *Bench, s *storeTarget)
		says string
	}{
		"a change too many": {func(b *Bench, s *storeTarget) {
			value := make([]byte, b.ValueBytes)
			b.pool.fillRecord(value, 33, newVersion(0, 1), 1, 0)
			s.values[string(positionOf(33).key())] = value
		}, " has 1 changes, last by put 1 of worker 0, but 0 were acknowledged"},
		"a change too few": {func(b *Bench, _ *storeTarget) {
			b.ledger.grow(100)
			b.ledger.add(33)
		}, "but 1 were acknowledged"},
		"a lost record":    {func(b *Bench, s *storeTarget) { delete(s.values, string(positionOf(33).key())) }, "record 33 (key user09"},
		"a damaged record": {func(b *Bench, s *storeTarget) { s.values[string(positionOf(33).key())][40]++ }, "checksum"},
	} {
		t.Run(name, func(t *testing.T) {
			target := newStoreTarget()
			b := loaded(t, target, 100)
			require.NoError(t, b.Audit(t.Context(), 3, nothing))
			damage.do(b, target)
			err := b.Audit(t.Context(), 3, nothing)
			require.ErrorIs(t, err, ErrWrongAnswer)
			assert.ErrorContains(t, err, damage.says)
		})
	}
}

func TestAnUpdateThatReplacesChangesAccusesNobody(t *testing.T) {
	synctest.Test(t, anUpdateThatReplacesChangesAccusesNobody)
}

func anUpdateThatReplacesChangesAccusesNobody(t *testing.T) {
	b := loaded(t, newStoreTarget(), 20)
	for _, name := range []string{"F", "A", "F", "C", "B", "F"} {
		_, err := b.RunCore(t.Context(), core(t, name), operations(4, 1000), loadgen.Observer{})
		require.NoError(t, err, name)
		require.NoError(t, b.Audit(t.Context(), 2, nothing), name)
	}
}

func TestWhatAWorkloadNeedsOfATargetIsSaid(t *testing.T) {
	b := loaded(t, newMapTarget(), 10)
	_, err := b.RunCore(t.Context(), core(t, "E"), operations(1, 10), loadgen.Observer{})
	assert.EqualError(t, err, "workload E: the target cannot scan")
	_, err = b.RunCore(t.Context(), core(t, "F"), operations(1, 10), loadgen.Observer{})
	assert.EqualError(t, err, "workload F: the target has no transactions")
	_, err = b.RunTransactions(t.Context(), Transactions{Reads: 1}, operations(1, 10), loadgen.Observer{})
	assert.EqualError(t, err, "the target has no transactions")
	_, err = b.RunSnapshots(t.Context(), 1, loadgen.Span{Workers: 1, Duration: 1, Interval: time.Second}, loadgen.Observer{})
	assert.EqualError(t, err, "the target has no snapshots")
}

func TestCoreStepsDoNotAllocate(t *testing.T) {
	testsize.OneGoroutine(t)
	for _, c := range Cores {
		b, err := NewBench(nil, Records{Count: 5000, ValueBytes: 100, Seed: 1})
		require.NoError(t, err)
		twin, err := b.costBench()
		require.NoError(t, err)
		c.Read, c.Insert = c.Read+c.Insert, 0 // the target allocates memory for new records
		w := twin.newCoreWorker(&c, &loadgen.Span{}, 0, loadgen.NewTally(coreKinds, 0))
		step := func() {
			if err := w.step(t.Context(), 0); err != nil {
				t.Error(err)
			}
		}
		for range 1000 {
			step()
		}
		assert.Zero(t, testing.AllocsPerRun(500, step), c.Name)
	}
}

func TestATrialByTheClockIsMeasuredWithoutItsWarmUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := &slowStore{storeTarget: newStoreTarget()}
		b := loaded(t, target, 100)
		target.takes = 10 * time.Millisecond
		var seconds, lines []loadgen.Sample
		span := loadgen.Span{Workers: 2, Warmup: 3 * time.Second, Duration: 4500 * time.Millisecond, Interval: 2 * time.Second}
		trial, err := b.RunCore(t.Context(), core(t, "C"), span, loadgen.Observer{
			Second:   func(s loadgen.Sample) { seconds = append(seconds, s) },
			Interval: func(s loadgen.Sample) error { lines = append(lines, s); return nil },
		})
		require.NoError(t, err)
		assert.InDelta(t, 900, trial.Ops, 4)
		assert.InDelta(t, 200, trial.OpsPerSecond, 1)
		assert.InDelta(t, 4.5, trial.Seconds, 0.02)
		require.NotNil(t, trial.SlowestSecond)
		assert.InDelta(t, 200, *trial.SlowestSecond, 2)
		require.Len(t, seconds, 5)
		require.Len(t, lines, 3, "two whole intervals and what was left")
		assert.InDelta(t, 400, lines[0].Operations[0].Count, 4)
		assert.Equal(t, "read", lines[0].Operations[0].Name)
		assert.InDelta(t, 4.5e9, lines[2].NanoTime, 2e7)
	})
}

// slowStore takes a fixed time for every get.
type slowStore struct {
	*storeTarget
	takes time.Duration
}

func (s *slowStore) Get(ctx context.Context, key, buf []byte) ([]byte, bool, error) {
	time.Sleep(s.takes)
	return s.storeTarget.Get(ctx, key, buf)
}

func TestATrialThatIsCancelledReportsWhatItHas(t *testing.T) {
	synctest.Test(t, aTrialThatIsCancelledReportsWhatItHas)
}

func aTrialThatIsCancelledReportsWhatItHas(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	target := newStoreTarget()
	b := loaded(t, target, 100)
	n := 0
	target.onPut = func([]byte) bool {
		if n++; n == 100 {
			cancel()
		}
		return false
	}
	trial, err := b.RunCore(ctx, core(t, "A"), loadgen.Span{Workers: 1, Duration: time.Hour, Interval: time.Second}, loadgen.Observer{})
	require.NoError(t, err)
	assert.True(t, trial.Interrupted)
	assert.GreaterOrEqual(t, trial.Ops, uint64(100))
	assert.ErrorIs(t, b.Audit(ctx, 1, nothing), context.Canceled)

	_, err = loadInto(t, newStoreTarget()).Load(ctx, 1, time.Second, loadgen.Observer{})
	assert.ErrorIs(t, err, context.Canceled)
}

func loadInto(t *testing.T, target Target) *Bench {
	t.Helper()
	b, err := NewBench(target, Records{Count: 1 << 20, ValueBytes: 64})
	require.NoError(t, err)
	return b
}

func TestTheFirstErrorOfAnOperationEndsATrial(t *testing.T) {
	synctest.Test(t, theFirstErrorOfAnOperationEndsATrial)
}

func theFirstErrorOfAnOperationEndsATrial(t *testing.T) {
	broken := errors.New("disk on fire")
	target := &failing{mapTarget: newMapTarget(), operation: "get", after: 100, err: broken}
	b := loaded(t, target, 50)
	trial, err := b.RunCore(t.Context(), core(t, "C"), operations(3, 1000), loadgen.Observer{})
	require.ErrorIs(t, err, broken)
	assert.ErrorContains(t, err, "get record ")
	assert.Equal(t, err.Error(), trial.Error)
	assert.LessOrEqual(t, trial.Ops, uint64(100))

	full := errors.New("disk full")
	_, err = b.RunCore(t.Context(), core(t, "B"), operations(1, 1), loadgen.Observer{Interval: func(loadgen.Sample) error { return full }})
	require.Error(t, err)
}

func TestSettingsThatCannotWorkAreRefusedAsAWhole(t *testing.T) {
	span := loadgen.Span{Workers: 0, Warmup: -1, Duration: -1, Interval: time.Millisecond}
	for _, says := range []string{"0 threads", "duration of -1ns", "want one of the two", "warm-up of -1ns", "interval of 1ms"} {
		assert.ErrorContains(t, span.Validate(), says)
	}
	both := loadgen.Span{Workers: 1, Operations: 1, Duration: 1, Warmup: 1, Interval: time.Second}
	assert.ErrorContains(t, both.Validate(), "want one of the two")
	assert.ErrorContains(t, both.Validate(), "it needs a duration")
	_, err := NewBench(newMapTarget(), Records{Count: 0, ValueBytes: 27})
	assert.ErrorContains(t, err, "0 records")
	assert.ErrorContains(t, err, "records of 27 bytes; want at least 28")
}
