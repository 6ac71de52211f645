package commit

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testwait"
)

var durabilities = []kv.Durability{kv.DurabilityMemory, kv.DurabilityBuffered, kv.DurabilitySync}

func (s *fixture) putGroup(key string, level kv.Durability) (*kv.Write, *WriteGroup) {
	w := &kv.Write{Op: kv.Op{Kind: kv.KindPut, Key: []byte(key)}, Hash: keyhash.Sum([]byte(key)), Durability: level}
	return w, s.c.NewWriteGroup(NewCall(1), []*kv.Write{w})
}

func requireDecided(t *testing.T, g *WriteGroup) {
	t.Helper()
	if _, ok := testwait.Receive(t, g.call.Done(), "the write is decided"); !ok {
		t.FailNow()
	}
}

func TestALoneWriterAppliesItsOwnWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t)
		for i := range 99 {
			synctest.Wait() // the orchestrator may lead for a moment after a write, to no purpose
			w, g := s.putGroup(fmt.Sprint(i), durabilities[i%len(durabilities)])
			Submit(t.Context(), []*WriteGroup{g})
			select {
			case <-g.call.Done():
			default:
				t.Fatal("it was left to another goroutine")
			}
			require.NoError(t, w.Err)
			require.EqualValues(t, i+1, w.Version)
		}
	})
}

// A caller that finds another goroutine leading leaves its group to it.
func TestAppendingIsLeftToTheLeader(t *testing.T) {
	s := newFixture(t)
	testwait.Until(t, s.c.orchestrator.tryLock)
	_, g := s.putGroup("a", kv.DurabilityBuffered)
	var call submission
	call.append([]*WriteGroup{g}, g)
	require.Equal(t, submission{queued: g}, call)
	require.True(t, s.c.inbox.Remove(g), "it waits in the inbox")
	s.c.enqueue(t.Context(), testwait.Deadline(), g)
	s.c.orchestrator.yield()
	requireDecided(t, g)
}

// A caller that asks for no sync leads until flushed: what comes meanwhile is one batch. A
// caller that asks for one leads only while it appends.
func TestHowLongTheCallerLeads(t *testing.T) {
	for _, level := range durabilities {
		synctest.Test(t, func(t *testing.T) {
			s := newFixture(t)
			s.stall(true)
			synctest.Wait() // until the orchestrator sleeps
			w, g := s.putGroup("b", level)
			call := s.lead(t, g)
			require.NotZero(t, s.c.inflightBytes.Load(), "it is in the log")
			require.Empty(t, g.call.Done())
			if level < kv.DurabilitySync {
				require.False(t, s.c.orchestrator.tryLock(), "it leads until flushed")
			} else {
				synctest.Wait()
				require.True(t, s.c.orchestrator.tryLock())
				s.c.orchestrator.yield()
			}
			s.world.Stall(false)
			for _, o := range call.led {
				o.finish()
			}
			if level < kv.DurabilitySync {
				require.Len(t, g.call.Done(), 1, "the caller applied it itself")
			}
			s.c.Wake()
			requireDecided(t, g)
			require.NoError(t, w.Err)
		})
	}
}

// lead appends a group on the goroutine of its caller, while the orchestrator sleeps.
func (s *fixture) lead(t *testing.T, g *WriteGroup) *submission {
	call := &submission{}
	call.append([]*WriteGroup{g}, g)
	require.NotNil(t, call.log, "another goroutine leads")
	return call
}

// The goroutine that has synced the log applies what that has made durable, unless another
// one leads, which is then told.
func TestTheGoroutineThatSyncedAppliesTheRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t)
		s.stall(true)
		synctest.Wait() // until the orchestrator sleeps
		w, g := s.putGroup("a", kv.DurabilitySync)
		s.lead(t, g)
		synctest.Wait()
		require.True(t, s.c.orchestrator.tryLock())
		s.world.Stall(false)
		s.c.RunReady()
		require.Empty(t, g.call.Done(), "another goroutine leads")
		require.False(t, s.c.orchestrator.unlock(), "it has been told")

		s.c.orchestrator.sawAll()
		require.True(t, s.c.orchestrator.unlock())
		s.c.RunReady()
		require.Len(t, g.call.Done(), 1)
		require.NoError(t, w.Err)
	})
}

// R1: the leader cannot end its leadership before it has looked at what was noted.
func TestTheLeaderLockIsKeptForWhatWasNoted(t *testing.T) {
	var r leaderLock
	r.init()
	require.True(t, r.tryLock())
	require.False(t, r.lockOrNote(), "it is held")
	require.False(t, r.unlock())
	r.sawAll()
	r.note()
	require.False(t, r.unlock())
	r.sawAll()
	require.True(t, r.unlock())
	require.Empty(t, r.signal, "no goroutine was woken for it")
	r.note()
	require.Len(t, r.signal, 1, "it was free")
}

// R1: a leader leaves nothing undone, nor does a helper. Two writes come together, half of them
// beside a reader, and no other comes that would mend what was forgotten.
func TestNoWriteIsForgotten(t *testing.T) {
	s := newFixture(t)
	require.NoError(t, s.close())
	o := s.world.Options(s.fs)
	o.FlushKeys = 100
	s.p, s.c = s.open(o)
	const rounds = 20_000
	keys := []string{"a", "b"}
	for n := range rounds {
		var group sync.WaitGroup
		if n%2 == 0 {
			s.c.orchestrator.company.MeetReader()
		}
		for i, ctx := range []context.Context{context.Background(), t.Context()} {
			group.Go(func() { requireServed(t, s, ctx, keys[i], durabilities[n%len(durabilities)]) })
		}
		if group.Wait(); t.Failed() {
			return
		}
	}
	require.EqualValues(t, rounds*len(keys), s.p.Published())
}

func requireServed(t *testing.T, s *fixture, ctx context.Context, key string, level kv.Durability) {
	w, g := s.putGroup(key, level)
	Submit(ctx, []*WriteGroup{g})
	if _, ok := testwait.Receive(t, g.call.Done(), "the write is decided"); ok {
		assert.NoError(t, w.Err)
	}
}

func TestCloseMeetsWritersThatServeThemselves(t *testing.T) {
	for range 200 {
		s := newFixture(t)
		var started, group sync.WaitGroup
		for n := range 3 {
			started.Add(1)
			group.Go(func() {
				for i := 0; ; i++ {
					w, g := s.putGroup(fmt.Sprint(n, i), durabilities[n])
					Submit(context.Background(), []*WriteGroup{g})
					if _, ok := testwait.Receive(t, g.call.Done(), "the write is decided"); !ok {
						return
					}
					if i == 0 {
						started.Done()
					}
					if w.Err != nil {
						assert.ErrorIs(t, w.Err, kv.ErrClosed)
						return
					}
				}
			})
		}
		started.Wait()
		require.NoError(t, s.close())
		group.Wait()
	}
}
