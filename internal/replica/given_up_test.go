package replica

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
)

// giveUpReads reads so often, at a thousand a tick, and gives each up within a tick.
func giveUpReads(t *testing.T, l *Loop, times int) {
	for range times / 1000 {
		ctx, cancel := context.WithTimeout(t.Context(), TickInterval/2)
		ended := make(chan error)
		for range 1000 {
			go func() { ended <- l.Read(ctx) }()
		}
		for range 1000 {
			err := <-ended
			require.True(t, errors.Is(err, context.DeadlineExceeded) || errors.Is(err, kv.ErrOverloaded), "%v", err)
		}
		cancel()
		time.Sleep(TickInterval / 2)
	}
}

// Reads that their callers have given up do not stay, however long there is no leader.
func TestReadsThatWereGivenUpDoNotStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group, leader := startLoops(t, 3)
		leader.listens(false)
		time.Sleep(100 * TickInterval)
		giveUpReads(t, leader.loop, 20_000)
		leader.listens(true)
		require.NoError(t, leader.loop.Read(t.Context()))
		leader.listens(false)
		time.Sleep(100 * TickInterval)
		giveUpReads(t, leader.loop, 20_000)
		stop(t, group)
		require.LessOrEqual(t, leader.loop.core.reads.held(), 3000)
	})
}

// The same while the leader answers, and the state machine has no room for what they wait for.
func TestReadsThatWereGivenUpOfAStateMachineWithoutRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group, _, full, away := lagging(t, 1000)
		full.mu.Lock()
		full.room = make(chan struct{})
		full.mu.Unlock()
		away.listens(true)
		giveUpReads(t, full.loop, 20_000)
		require.NotZero(t, full.loop.Counts().Rounds.Sum)
		stop(t, group)
		require.LessOrEqual(t, full.loop.core.reads.held(), 3000)
	})
}

// While the loop waits for its disk, it does not note more reads than may wait.
func TestReadsThatWereGivenUpWhileTheLoopWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		group, m := startLoops(t, 1)
		release, _ := m.hold()
		_, err := m.loop.Propose(m.tenureNow(), []byte("record"))
		require.NoError(t, err)
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range maxWaitingReads {
			require.ErrorIs(t, m.loop.Read(ctx), context.Canceled)
		}
		require.ErrorIs(t, m.loop.Read(ctx), kv.ErrOverloaded)
		release()
		synctest.Wait()
		require.NoError(t, m.loop.Read(t.Context()))
		stop(t, group)
	})
}
