package commit

import (
	"context"
	"errors"
	"runtime"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/trace"
)

// Submit hands in the groups of one call, which has one for each coordinator at most. It
// is the one way in for writes that depend on nothing; [Propose] is that for the others.
//
// Where no goroutine leads, the caller leads itself: it appends its group to the log,
// together with what is queued, so that no goroutine is woken for a write that comes
// alone. It then has the log flushed once for all groups that it appended. The other
// groups are queued; Submit waits for a full inbox only after it has finished what it
// appended. Each group is decided through its call, sooner or later, also if it was
// refused.
func Submit(ctx context.Context, groups []*WriteGroup) {
	if len(groups) == 1 {
		groups[0].submitAlone(ctx)
		return
	}
	var appended, full []*WriteGroup
	for _, g := range groups {
		if g.to.tryAppend(g, false) {
			appended = append(appended, g)
		} else if !g.to.tryEnqueue(g) {
			full = append(full, g)
		}
	}
	if len(appended) > 0 {
		appended[0].to.log.FlushOrSync()
	}
	for _, g := range appended {
		g.to.flushed(g)
	}
	for _, g := range full {
		g.to.enqueue(ctx, g)
	}
}

func (g *WriteGroup) submitAlone(ctx context.Context) {
	if !g.to.tryAppend(g, true) {
		g.to.enqueue(ctx, g)
		return
	}
	g.to.log.FlushOrSync()
	g.to.flushed(g)
}

// tryAppend appends a group to the log together with what is queued, on its caller's
// goroutine, and reports whether it did: only if no other goroutine leads, and the group
// need not wait. It does no I/O. The caller then calls Log.FlushOrSync, and flushed after
// that.
//
// If the group asks for no sync, its caller leads until flushed, so that writes that come
// meanwhile form one micro-batch. If the group is alone in its call, the caller first
// yields the processor once, for other callers to add theirs; the groups of a larger call
// are large already.
func (c *Coordinator) tryAppend(g *WriteGroup, alone bool) bool {
	if !c.tryLead() {
		return false
	}
	if alone {
		runtime.Gosched() // as in orchestrate
	}
	c.taken, _ = c.inbox.Take(append(c.taken, g))
	c.commit()
	if !g.leadsUntilFlushed() {
		c.finish()
	}
	return true
}

// flushed ends what tryAppend began, after the log was flushed: the caller applies what
// is durable, its own group among it.
func (c *Coordinator) flushed(g *WriteGroup) {
	if g.leadsUntilFlushed() {
		c.finish()
	}
}

// leadsUntilFlushed reports whether the caller of tryAppend leads until flushed. It does
// not during a sync: the writes of that time gather in the log.
func (g *WriteGroup) leadsUntilFlushed() bool { return g.level < kv.DurabilitySync }

// tryEnqueue queues a group for the leader. It reports false if the inbox is full.
func (c *Coordinator) tryEnqueue(g *WriteGroup) bool {
	queued, err := c.inbox.TryPut(g, g.ops(), g.bytes)
	if err != nil {
		c.refuse(g, err)
	}
	return queued || err != nil
}

// enqueue is tryEnqueue that waits for room, until ctx ends or for batcher.MaxQueueWait.
func (c *Coordinator) enqueue(ctx context.Context, g *WriteGroup) {
	if err := c.inbox.Put(ctx, g, g.ops(), g.bytes); err != nil {
		c.refuse(g, err)
	}
}

// refuse decides a group that the inbox did not take.
func (c *Coordinator) refuse(g *WriteGroup, err error) {
	if errors.Is(err, kv.ErrClosed) {
		err = c.closedError()
	}
	g.decide(0, err)
}

// Abandon takes a group back whose caller's context ended with cause. Unless the
// group is in a record, its writes did not happen and get cause; if it is, their
// outcome is unknown: kv.ErrUncertain, which wraps cause too. The group's memory is the caller's again.
//
// It returns how far a group that is timed has come, nil if it is decided or in no
// record.
func (g *WriteGroup) Abandon(cause error) *trace.Batch {
	g.to.inbox.Remove(g)
	return g.abandon(cause)
}
