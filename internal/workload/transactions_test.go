package workload

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/testsize"
)

func TestTransactionsOnHotRecordsConflictAndLoseNothing(t *testing.T) {
	target := newStoreTarget()
	b := loaded(t, target, 100)
	shape := Transactions{Reads: 4, Writes: 2, HotFraction: 0.05, HotRate: 0.5}
	require.NoError(t, shape.Validate(100))
	b.ledger.grow(100)
	w := b.newTransactionWorker(&shape, 7, loadgen.NewTally(transactionKinds, 0))
	busy := false
	target.conflict = func() { // another transaction commits between the reads and the commit
		if !busy {
			busy = true
			defer func() { busy = false }()
			require.NoError(t, w.step(t.Context(), 0))
		}
	}
	trial, err := b.RunTransactions(t.Context(), shape, operations(1, 500), loadgen.Observer{})
	require.NoError(t, err)
	assert.EqualValues(t, 500, trial.Operation("transaction").Count)
	assert.Positive(t, trial.Conflicts)
	assert.InDelta(t, float64(trial.Conflicts)/float64(500+trial.Conflicts), trial.ConflictRate, 1e-9)
	require.NoError(t, b.Audit(t.Context(), 2, nothing))
	var changes uint64
	for id := range uint64(100) {
		changes += b.ledger.count(id)
	}
	conflicting := loadgen.NewCounts(w.tally)
	assert.Equal(t, 2*(500+conflicting.Ops()), changes)
}

func TestTransactionsWithManyWorkersLoseNothing(t *testing.T) {
	synctest.Test(t, transactionsWithManyWorkersLoseNothing)
}

func transactionsWithManyWorkersLoseNothing(t *testing.T) {
	b := loaded(t, newStoreTarget(), 30)
	_, err := b.RunTransactions(t.Context(), Transactions{Reads: 3, Writes: 3, HotFraction: 0.2, HotRate: 0.9}, operations(8, 4000), loadgen.Observer{})
	require.NoError(t, err)
	require.NoError(t, b.Audit(t.Context(), 2, nothing))
}

func TestALostTransactionIsCaught(t *testing.T) {
	for name, plant := range map[string]func(s *storeTarget, seldom func() bool){
		"lost":  func(s *storeTarget, seldom func() bool) { s.lose = seldom },
		"stale": func(s *storeTarget, seldom func() bool) { s.stale = seldom },
	} {
		t.Run(name, func(t *testing.T) {
			target := newStoreTarget()
			b := loaded(t, target, 50)
			rng := testRand()
			plant(target, func() bool { return rng.IntN(100) == 0 })
			_, err := b.RunTransactions(t.Context(), Transactions{Reads: 2, Writes: 1}, operations(1, 100_000), loadgen.Observer{})
			require.ErrorIs(t, err, ErrWrongAnswer)
			assert.ErrorContains(t, err, "transaction of 2 reads and 1 writes")
		})
	}
}

func TestATargetMayLoseUpdatesIfItSaysSo(t *testing.T) {
	for _, lossy := range []bool{false, true} {
		target := newStoreTarget()
		b := loaded(t, target, 2)
		b.ledger.grow(2)
		shape := Transactions{Reads: 2, Writes: 2, Lossy: lossy}
		one := b.newTransactionWorker(&shape, 0, loadgen.NewTally(transactionKinds, 0))
		two := b.newTransactionWorker(&shape, 1, loadgen.NewTally(transactionKinds, 0))
		target.conflict = func() { // another transaction commits, and no conflict is noticed
			target.conflict = nil
			require.NoError(t, two.step(t.Context(), 0))
			for key := range target.versions {
				target.versions[key]--
			}
		}
		require.NoError(t, one.step(t.Context(), 0))
		err := one.step(t.Context(), 0)
		if lossy {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, ErrWrongAnswer)
		}
		for key := range target.values {
			target.values[key] = target.values[key][1:]
		}
		require.ErrorIs(t, two.step(t.Context(), 0), ErrWrongAnswer, "a damaged value is noticed")
	}
}

func TestATransactionReadsDifferentRecords(t *testing.T) {
	b := loaded(t, newStoreTarget(), 5)
	w := b.newTransactionWorker(&Transactions{Reads: 5, Writes: 1}, 0, loadgen.NewTally(transactionKinds, 0))
	for range 100 {
		w.choose()
		seen := make(map[uint64]bool)
		for i := range w.reads {
			seen[w.reads[i].id] = true
		}
		require.Len(t, seen, 5)
	}
}

func TestHotRecordsTakeTheirShare(t *testing.T) {
	testsize.OneGoroutine(t)
	const keys, n = 10_000, 200_000
	h := newHotspot(testRand(), keys, 0.01, 0.5)
	hot := 0
	for range n {
		if h.next() < keys/100 {
			hot++
		}
	}
	assert.InDelta(t, 0.5, float64(hot)/n, 0.01)

	for _, nothingHot := range []Transactions{{HotFraction: 0.2}, {HotRate: 0.9}} {
		requireFits(t, draws(t, nothingHot.chooser(100, testRand()), 100, 50_000), func(int) float64 { return 0.01 })
	}
}

func TestTransactionsThatCannotWorkAreRefused(t *testing.T) {
	for says, shape := range map[string]Transactions{
		"0 reads":                {},
		"3 writes a transaction": {Reads: 2, Writes: 3},
		"hot fraction 2":         {Reads: 1, HotFraction: 2},
		"hot rate -1":            {Reads: 1, HotRate: -1},
		"11 reads a transaction": {Reads: 11, HotRate: 0.5},
		"from 2 records":         {Reads: 3, HotFraction: 0.2, HotRate: 1},
		"want 0 to 2, the reads": {Reads: 2, Writes: -1},
		"1001 reads":             {Reads: 1001},
	} {
		assert.ErrorContains(t, shape.Validate(10), says)
	}
}

func TestTransactionStepsDoNotAllocate(t *testing.T) {
	testsize.OneGoroutine(t)
	b, err := NewBench(nil, Records{Count: 5000, ValueBytes: 100, Seed: 1})
	require.NoError(t, err)
	twin, err := b.costBench()
	require.NoError(t, err)
	w := twin.newTransactionWorker(&Transactions{Reads: 4, Writes: 2, HotFraction: 0.01, HotRate: 0.5}, 0, loadgen.NewTally(transactionKinds, 0))
	step := func() {
		if err := w.step(t.Context(), 0); err != nil {
			t.Error(err)
		}
	}
	for range 1000 {
		step()
	}
	assert.Zero(t, testing.AllocsPerRun(500, step))
}

func TestReadersBesideAWriterAreComparedWithReadersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := &slowWhileWriting{storeTarget: newStoreTarget()}
		b := loaded(t, target, 100)
		target.slow = true
		shape := Transactions{Reads: 1, Writes: 1}
		span := loadgen.Span{Workers: 2, Duration: 10 * time.Second, Interval: 10 * time.Second}
		result, err := b.RunReadBeside(t.Context(), ReadBeside{Transactions: shape, Rounds: 3}, span, loadgen.Observer{})
		require.NoError(t, err)
		assert.InDelta(t, 20, result.PeakWrites, 1)
		assert.EqualValues(t, 2, result.WriteRate)
		require.Len(t, result.Reads.Ratios, 3)
		require.Len(t, result.Trials, 7)
		require.Len(t, result.Written, 3)
		assert.InDelta(t, 2, result.Written[0], 0.1)
		assert.Empty(t, result.Warnings())
		assert.InDelta(t, 200, result.Reads.Without[0], 1)
		// A transaction of 50 ms, twice a second, blocks the readers.
		assert.InDelta(t, 0.9, result.Reads.MedianRatio, 0.02)
		beside := result.Trials[2]
		assert.InDelta(t, 20, beside.Operation("transaction").Count, 1)
		assert.Zero(t, result.Trials[1].Operation("transaction").Count)
		assert.NotZero(t, result.Trials[3].Operation("transaction").Count, "the second round begins with the writer")
		require.NoError(t, b.Audit(t.Context(), 1, nothing))

		given, err := b.RunReadBeside(t.Context(), ReadBeside{Transactions: shape, WriteRate: 4, Rounds: 1}, span, loadgen.Observer{})
		require.NoError(t, err)
		assert.Zero(t, given.PeakWrites)
		given.Written = []float64{3}
		assert.Equal(t, []string{"The writer did 3 transactions a second and should have done 4: the readers left it no more."}, given.Warnings())
		assert.InDelta(t, 40, given.Trials[1].Operation("transaction").Count, 1)
		assert.InDelta(t, 0.8, given.Reads.MedianRatio, 0.03)
	})
}

// slowWhileWriting takes 10 ms for a get and 50 ms for a transaction, and no get begins
// during a transaction.
type slowWhileWriting struct {
	*storeTarget
	slow  bool
	until time.Time
}

func (s *slowWhileWriting) Get(ctx context.Context, key, buf []byte) ([]byte, bool, error) {
	if s.slow {
		s.mu.Lock()
		wait := time.Until(s.until)
		s.mu.Unlock()
		time.Sleep(max(wait, 0) + 10*time.Millisecond)
	}
	return s.storeTarget.Get(ctx, key, buf)
}

func (s *slowWhileWriting) Transact(ctx context.Context, body func(context.Context, Transaction) error) (int, error) {
	if s.slow {
		s.mu.Lock()
		s.until = time.Now().Add(50 * time.Millisecond)
		s.mu.Unlock()
		time.Sleep(50 * time.Millisecond)
	}
	return s.storeTarget.Transact(ctx, body)
}

func TestSnapshotsAreTakenEverySecondInEveryOtherTrial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := &snapshotCounter{storeTarget: newStoreTarget()}
		b := loaded(t, target, 200)
		target.takes = time.Millisecond
		span := loadgen.Span{Workers: 2, Duration: 4500 * time.Millisecond, Interval: 10 * time.Second}
		result, err := b.RunSnapshots(t.Context(), 3, span, loadgen.Observer{})
		require.NoError(t, err)
		require.Len(t, result.Trials, 6)
		for i, with := range []bool{false, true, true, false, false, true} {
			if with {
				assert.EqualValues(t, 5, result.Trials[i].Operation("take snapshot").Count, "trial %d", i)
				assert.EqualValues(t, 4, result.Trials[i].Operation("drop snapshot").Count, "trial %d", i)
			} else {
				assert.Zero(t, result.Trials[i].Operation("take snapshot").Count, "trial %d", i)
			}
			assert.InDelta(t, 9000, result.Trials[i].Operation("put").Count, 10)
		}
		assert.InDelta(t, 1, result.Puts.MedianRatio, 0.01)
		assert.Equal(t, 15, target.taken)
		assert.Equal(t, 15, target.dropped, "also the last of each trial")
		require.NoError(t, b.Audit(t.Context(), 1, nothing))
	})
}

type snapshotCounter struct {
	*storeTarget
	takes          time.Duration
	taken, dropped int
}

func (s *snapshotCounter) Put(ctx context.Context, key, value []byte) error {
	time.Sleep(s.takes)
	return s.storeTarget.Put(ctx, key, value)
}

func (s *snapshotCounter) TakeSnapshot(ctx context.Context) (Snapshot, error) {
	s.taken++
	snapshot, err := s.storeTarget.TakeSnapshot(ctx)
	return &countedSnapshot{snapshot, s}, err
}

type countedSnapshot struct {
	Snapshot
	target *snapshotCounter
}

func (s *countedSnapshot) Close() error {
	s.target.dropped++
	return s.Snapshot.Close()
}

func TestASnapshotThatChangesIsCaught(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		target := &snapshotCounter{storeTarget: newStoreTarget()}
		b := loaded(t, target, 200)
		target.takes, target.shared = time.Millisecond, true
		_, err := b.RunSnapshots(t.Context(), 1, loadgen.Span{Workers: 1, Duration: 10 * time.Second, Interval: time.Second}, loadgen.Observer{})
		require.ErrorIs(t, err, ErrWrongAnswer)
		assert.ErrorContains(t, err, "changed in a snapshot")
		assert.Equal(t, target.taken, target.dropped)
	})
}
