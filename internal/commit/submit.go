package commit

import (
	"context"
	"errors"
	"time"

	"github.com/kvd-db/kvd/internal/batcher"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/trace"
)

// Submit hands in the groups of one call, which has one for each coordinator at most. It
// is the one way in for writes that depend on nothing but the key that they write; [Propose] is
// that for the others.
//
// Where no goroutine leads, the caller leads itself: it appends its group to the log,
// together with what is queued, so that no goroutine is woken for a write that comes
// alone. It then has the log flushed once for all groups that it appended. The other
// groups are queued; Submit waits for a full inbox only after it has finished what it
// appended. Each group is decided through its call, sooner or later, also if it was
// refused. If groups are queued, none asks for a sync, and there are readers, the caller first helps: see
// Orchestrator.help.
func Submit(ctx context.Context, groups []*WriteGroup) {
	var s submission
	var single *WriteGroup
	if len(groups) == 1 {
		single = groups[0]
	}
	for len(groups) > 0 {
		n := 1
		for n < len(groups) && groups[n].to.orchestrator == groups[0].to.orchestrator {
			n++
		}
		s.append(groups[:n], single)
		groups = groups[n:]
	}
	if s.log != nil {
		s.log.FlushOrSync()
	}
	for _, o := range s.led {
		o.finish()
	}
	if len(s.full) > 0 {
		until := time.Now().Add(batcher.MaxQueueWait)
		for _, g := range s.full {
			g.to.enqueue(ctx, until, g)
		}
	} else if s.queued != nil && !s.syncs {
		s.queued.to.orchestrator.help(ctx, s.queued.call)
	}
}

// submission is what becomes of the groups of a call.
type submission struct {
	log  Log             // has records that the caller has appended; nil: none
	led  []*Orchestrator // whose leader the caller is until the log is written
	full []*WriteGroup   // to queue once the inbox has room

	queued *WriteGroup // the last one that is queued because another goroutine leads
	syncs  bool        // a group asks for a sync

	one [1]*Orchestrator // memory for led
}

// append appends groups to the log together with what is queued at their orchestrator's members,
// on their caller's goroutine: if no other goroutine leads, and the groups need not wait. It
// queues the others. It does no I/O: the caller flushes the log, and calls finish of all led.
//
// If a group asks for no sync, its caller leads until the log is written, so that writes that come
// meanwhile form one micro-batch. It does not lead during a sync: the writes of that time gather
// in the log. If a group is the only one of its call, the caller first yields the processor once, for
// other callers to add theirs; the groups of a larger call are large already.
func (s *submission) append(groups []*WriteGroup, single *WriteGroup) {
	o := groups[0].to.orchestrator
	lead, until := o.tryLead(single), false
	for _, g := range groups {
		if lead && g.to.takes() {
			o.join(g.to)
			g.to.lead(g)
			until = until || g.level < kv.DurabilitySync
		} else if !g.to.tryEnqueue(g) {
			s.full = append(s.full, g)
		} else if !lead && g.to.opts.Writes.Linger == 0 {
			s.queued = g
		}
		s.syncs = s.syncs || g.level >= kv.DurabilitySync
	}
	if !lead {
		return
	}
	for _, c := range o.round {
		if !c.appended {
			c.collect()
		}
		if c.appended {
			s.log = c.log // also if the caller's own groups wait
		}
	}
	if until {
		if s.led == nil {
			s.led = s.one[:0]
		}
		s.led = append(s.led, o)
	} else {
		o.finish()
	}
}

// tryEnqueue queues a group for the leader. It reports false if the inbox is full.
func (c *Coordinator) tryEnqueue(g *WriteGroup) bool {
	queued, err := c.inbox.TryPut(g, g.ops(), g.bytes)
	if err != nil {
		c.refuse(g, err)
	}
	return queued || err != nil
}

// enqueue is tryEnqueue that waits for room, until ctx ends or until a time.
func (c *Coordinator) enqueue(ctx context.Context, until time.Time, g *WriteGroup) {
	if err := c.inbox.Put(ctx, until, g, g.ops(), g.bytes); err != nil {
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
