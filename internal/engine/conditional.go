package engine

import (
	"context"
	"errors"

	"github.com/kvd-db/kvd/internal/commit"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/partition"
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
		version, err := e.commit(ctx, p, watch)
		if err == nil {
			return version, nil
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

// writeConditional performs writes that depend on what their keys hold. Each has its own
// outcome. Those whose conditions hold go the way of plain writes, with what was read: see
// kv.Write.Read.
func (e *Engine) writeConditional(ctx context.Context, to *writers, writes []*kv.Write, watch *stopwatch) {
	found := make([]kv.Lookup, len(writes))
	var refused []*kv.Write
	for len(writes) > 0 {
		watch.works()
		hold, fail := e.readFor(ctx, writes, found)
		refused = append(refused, fail...)
		e.submit(ctx, to, hold, watch)
		var conflict error // the last; writes whose conflict is not over after it try once more
		again := hold[:0]
		for _, w := range hold {
			if errors.Is(w.Err, kv.ErrConflict) || errors.Is(w.Err, partition.ErrStale) {
				again, conflict = append(again, w), w.Err
				if w.Previous != nil {
					w.Previous.Drop()
				}
			}
		}
		if conflict != nil {
			watch.waits()
			if err := e.awaitConflicting(ctx, to, conflict); err != nil {
				for _, w := range again {
					w.Err = err
				}
				break
			}
		}
		writes = again
	}
	for _, w := range refused { // once the others are done, as this may wait
		version, known, lost := e.remembered(ctx, to, to.coordinators[e.route(w.Hash)], w.RequestID, w.Durability)
		if known {
			w.Version, w.Deduplicated, w.Err = version, lost == nil, lost
		}
	}
}

// readFor reads the keys of writes into found and returns the writes whose conditions hold, in the
// memory of writes, and those whose conditions do not, which have a *kv.ConditionError. A write
// whose key cannot be read has the error.
func (e *Engine) readFor(ctx context.Context, writes []*kv.Write, found []kv.Lookup) (hold, fail []*kv.Write) {
	reads := make([]*kv.Lookup, len(writes))
	for i, w := range writes {
		found[i] = kv.Lookup{Key: w.Op.Key, Want: wantFor(w)}
		if w.Previous != nil {
			found[i].Budget = w.Previous.Budget
		}
		reads[i] = &found[i]
	}
	err := e.lookupGuarded(ctx, reads, func(i int) bool { return writes[i].If == nil || writes[i].If.Holds(reads[i]) })
	hold = writes[:0]
	for i, w := range writes {
		if w.Err = errors.Join(err, reads[i].Err); w.Err != nil {
			continue
		}
		w.Read = reads[i]
		if w.Previous != nil {
			*w.Previous = *w.Read
		}
		if w.If != nil {
			guard := kv.Guard{Key: w.Op.Key, Condition: *w.If}
			if w.Err = guard.Evaluate(w.Read); w.Err != nil {
				fail = append(fail, w)
				continue
			}
		}
		hold = append(hold, w)
	}
	return hold, fail
}

// wantFor returns which values a conditional write has to read.
func wantFor(w *kv.Write) kv.Want {
	if w.Previous != nil {
		return kv.WantAny
	}
	return w.If.Want()
}
