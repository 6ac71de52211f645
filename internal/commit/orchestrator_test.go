package commit

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/batcher"
	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/partition"
	"github.com/kvd-db/kvd/internal/partition/partitiontest"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/internal/trace"
	"github.com/kvd-db/kvd/internal/wal"
)

// members returns started coordinators of one orchestrator.
func (s *fixture) members(t *testing.T, n int, change ...func(*Options)) []*Coordinator {
	by := NewOrchestrator(nil, new(Company))
	var all []*Coordinator
	for i := range n {
		o := s.world.Options(s.fs)
		o.ID, o.Dir = i+1, fmt.Sprint("member-", i)
		require.NoError(t, partition.Create(o))
		p, c := s.openLed(o, by)
		for _, f := range change {
			f(&c.opts)
			c.inbox = batcher.NewInbox[*WriteGroup](c.opts.Writes, c.Wake)
		}
		t.Cleanup(func() {
			c.Close()
			require.NoError(t, p.Close())
		})
		all = append(all, c)
	}
	for _, c := range all {
		c.Start(&s.flushes, 1, s.world.Last())
	}
	return all
}

// flushes is a log that knows whether all records that were appended are on their way to the disk.
type flushes struct {
	*partitiontest.World
	owed atomic.Bool
}

func (f *flushes) Append(payload []byte, units uint32, level kv.Durability, w wal.Waker, t *trace.Batch) (kv.SeqNum, wal.Pos, error) {
	f.owed.Store(true)
	return f.World.Append(payload, units, level, w, t)
}

func (f *flushes) Flush()       { f.owed.Store(false) }
func (f *flushes) FlushOrSync() { f.owed.Store(false) }

func groupOf(c *Coordinator, key string, level kv.Durability) (*kv.Write, *WriteGroup) {
	w := &kv.Write{Op: kv.Op{Kind: kv.KindPut, Key: []byte(key)}, Hash: keyhash.Sum([]byte(key)), Durability: level}
	return w, c.NewWriteGroup(NewCall(1), []*kv.Write{w})
}

// queueUnseen queues a group at c, for which the orchestrator is not woken: the next leader finds it.
func queueUnseen(t *testing.T, c *Coordinator) *WriteGroup {
	t.Helper()
	o := c.orchestrator
	require.True(t, o.tryLock())
	_, g := groupOf(c, "queued", kv.DurabilityBuffered)
	require.True(t, c.tryEnqueue(g))
	o.sawAll()
	require.True(t, o.unlock())
	return g
}

// The caller that leads serves what is queued at all members.
func TestALeaderServesAllMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t)
		all := s.members(t, 70) // more than a word of bits
		synctest.Wait()
		o := all[0].orchestrator
		var queued []*WriteGroup
		for _, i := range []int{1, 63, 64, 69} {
			queued = append(queued, queueUnseen(t, all[i]))
		}
		_, own := groupOf(all[0], "own", kv.DurabilityBuffered)
		Submit(t.Context(), []*WriteGroup{own})
		for _, g := range append(queued, own) {
			require.Len(t, g.call.Done(), 1)
			require.NoError(t, g.writes[0].Err)
		}
		require.Empty(t, o.signal, "no other goroutine was woken")
	})
}

// After some calls that were alone few of them yield, until there is another write, or a read.
func TestCallsThatAreAloneSeldomYield(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t)
		all := s.members(t, 2)
		synctest.Wait()
		o := all[0].orchestrator
		submit := func() {
			_, g := groupOf(all[0], "own", kv.DurabilityBuffered)
			Submit(t.Context(), []*WriteGroup{g})
			synctest.Wait()
			require.Len(t, g.call.Done(), 1)
		}
		alone := func() {
			for range 2 * aloneCalls {
				submit()
			}
			require.Greater(t, o.alone, aloneCalls)
		}
		// yields counts the calls that yield of as many as notice company at the latest.
		yields := func() (n int) {
			for range aloneCalls {
				submit()
				if o.mayHaveCompany() {
					n++
				}
			}
			return n
		}
		alone()
		require.Zero(t, yields())
		for name, meet := range map[string]func(){
			"a write that was queued": func() {
				queueUnseen(t, all[1])
				submit()
			},
			"another leader": func() {
				require.True(t, o.tryLock())
				_, g := groupOf(all[0], "k", kv.DurabilityBuffered)
				Submit(t.Context(), []*WriteGroup{g})
				require.False(t, o.unlock(), "it is noted")
				o.finish()
				synctest.Wait()
				require.Len(t, g.call.Done(), 1)
			},
			"a read": o.company.Meet,
		} {
			alone()
			meet()
			require.Positive(t, yields(), name)
		}
		// Readers that go on keep the yields going.
		for range 10 {
			o.company.Meet()
			yields()
		}
		o.company.Meet()
		require.Equal(t, aloneCalls, yields())
	})
}

// A leader leaves what is queued to a helper, if there is one, and the last helper to give up leaves it
// to the orchestrator.
func TestALeaderLeavesWhatIsQueuedToAHelper(t *testing.T) {
	for _, gaveUp := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newFixture(t)
			all := s.members(t, 2)
			synctest.Wait()
			o := all[0].orchestrator
			o.helpers.Store(2)
			require.True(t, o.tryLock())
			_, g := groupOf(all[1], "k", kv.DurabilityBuffered)
			require.True(t, all[1].tryEnqueue(g))
			o.finish()
			require.Empty(t, o.signal, "the orchestrator is not woken")
			_, decided := groupOf(all[0], "decided", kv.DurabilityBuffered)
			decided.call.left.Store(0)
			o.help(t.Context(), decided.call)
			require.Empty(t, g.call.Done(), "a call that is decided helps no other one")
			o.helpers.Add(-1) // one gave up before it looked
			if !gaveUp {
				require.True(t, o.tryLock())
				o.leadOnce()
				require.Len(t, g.call.Done(), 1)
				require.False(t, o.left.Load(), "nothing is left")
			}
			o.helpers.Add(-1)
			o.wakeIfLeft()
			synctest.Wait()
			require.Len(t, g.call.Done(), 1)
			require.NoError(t, g.writes[0].Err)
		})
	}
}

// A caller helps only beside readers, and where yields are quick; while it helps it leads if there is no
// leader.
func TestCallersHelpBesideReaders(t *testing.T) {
	for _, c := range []struct{ readers, slow, helps bool }{{}, {readers: true, helps: true}, {readers: true, slow: true}} {
		synctest.Test(t, func(t *testing.T) {
			s := newFixture(t)
			all := s.members(t, 1)
			synctest.Wait()
			o := all[0].orchestrator
			g := queueUnseen(t, all[0])
			if c.slow {
				require.False(t, o.company.yielded(2*slowYield))
			}
			helped := false
			for range 100 { // each of which may be the one that forgets the readers
				if c.readers {
					o.company.MeetReader()
				}
				o.help(t.Context(), g.call)
				helped = helped || g.call.decided()
			}
			require.Equal(t, c.helps, helped, "%+v", c)
			require.Zero(t, o.helpers.Load())
			all[0].Wake()
			synctest.Wait()
			require.Len(t, g.call.Done(), 1)
		})
	}
}

// A caller whose context has ended does not help: it gives up at once, however busy the processors are.
func TestACallerWhoseContextHasEndedDoesNotHelp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t)
		c := s.members(t, 1)[0]
		synctest.Wait()
		o := c.orchestrator
		require.True(t, o.tryLock())
		c.inbox = batcher.NewInbox[*WriteGroup](c.opts.Writes, func() {
			c.setDue()
			o.unlock() // so that the caller could lead
		})
		o.company.MeetReader()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		w, g := groupOf(c, "k", kv.DurabilityBuffered)
		Submit(ctx, []*WriteGroup{g})
		require.Empty(t, g.call.Done())
		g.Abandon(ctx.Err())
		require.Equal(t, context.Canceled, w.Err, "it is in no record")
	})
}

// Where goroutines compute, so that a helper gets the processor late, calls do not help for a while.
func TestCallersDoNotHelpBesideGoroutinesThatCompute(t *testing.T) {
	var c Company
	require.True(t, c.yielded(slowYield))
	require.False(t, c.skips())
	require.False(t, c.yielded(slowYield+1))
	for range skipHelps {
		require.True(t, c.skips())
	}
	require.False(t, c.skips())
	require.Zero(t, c.skip.Load())
}

// A helper that gives up while another goroutine leads has the orchestrator see to what is left.
func TestTheLastHelperToGiveUpWakesTheOrchestrator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t)
		all := s.members(t, 1)
		synctest.Wait()
		o := all[0].orchestrator
		require.True(t, o.tryLock())
		_, g := groupOf(all[0], "k", kv.DurabilityBuffered)
		require.True(t, all[0].tryEnqueue(g))
		o.left.Store(true)
		for range 100 { // each of which may be the one that forgets the readers
			o.company.MeetReader()
			o.help(t.Context(), g.call)
		}
		require.False(t, o.left.Load())
		o.finish()
		synctest.Wait()
		require.Len(t, g.call.Done(), 1)
	})
}

// A caller that leads has the log write what it has appended for other members, also if its own group
// has to wait.
func TestALeaderWhoseOwnGroupWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t)
		all := s.members(t, 2)
		synctest.Wait()
		queued := queueUnseen(t, all[1])
		all[0].inflightBytes.Add(all[0].opts.InflightBytes)
		_, own := groupOf(all[0], "own", kv.DurabilityBuffered)
		Submit(t.Context(), []*WriteGroup{own})
		synctest.Wait()
		require.Len(t, queued.call.Done(), 1)
		require.False(t, s.flushes.owed.Load())
		require.Empty(t, own.call.Done())
		all[0].inflightBytes.Add(-all[0].opts.InflightBytes)
		all[0].Wake()
		synctest.Wait()
		require.Len(t, own.call.Done(), 1)
	})
}

// A call with groups of several members, one of which the caller cannot append at once.
func TestACallOverMembers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t)
		all := append(s.members(t, 3), s.c) // the last one is of another orchestrator
		synctest.Wait()
		all[1].inflightBytes.Add(all[1].opts.InflightBytes)
		var groups []*WriteGroup
		for _, c := range all {
			_, g := groupOf(c, "k", kv.DurabilityBuffered)
			groups = append(groups, g)
		}
		Submit(t.Context(), groups)
		synctest.Wait()
		for i, g := range groups {
			require.Len(t, g.call.Done(), map[bool]int{true: 0, false: 1}[i == 1], i)
		}
		all[1].inflightBytes.Add(-all[1].opts.InflightBytes)
		all[1].Wake()
		synctest.Wait()
		require.Len(t, groups[1].call.Done(), 1)
	})
}

// A call whose inboxes are all full waits for room in them no longer than one that waits for one of them.
func TestACallWaitsForAllFullInboxesTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t)
		all := s.members(t, 3, func(o *Options) { o.Writes.QueueBytes = 1 })
		synctest.Wait()
		o := all[0].orchestrator
		require.True(t, o.tryLock()) // no goroutine takes from the inboxes
		var queued, groups []*WriteGroup
		var writes []*kv.Write
		for _, c := range all {
			_, first := groupOf(c, "queued", kv.DurabilityBuffered)
			require.True(t, c.tryEnqueue(first))
			w, g := groupOf(c, "k", kv.DurabilityBuffered)
			queued, groups, writes = append(queued, first), append(groups, g), append(writes, w)
		}
		begin := time.Now()
		Submit(t.Context(), groups)
		require.Equal(t, batcher.MaxQueueWait, time.Since(begin))
		for _, w := range writes {
			require.ErrorIs(t, w.Err, kv.ErrOverloaded)
		}
		o.yield()
		for _, g := range queued {
			<-g.call.Done()
			require.NoError(t, g.writes[0].Err)
		}
	})
}

// Each member ends by itself, and the orchestrator with the last one.
func TestMembersEndByThemselves(t *testing.T) {
	s := newFixture(t)
	all := s.members(t, 3)
	var group sync.WaitGroup
	for n, c := range all {
		group.Go(func() {
			for i := 0; ; i++ {
				w, g := groupOf(c, fmt.Sprint(i), durabilities[i%len(durabilities)])
				Submit(t.Context(), []*WriteGroup{g})
				if _, ok := testwait.Receive(t, g.call.Done(), "the write is decided"); !ok {
					return
				}
				if i == 10*n && n+1 < len(all) {
					c.Close()
				}
				if w.Err != nil {
					assert.ErrorIs(t, w.Err, kv.ErrClosed)
					return
				}
				if i == 100 {
					c.Close()
				}
			}
		})
	}
	group.Wait()
	require.Zero(t, all[0].orchestrator.running.Load())
}

// Writes linger at each member for as long as they should, whatever the others do.
func TestWritesLingerAtEachMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t)
		all := s.members(t, 2, func(o *Options) { o.Writes.Linger = time.Minute })
		began := time.Now()
		_, first := groupOf(all[0], "first", kv.DurabilityBuffered)
		Submit(t.Context(), []*WriteGroup{first})
		time.Sleep(40 * time.Second)
		_, second := groupOf(all[1], "second", kv.DurabilityBuffered)
		Submit(t.Context(), []*WriteGroup{second})
		<-first.call.Done()
		require.Equal(t, time.Minute, time.Since(began))
		<-second.call.Done()
		require.Equal(t, 100*time.Second, time.Since(began))
	})
}

// A wake of a coordinator that is not started, or has ended, does nothing.
func TestWakesBeforeTheStartAndAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFixture(t)
		by := NewOrchestrator(nil, new(Company))
		open := func(id int) (*partition.Partition, *Coordinator) {
			o := s.world.Options(s.fs)
			o.ID, o.Dir = id, fmt.Sprint("member-", id)
			require.NoError(t, partition.Create(o))
			return s.openLed(o, by)
		}
		p1, c1 := open(1)
		p2, c2 := open(2)
		c1.Start(s.world, 1, s.world.Last())
		c2.Wake()
		synctest.Wait()
		c2.RunReady()
		c2.Start(s.world, 1, s.world.Last())
		c1.Close()
		c1.Wake()
		c1.RunReady()
		_, g := groupOf(c2, "k", kv.DurabilitySync)
		Submit(t.Context(), []*WriteGroup{g})
		synctest.Wait()
		require.Len(t, g.call.Done(), 1)
		c2.Close()
		require.NoError(t, p1.Close())
		require.NoError(t, p2.Close())
	})
}
