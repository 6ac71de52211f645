package engine

import (
	"context"
	"errors"

	"github.com/kvd-db/kvd/internal/commit"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/partition"
	"github.com/kvd-db/kvd/internal/trace"
)

// applyConditional commits a batch if its guards hold.
func (e *Engine) applyConditional(ctx context.Context, to *writers, b *kv.WriteBatch, o kv.WriteOptions, watch *stopwatch) (kv.SeqNum, error) {
	p := e.newProposal(to, b, o)
	for {
		watch.works()
		reads, err := e.evaluate(ctx, b.Guards(), 0)
		if err != nil {
			return e.applied(ctx, p, err)
		}
		p.forget()
		for _, r := range reads {
			p.readGuard(r)
		}
		watch.waits()
		c, err := e.propose(ctx, p)
		if err == nil {
			return e.await(ctx, to, c, o, watch)
		}
		if err := e.awaitConflicting(ctx, to, err); err != nil {
			return 0, err
		}
	}
}

// evaluate reads the keys of guards, at a version of a live snapshot or, if at is zero,
// at the newest of each partition, and returns what it read or a *kv.ConditionError.
func (e *Engine) evaluate(ctx context.Context, guards []kv.Guard, at kv.SeqNum) ([]*kv.Lookup, error) {
	found := make([]kv.Lookup, len(guards))
	reads := make([]*kv.Lookup, len(guards))
	for i := range guards {
		found[i].Key, found[i].Want = guards[i].Key, guards[i].Want()
		reads[i] = &found[i]
	}
	if at != 0 {
		if _, err := e.LookupAt(ctx, reads, at); err != nil {
			return nil, err
		}
	} else if err := e.lookupGuarded(ctx, reads, func(i int) bool { return guards[i].Holds(reads[i]) }); err != nil {
		return nil, err
	}
	for i := range guards {
		if err := found[i].Err; err != nil {
			return nil, err
		}
		if err := guards[i].Evaluate(&found[i]); err != nil {
			return nil, err
		}
	}
	return reads, nil
}

// lookupGuarded reads the keys of conditions. A proposal checks again that what it depends on is
// the newest state, but a condition that does not hold is an answer: on a member of a cluster,
// which may no longer lead, it is read again after a round.
func (e *Engine) lookupGuarded(ctx context.Context, reads []*kv.Lookup, holds func(i int) bool) error {
	if e.closed.Load() {
		return kv.ErrClosed
	}
	if err := e.lookupHere(ctx, reads); err != nil || e.member == nil {
		return err
	}
	var again []*kv.Lookup
	for i, r := range reads {
		if r.Err == nil && !holds(i) {
			r.Drop()
			again = append(again, r)
		}
	}
	if len(again) == 0 {
		return nil
	}
	return e.Lookup(ctx, again)
}

// awaitConflicting is called when a proposal that read the newest versions was refused.
// It returns nil once the conflicting write can be read, so that the caller can try again.
// It returns any error that is not a conflict.
func (e *Engine) awaitConflicting(ctx context.Context, to *writers, err error) error {
	var conflict *kv.ConflictError
	if errors.As(err, &conflict) {
		return e.waitVisible(ctx, to, conflict.Version)
	}
	if errors.Is(err, partition.ErrStale) {
		return ctx.Err()
	}
	return err
}

// applied returns the version of a proposal that an earlier attempt with the same request
// id applied, otherwise refusal, which is why the proposal cannot be applied now.
func (e *Engine) applied(ctx context.Context, p *proposal, refusal error) (kv.SeqNum, error) {
	version, known, err := e.remembered(ctx, p.to, p.lead(), p.options.RequestID, p.options.Durability)
	if !known {
		return 0, refusal
	}
	p.options.Note(err == nil)
	return version, err
}

// remembered reports whether an earlier attempt with the same request id was applied. It
// is called after a condition failed, which that attempt may have caused. If known is true
// and err is nil, the version is visible and has the durability given.
//
// It must be called after the reads: an attempt that was applied before them has its
// request id in the window before any reader sees what it wrote.
func (e *Engine) remembered(ctx context.Context, to *writers, lead *commit.Coordinator, o kv.RequestID, level kv.Durability) (version kv.SeqNum, known bool, err error) {
	if !o.Named() {
		return 0, false, nil
	}
	version, known, err = lead.Remembered(o)
	if err == nil && !known && to.tenure != nil {
		err = to.tenure.Err() // a coordinator that has ended has handed its request ids on
	}
	if err != nil {
		return 0, true, err
	}
	if known {
		if err := e.awaitAttempt(ctx, to, version, level); err != nil {
			return 0, true, err
		}
	}
	return version, known, nil
}

// conditional reports whether a write depends on what its key holds.
func conditional(w *kv.Write) bool { return w.If != nil || w.Previous != nil }

// started is a conditional write whose record is in the log.
type started struct {
	write  *kv.Write
	commit *commit.Commit
}

// writeConditional performs writes that depend on what their keys hold. Each has its own
// outcome. All records are appended before the log is told to write any, so they share a write
// and a sync: when each was flushed by itself, the first began a sync for which the others
// came too late, and 256 callers over the network had 0.6 of the rate.
func (e *Engine) writeConditional(ctx context.Context, to *writers, writes []*kv.Write, watch *stopwatch) {
	for len(writes) > 0 {
		watch.works()
		var under []started
		var again []*kv.Write
		var conflict error // the last; writes whose conflict is not over after it try once more
		readable := e.readFor(ctx, writes)
		watch.waits()
		flush := func() { flushAll(under) }
		for _, r := range readable {
			commit, err := e.startConditional(ctx, to, r.write, r.found, watch.stages, flush)
			switch {
			case err == nil && commit != nil:
				under = append(under, started{r.write, commit})
			case errors.Is(err, kv.ErrConflict) || errors.Is(err, partition.ErrStale):
				again, conflict = append(again, r.write), err
				if previous := r.write.Previous; previous != nil {
					previous.Drop()
				}
			}
		}
		flush()
		for i, s := range under {
			watch := watch
			if i < len(under)-1 {
				watch = &stopwatch{} // the last in the log is acknowledged last
			}
			s.write.Version, s.write.Err = e.await(ctx, to, s.commit, kv.WriteOptions{Durability: s.write.Durability, Deduplicated: &s.write.Deduplicated}, watch)
		}
		if conflict != nil {
			watch.waits()
			if err := e.awaitConflicting(ctx, to, conflict); err != nil {
				for _, w := range again {
					w.Err = err
				}
				return
			}
		}
		writes = again
	}
}

// flushAll has the log write the records of writes.
func flushAll(writes []started) {
	for i, s := range writes {
		if i == len(writes)-1 {
			s.commit.Flush()
		} else {
			s.commit.Wake()
		}
	}
}

// looked is a conditional write with what its key holds.
type looked struct {
	write *kv.Write
	found *kv.Lookup
}

// readFor reads the keys of writes. A write whose key cannot be read gets the error.
func (e *Engine) readFor(ctx context.Context, writes []*kv.Write) []looked {
	found := make([]kv.Lookup, len(writes))
	reads := make([]*kv.Lookup, len(writes))
	all := make([]looked, len(writes))
	for i, w := range writes {
		found[i].Key, found[i].Want = w.Op.Key, wantFor(w)
		if w.Previous != nil {
			found[i].Budget = w.Previous.Budget
		}
		reads[i] = &found[i]
		all[i] = looked{w, &found[i]}
	}
	err := e.lookupGuarded(ctx, reads, func(i int) bool { return writes[i].If == nil || writes[i].If.Holds(reads[i]) })
	readable := all[:0]
	for _, l := range all {
		if l.write.Err = errors.Join(err, l.found.Err); l.write.Err == nil {
			readable = append(readable, l)
		}
	}
	return readable
}

// wantFor returns which values a conditional write has to read.
func wantFor(w *kv.Write) kv.Want {
	if w.Previous != nil {
		return kv.WantAny
	}
	return w.If.Want()
}

// startConditional evaluates the condition of one write and appends the write if it
// holds. Otherwise the commit is nil, and the write has its outcome. Before it waits it calls
// flush.
func (e *Engine) startConditional(ctx context.Context, to *writers, w *kv.Write, found *kv.Lookup, stages *trace.Stages, flush func()) (*commit.Commit, error) {
	home := e.route(w.Hash)
	if w.Previous != nil {
		*w.Previous = *found
	}
	if w.If != nil {
		guard := kv.Guard{Key: w.Op.Key, Condition: *w.If}
		if err := guard.Evaluate(found); err != nil {
			flush()
			version, known, lost := e.remembered(ctx, to, to.coordinators[home], w.RequestID, w.Durability)
			if !known {
				w.Err = err
				return nil, nil
			}
			w.Version, w.Deduplicated, w.Err = version, lost == nil, lost
			return nil, nil
		}
	}
	p := e.emptyProposal(to, kv.WriteOptions{Durability: w.Durability, RequestID: w.RequestID, Stages: stages}, int64(w.Op.Size()))
	p.share(home).Ops = []kv.Op{w.Op}
	p.readGuard(found)
	commit, err := e.append(ctx, p, flush)
	if err != nil && !errors.Is(err, kv.ErrConflict) && !errors.Is(err, partition.ErrStale) {
		w.Err = err
	}
	return commit, err
}
