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

func requireDecided(t *testing.T, g *Group) {
	t.Helper()
	if _, ok := testwait.Receive(t, g.call.Done(), "the write is decided"); !ok {
		t.FailNow()
	}
}

func TestALoneWriterServesItself(t *testing.T) {
	s := newScript(t)
	for i := range 99 {
		w, g := putGroup(fmt.Sprint(i), durabilities[i%len(durabilities)])
		s.p.Serve(context.Background(), g)
		select {
		case <-g.call.Done():
		default:
			t.Fatal("it was left to another goroutine")
		}
		require.NoError(t, w.Err)
		require.EqualValues(t, i+1, w.Version)
	}
}

// A caller that may give up is not tied to the work, nor is one that finds somebody
// at it.
func TestServeLeavesTheWorkToOthers(t *testing.T) {
	s := newScript(t)
	testwait.Until(t, s.p.role.tryTake)
	_, mine := putGroup("a", kv.DurabilitySync)
	s.p.Serve(context.Background(), mine)
	_, cancellable := putGroup("b", kv.DurabilitySync)
	s.p.Serve(t.Context(), cancellable)
	for _, g := range []*Group{mine, cancellable} {
		require.True(t, s.p.inbox.Remove(g), "it waits in the inbox")
		s.p.Submit(t.Context(), g)
	}
	s.p.yield()
	requireDecided(t, mine)
	requireDecided(t, cancellable)
}

// Who enters a group appends it, with what is queued, and leaves it to the
// orchestrator if somebody is at work.
func TestEnterAppendsOnItsCallersGoroutine(t *testing.T) {
	s := newScript(t)
	s.stall(true)
	testwait.Until(t, s.p.role.tryTake)
	_, queued := putGroup("a", kv.DurabilitySync)
	require.False(t, s.p.Enter(t.Context(), queued))
	require.True(t, s.p.inbox.Remove(queued), "it waits in the inbox")
	s.p.yield()

	w, g := putGroup("b", kv.DurabilitySync)
	testwait.Until(t, func() bool { return s.p.Enter(t.Context(), g) })
	require.NotZero(t, s.p.inflightBytes.Load(), "it is in the log")
	require.Empty(t, g.call.Done())
	s.stall(false)
	requireDecided(t, g)
	require.NoError(t, w.Err)
}

// Whoever has synced the log applies what that has made durable, unless somebody is at
// work, who then is told.
func TestWhoSyncedDoesTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScript(t)
		s.stall(true)
		synctest.Wait() // until the orchestrator sleeps
		w, g := putGroup("a", kv.DurabilitySync)
		require.True(t, s.p.Enter(t.Context(), g))
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
	p.Serve(ctx, g)
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
					s.p.Serve(context.Background(), g)
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
