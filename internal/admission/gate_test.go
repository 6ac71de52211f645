package admission

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
)

// roomy is a bound that no test reaches.
var roomy = Size{1 << 20, 1 << 30}

// upTo is a bound of operations.
func upTo(n int) Size { return Size{Ops: n, Bytes: 1 << 20} }

func ops(n int) Size { return Size{Ops: n, Bytes: 1} }

// enter is Enter on a goroutine of its own, which has begun to wait, or has its
// answer, when enter returns.
func enter(ctx context.Context, g *Gate, c *Client, s Size) <-chan error {
	answer := make(chan error, 1)
	go func() { answer <- g.Enter(ctx, c, s) }()
	synctest.Wait()
	return answer
}

// requireRefused checks the error of refused work and returns when to come back.
func requireRefused(t *testing.T, err error, reason string) time.Duration {
	t.Helper()
	refused, ok := errors.AsType[*kv.OverloadError](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, reason, refused.Reason)
	return refused.RetryAfter
}

func requireWaits(t *testing.T, answer <-chan error) {
	t.Helper()
	select {
	case err := <-answer:
		require.Fail(t, "it did not wait", "%v", err)
	default:
	}
}

func TestWorkComesInWhileThereIsRoom(t *testing.T) {
	for name, test := range map[string]struct {
		bound, piece Size
		fit          int
	}{
		"operations":           {Size{10, 1 << 20}, Size{5, 1}, 2},
		"bytes":                {Size{1 << 20, 1000}, Size{1, 250}, 4},
		"the last one is over": {Size{10, 1 << 20}, Size{4, 1}, 3},
		"larger than all":      {Size{10, 1000}, Size{5000, 1 << 20}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			g := New(Bounds{test.bound, roomy})
			for range test.fit {
				require.True(t, g.TryEnter(test.piece))
			}
			require.False(t, g.TryEnter(test.piece))
			assert.Equal(t, Size{test.fit * test.piece.Ops, test.fit * test.piece.Bytes}, g.Stats().Inside)
			g.Leave(test.piece)
			require.True(t, g.TryEnter(test.piece), "there is room again")
		})
	}
}

func TestRoomIsTakenByThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Bounds{upTo(8), roomy})
		require.True(t, g.TryEnter(ops(8)))
		var a, b Client
		first, second := enter(t.Context(), g, &a, ops(6)), enter(t.Context(), g, &b, ops(6))
		requireWaits(t, first)
		requireWaits(t, second)
		require.Equal(t, Size{12, 2}, g.Stats().Waiting)
		time.Sleep(3 * time.Millisecond)
		g.Leave(ops(8))
		require.NoError(t, <-first)
		require.NoError(t, <-second)
		require.False(t, g.TryEnter(ops(1)), "12 operations are inside")
		g.Leave(ops(6))
		require.True(t, g.TryEnter(ops(1)), "nobody waits any more")

		s := g.Stats()
		assert.EqualValues(t, 2, s.Admitted)
		assert.Equal(t, 6*time.Millisecond, s.WaitTime)
		assert.Equal(t, Size{}, s.Waiting)
		assert.EqualValues(t, 2, s.Waits[4], "3 ms is above 2 and not above 4")
	})
}

func TestNobodyPassesThoseWhoWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Bounds{upTo(8), roomy})
		require.True(t, g.TryEnter(ops(4)))
		require.True(t, g.TryEnter(ops(4)))
		var a Client
		large := enter(t.Context(), g, &a, ops(1000)) // four turns
		g.mu.Lock()                                   // Leave has not admitted the next work yet
		left := make(chan struct{})
		go func() { g.Leave(ops(4)); close(left) }()
		for sizeOf(g.inside.Load()).Ops > 4 {
			runtime.Gosched()
		}
		passed := g.TryEnter(ops(1))
		g.mu.Unlock()
		require.False(t, passed, "there is room, but not for this one")
		require.NoError(t, <-large)
		<-left
	})
}

func TestABurstIsTakenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Bounds{upTo(1), roomy})
		var c Client
		var all sync.WaitGroup
		for range 60 { // of 1 ms each: the queue is too long for 55 ms
			all.Go(func() {
				if assert.NoError(t, g.Enter(t.Context(), &c, ops(1))) {
					time.Sleep(time.Millisecond)
					g.Leave(ops(1))
				}
			})
		}
		all.Wait()
		assert.EqualValues(t, 59, g.Stats().Admitted)
	})
}

func TestNobodyWaitsLongerThanAnInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Bounds{upTo(1), roomy})
		require.True(t, g.TryEnter(ops(1))) // and never leaves
		var c Client
		begun := time.Now()
		retryAfter := requireRefused(t, g.Enter(t.Context(), &c, ops(1)), QueueTime)
		assert.Equal(t, interval, time.Since(begun))
		assert.GreaterOrEqual(t, retryAfter, interval/2)
		assert.Less(t, retryAfter, interval*3/2)
		s := g.Stats()
		assert.EqualValues(t, 1, s.RefusedLate)
		assert.Equal(t, Size{1, 1}, s.Inside)
		assert.Zero(t, s.Waiting)
	})
}

func TestWorkWhoseTimeRanOutIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Bounds{upTo(1), roomy})
		require.True(t, g.TryEnter(ops(1)))
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Millisecond)
		defer cancel()
		var c Client
		begun := time.Now()
		require.ErrorIs(t, g.Enter(ctx, &c, ops(1)), context.DeadlineExceeded)
		assert.Equal(t, 3*time.Millisecond, time.Since(begun))

		// One whose goroutine has not seen yet that its time ran out.
		late := enter(slowContext{t.Context(), time.Now().Add(3 * time.Millisecond)}, g, &c, ops(1))
		time.Sleep(3 * time.Millisecond)
		requireWaits(t, late)
		inTime := enter(t.Context(), g, &c, ops(1))
		g.Leave(ops(1))
		require.ErrorIs(t, <-late, context.DeadlineExceeded)
		require.NoError(t, <-inTime)
		s := g.Stats()
		assert.EqualValues(t, 2, s.GivenUp)
		assert.Equal(t, ops(1), s.Inside)
	})
}

// slowContext has a deadline and never signals its end.
type slowContext struct {
	context.Context
	deadline time.Time
}

func (c slowContext) Deadline() (time.Time, bool) { return c.deadline, true }

func TestWhoGivesUpLeavesTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(Bounds{upTo(1), roomy})
		require.True(t, g.TryEnter(ops(1)))
		ctx, cancel := context.WithCancel(t.Context())
		var a, b Client
		gone, stays := enter(ctx, g, &a, ops(1)), enter(t.Context(), g, &a, ops(1))
		alone := enter(ctx, g, &b, ops(1))
		cancel()
		require.ErrorIs(t, <-gone, context.Canceled)
		require.ErrorIs(t, <-alone, context.Canceled)
		requireWaits(t, stays)
		assert.Equal(t, ops(1), g.Stats().Waiting)
		g.Leave(ops(1))
		require.NoError(t, <-stays)
		g.Leave(ops(1))

		s := g.Stats()
		assert.EqualValues(t, 2, s.GivenUp)
		assert.Zero(t, s.Inside)
		require.True(t, g.TryEnter(ops(1)), "the last one to give up closes the line too")
	})
}

func TestLinesAreBounded(t *testing.T) {
	for name, test := range map[string]struct {
		bound, piece Size
	}{
		"operations": {Size{16, 1000}, Size{1, 1}},
		"bytes":      {Size{1000, 1600}, Size{1, 100}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := New(Bounds{Inside: Size{1, 1}, Waiting: test.bound})
				require.True(t, g.TryEnter(ops(1)))
				line := func(c *Client) (length int) {
					for ; ; length++ {
						answer := enter(t.Context(), g, c, test.piece)
						if len(answer) == 1 {
							retryAfter := requireRefused(t, <-answer, QueueFull)
							require.GreaterOrEqual(t, retryAfter, target/2)
							return length
						}
					}
				}
				var clients [6]Client
				var lengths []int
				for i := range clients {
					lengths = append(lengths, line(&clients[i]))
				}
				assert.Equal(t, []int{8, 4, 2, 1, 1, 0}, lengths, "each gets half of the room that is left")
				assert.EqualValues(t, len(clients), g.Stats().RefusedFull)
				g.Leave(ops(1))
				for range 16 {
					synctest.Wait()
					g.Leave(test.piece)
				}
				assert.Zero(t, g.Stats().Inside)
			})
		})
	}
}

// What clients do at the same time is what they would do one after the other:
// no work is forgotten, and what is inside stays within its bound.
func TestManyClientsAtOnce(t *testing.T) {
	const bound, largest = 64, 40
	g := New(Bounds{Size{bound, 1 << 20}, Size{400, 1 << 20}})
	var inside, entered atomic.Int64
	var all sync.WaitGroup
	for i := range 16 {
		c := new(Client)
		for j := range 4 {
			all.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(i), uint64(j)))
				for range 150 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(2000))*time.Microsecond)
					s := Size{1 + rng.IntN(largest), 1}
					err := g.Enter(ctx, c, s)
					cancel()
					switch {
					case err == nil:
						entered.Add(1)
						assert.Less(t, inside.Add(int64(s.Ops)), int64(bound+largest))
						if rng.IntN(8) == 0 {
							time.Sleep(time.Duration(rng.IntN(100)) * time.Microsecond)
						}
						inside.Add(-int64(s.Ops))
						g.Leave(s)
					case !errors.Is(err, kv.ErrOverloaded) && !errors.Is(err, context.DeadlineExceeded):
						assert.Fail(t, "an error that nobody gave", "%v", err)
					}
				}
			})
		}
	}
	all.Wait()
	s := g.Stats()
	assert.Zero(t, s.Inside)
	assert.Zero(t, s.Waiting)
	assert.Positive(t, s.Admitted, "some had to wait")
	assert.Greater(t, entered.Load(), int64(s.Admitted), "some had not")
	assert.True(t, g.TryEnter(ops(1)))
}

func TestRoomCostsNoMemory(t *testing.T) {
	g := New(Bounds{roomy, roomy})
	var c Client
	assert.Zero(t, testing.AllocsPerRun(1000, func() {
		if g.Enter(context.Background(), &c, ops(256)) == nil {
			g.Leave(ops(256))
		}
	}))
}

func BenchmarkEnterAndLeave(b *testing.B) {
	g := New(Bounds{roomy, roomy})
	for b.Loop() {
		if g.TryEnter(ops(256)) {
			g.Leave(ops(256))
		}
	}
}
