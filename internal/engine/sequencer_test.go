package engine

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvd-db/kvd/internal/kv"
)

// A pin at a number is registered in the moment in which that becomes visible, even if later ones do
// at the same time.
func TestAPinAtANumber(t *testing.T) {
	s := newSequencer(noClock, nil, nil)
	s.now = s.time.Load
	s.start(10)
	p := s.AppliedPin(12, 5)
	s.AppliedTime(13, 7)
	s.Applied(14, 3)
	numbers, _ := s.Horizon()
	require.Equal(t, []kv.SeqNum{10}, numbers)
	s.Applied(11, 1)
	numbers, now := s.Horizon()
	require.Equal(t, []kv.SeqNum{12, 16}, numbers)
	require.EqualValues(t, 5, now)
	s.release(p)
	numbers, now = s.Horizon()
	require.Equal(t, []kv.SeqNum{16}, numbers)
	require.EqualValues(t, 7, now)
}

// S1: whatever the order in which partitions apply, visible is the highest
// number without a gap below it.
func TestVisibleHasNoGapBelow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSequencer(noClock, nil, nil)
		s.start(100)
		var records []seqRange
		next := kv.SeqNum(101)
		for range rapid.IntRange(1, 20).Draw(t, "records") {
			units := kv.SeqNum(rapid.IntRange(1, 5).Draw(t, "units"))
			records = append(records, seqRange{next, next + units})
			next += units
		}
		applied := make(map[kv.SeqNum]bool)
		for _, r := range rapid.Permutation(records).Draw(t, "order") {
			before := s.Visible()
			s.Applied(r.from, uint32(r.to-r.from))
			for seq := r.from; seq < r.to; seq++ {
				applied[seq] = true
			}
			want := kv.SeqNum(100)
			for applied[want+1] {
				want++
			}
			if got := s.Visible(); got != want || got < before {
				t.Fatalf("visible is %d after %d, want %d", got, before, want)
			}
		}
		if len(s.ahead) != 0 {
			t.Fatalf("%d ranges left", len(s.ahead))
		}
	})
}

func TestWaitVisible(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed := make(chan struct{})
		cause := errors.New("log failed")
		s := newSequencer(noClock, failed, func() error { return cause })
		s.start(10)
		require.NoError(t, s.WaitVisible(t.Context(), 10))

		done := make(chan error)
		go func() { done <- s.WaitVisible(context.Background(), 12) }()
		synctest.Wait()
		s.Applied(12, 1)
		s.Applied(11, 1)
		require.NoError(t, <-done)

		ctx, cancel := context.WithCancel(t.Context())
		go func() { done <- s.WaitVisible(ctx, 99) }()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)

		go func() { done <- s.WaitVisible(context.Background(), 99) }()
		synctest.Wait()
		close(failed)
		require.ErrorIs(t, <-done, cause)
	})
}

// Each goroutine is woken once, when its number is visible, in whatever order they came.
func TestWaitsEndAtTheirNumber(t *testing.T) {
	s := newSequencer(noClock, nil, nil)
	s.start(10)
	waits := make(map[kv.SeqNum]chan struct{})
	for _, seq := range []kv.SeqNum{14, 12, 15, 11, 14, 12} {
		reached := s.watch(seq)
		if other := waits[seq]; other != nil {
			assert.Equal(t, other, reached, "one for those that wait for %d", seq)
		}
		waits[seq] = reached
	}
	require.Len(t, s.waits, 4)
	s.Applied(13, 2)
	for _, to := range []kv.SeqNum{11, 14, 15} {
		s.Applied(s.Visible()+1, 1)
		require.Equal(t, to, s.Visible())
		for seq, reached := range waits {
			select {
			case <-reached:
				assert.LessOrEqual(t, seq, to)
			default:
				assert.Greater(t, seq, to)
			}
		}
	}
	assert.Empty(t, s.waits)
	assert.Nil(t, s.watch(15))
}

// A wait that is given up leaves nothing, and those for the same number go on.
func TestWaitsThatAreGivenUpDoNotStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSequencer(noClock, nil, nil)
		s.start(10)
		waits, end := context.WithCancel(t.Context())
		defer end()
		done := make(chan error, 1)
		go func() { done <- s.WaitVisible(waits, 500) }()
		synctest.Wait()
		over, cancel := context.WithCancel(t.Context())
		cancel()
		for i := range kv.SeqNum(1000) {
			require.ErrorIs(t, s.WaitVisible(over, 1_000_000-i), context.Canceled)
			require.ErrorIs(t, s.WaitVisible(over, 500), context.Canceled)
		}
		require.Equal(t, 1, len(s.waits), "of the goroutine that still waits")
		for s.Visible() < 500 {
			s.Applied(s.Visible()+1, 1)
		}
		require.NoError(t, <-done)
		require.Empty(t, s.waits)
	})
}

func noClock() uint64 { return 0 }

// S3, S4: whatever is pinned, or will be, Horizon has its number or a lower one,
// and no later time.
func TestHorizonIsNoLaterThanAnyReader(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		clock := uint64(1000)
		s := newSequencer(func() uint64 { return clock }, nil, nil)
		s.start(5)
		var pins []*pin
		var horizons []uint64 // times that Horizon returned; lowest has the least numbers
		var lowest []kv.SeqNum
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			switch rapid.IntRange(0, 4).Draw(t, "step") {
			case 0:
				s.Applied(s.Visible()+1, uint32(rapid.IntRange(1, 3).Draw(t, "units")))
			case 1:
				clock += uint64(rapid.IntRange(0, 5).Draw(t, "time"))
			case 2:
				p := s.acquire()
				for i, now := range horizons {
					if p.now < now || p.at < lowest[i] {
						t.Fatalf("a pin at %d and %d, after a horizon of %d and %d", p.at, p.now, lowest[i], now)
					}
				}
				pins = append(pins, p)
			case 3:
				if len(pins) > 0 {
					pins = append(pins, s.again(rapid.SampledFrom(pins).Draw(t, "again")))
				}
			case 4:
				if len(pins) > 0 {
					i := rapid.IntRange(0, len(pins)-1).Draw(t, "released")
					s.release(pins[i])
					s.release(pins[i])
					pins = slices.Delete(pins, i, i+1)
				}
			}
			numbers, now := s.Horizon()
			want := []kv.SeqNum{s.Visible()}
			for _, p := range pins {
				want = append(want, p.at)
				if p.now < now {
					t.Fatalf("horizon is %d, a reader reads at %d", now, p.now)
				}
			}
			slices.Sort(want)
			require.Equal(t, slices.Compact(want), numbers)
			horizons, lowest = append(horizons, now), append(lowest, numbers[0])
		}
	})
}

func TestHorizonIsThePresentWhenNobodyReads(t *testing.T) {
	clock := uint64(100)
	s := newSequencer(func() uint64 { return clock }, nil, nil)
	s.start(5)
	first := s.acquire()
	clock = 200
	s.Applied(6, 4)
	second := s.acquire()
	clock = 300
	numbers, now := s.Horizon()
	assert.Equal(t, []kv.SeqNum{5, 9}, numbers)
	assert.EqualValues(t, 100, now)
	count, _ := s.pinned()
	assert.Equal(t, 2, count)
	s.release(first)
	_, now = s.Horizon()
	assert.EqualValues(t, 200, now)
	s.release(second)
	numbers, now = s.Horizon()
	assert.Equal(t, []kv.SeqNum{9}, numbers)
	assert.EqualValues(t, 300, now)
	count, age := s.pinned()
	assert.Zero(t, count)
	assert.Zero(t, age)
}
