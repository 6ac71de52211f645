package partition

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

func putGroup(key string, level kv.Durability) (*kv.Write, *Group) {
	w := &kv.Write{Op: kv.Op{Kind: kv.KindPut, Key: []byte(key)}, Hash: keyhash.Sum([]byte(key)), Durability: level}
	return w, NewGroup(NewCall(1), []*kv.Write{w})
}

// commit hands a group in as the engine does.
func (p *Partition) commitOne(ctx context.Context, g *Group) {
	if !p.TryAppend(g, true) {
		p.Submit(ctx, g)
		return
	}
	p.log.Flush()
	p.Finish(g)
}

func requireDecided(t *testing.T, g *Group) {
	t.Helper()
	if _, ok := testwait.Receive(t, g.call.Done(), "the write is decided"); !ok {
		t.FailNow()
	}
}

func TestALoneWriterAppliesItsOwnWrite(t *testing.T) {
	s := newScript(t)
	for i := range 99 {
		w, g := putGroup(fmt.Sprint(i), durabilities[i%len(durabilities)])
		s.p.commitOne(context.Background(), g)
		select {
		case <-g.call.Done():
		default:
			t.Fatal("it was left to another goroutine")
		}
		require.NoError(t, w.Err)
		require.EqualValues(t, i+1, w.Version)
	}
}

// A caller that finds another goroutine leading leaves its group to it.
func TestAppendingIsLeftToTheLeader(t *testing.T) {
	s := newScript(t)
	testwait.Until(t, s.p.role.tryTake)
	_, g := putGroup("a", kv.DurabilityBuffered)
	require.False(t, s.p.TryAppend(g, true))
	require.True(t, s.p.TrySubmit(g))
	require.True(t, s.p.inbox.Remove(g), "it waits in the inbox")
	s.p.Submit(t.Context(), g)
	s.p.yield()
	requireDecided(t, g)
}

// A caller that asks for no sync leads until Finish: what comes meanwhile is one batch. A
// caller that asks for one leads only while it appends.
func TestHowLongTheCallerLeads(t *testing.T) {
	for _, level := range durabilities {
		s := newScript(t)
		s.stall(true)
		w, g := putGroup("b", level)
		testwait.Until(t, func() bool { return s.p.TryAppend(g, true) })
		require.NotZero(t, s.p.inflightBytes.Load(), "it is in the log")
		require.Empty(t, g.call.Done())
		if level < kv.DurabilitySync {
			require.False(t, s.p.role.tryTake(), "it leads until Finish")
		} else {
			testwait.Until(t, s.p.role.tryTake)
			s.p.yield()
		}
		s.world.stall(false)
		s.p.Finish(g)
		if level < kv.DurabilitySync {
			require.Len(t, g.call.Done(), 1, "the caller applied it itself")
		}
		s.p.Wake()
		requireDecided(t, g)
		require.NoError(t, w.Err)
	}
}

// Whoever has synced the log applies what that has made durable, unless somebody is at
// work, who then is told.
func TestWhoSyncedDoesTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(t)
		s.stall(true)
		synctest.Wait() // until the orchestrator sleeps
		w, g := putGroup("a", kv.DurabilitySync)
		require.True(t, s.p.TryAppend(g, true))
		synctest.Wait()
		require.True(t, s.p.role.tryTake())
		s.world.stall(false)
		s.p.Work()
		require.Empty(t, g.call.Done(), "somebody else is at it")
		require.False(t, s.p.role.leave(), "who has been told")

		s.p.role.sawAll()
		require.True(t, s.p.role.leave())
		s.p.Work()
		require.Len(t, g.call.Done(), 1)
		require.NoError(t, w.Err)
	})
}

// R1: whoever has the role cannot give it up before looking at what was noted.
func TestTheRoleIsKeptForWhatWasNoted(t *testing.T) {
	var r role
	r.init()
	require.True(t, r.tryTake())
	require.False(t, r.takeOrNote(), "somebody has it")
	require.False(t, r.leave())
	r.sawAll()
	r.note()
	require.False(t, r.leave())
	r.sawAll()
	require.True(t, r.leave())
	require.Empty(t, r.signal, "nobody was woken for it")
	r.note()
	require.Len(t, r.signal, 1, "nobody had it")
}

// R1: whoever gives the role up leaves nothing undone. Two writes come together, and
// nobody else comes whose write would mend what was forgotten.
func TestNoWriteIsForgotten(t *testing.T) {
	s := newScript(t)
	s.p.opts.FlushKeys = 100
	const rounds = 50_000
	keys := []string{"a", "b"}
	for n := range rounds {
		var group sync.WaitGroup
		for i, ctx := range []context.Context{context.Background(), t.Context()} {
			group.Go(func() { requireServed(t, s.p, ctx, keys[i], durabilities[n%len(durabilities)]) })
		}
		if group.Wait(); t.Failed() {
			return
		}
	}
	require.EqualValues(t, rounds*len(keys), s.p.Published())
}

func requireServed(t *testing.T, p *Partition, ctx context.Context, key string, level kv.Durability) {
	w, g := putGroup(key, level)
	p.commitOne(ctx, g)
	if _, ok := testwait.Receive(t, g.call.Done(), "the write is decided"); ok {
		assert.NoError(t, w.Err)
	}
}

func TestCloseMeetsWritersThatServeThemselves(t *testing.T) {
	for range 200 {
		s := newScript(t)
		var started, group sync.WaitGroup
		for n := range 3 {
			started.Add(1)
			group.Go(func() {
				for i := 0; ; i++ {
					w, g := putGroup(fmt.Sprint(n, i), durabilities[n])
					s.p.commitOne(context.Background(), g)
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
		require.NoError(t, s.p.Close())
		group.Wait()
	}
}
