package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/partition"
)

// executeAttempts is how often Execute tries again what others come in between
// of. Guessed: who loses as often is one of hundreds that write the same keys.
const executeAttempts = 100

// Execute evaluates the guards and applies then, if all hold, or otherwise, if one
// does not, as one transaction: nothing that the judgement depends on is written,
// or expires, until the batch is in the log. Either batch may be empty or nil; it has no guards of its own. It
// returns which it was and the version of the commit, or, if the batch was empty,
// the version that the guards were evaluated at.
//
// A named Execute (kv.RequestID) that is sent again, and whose first attempt was
// applied, is answered as the first was, whatever the guards say by now. One
// whose first attempt chose an empty batch left no trace and is evaluated anew.
// The top bit of the sequence must not be set: the store uses it.
//
// The slices are borrowed until Execute returns, and the batches are normalized.
// Errors: a *kv.ConflictError if others came in between a hundred times; those of
// a guard's read; else as Apply.
// Cost: that of LookupAt for the guards, then that of Commit, for each attempt.
func (e *Engine) Execute(ctx context.Context, guards []kv.Guard, then, otherwise *kv.WriteBatch, o kv.WriteOptions) (succeeded bool, at kv.SeqNum, err error) {
	defer e.events.Guard()
	if err := e.writable(onlyDeletes(slices.Concat(opsOf(then), opsOf(otherwise)))); err != nil {
		return false, 0, err
	}
	x, err := e.newExecution(guards, then, otherwise, o)
	if err != nil {
		return false, 0, err
	}
	watch := startWatch(o.Stages)
	defer watch.stop()
	size := x.bytes()
	if err := e.admit(ctx, size); err != nil {
		return false, 0, err
	}
	defer e.leave(size)
	for attempt := range executeAttempts {
		succeeded, at, err = x.try(ctx, &watch)
		if !errors.Is(err, kv.ErrConflict) && !errors.Is(err, partition.ErrStale) {
			return succeeded, at, err
		}
		if err := errors.Join(e.awaitConflicting(ctx, err), pauseFor(ctx, attempt)); err != nil {
			return false, 0, err
		}
	}
	return false, 0, &kv.ConflictError{}
}

func opsOf(b *kv.WriteBatch) []kv.Op {
	if b == nil {
		return nil
	}
	return b.Ops()
}

// pauseFor waits for a short random time, which grows with the attempts, so that
// conflicting writes do not conflict again.
func pauseFor(ctx context.Context, attempt int) error {
	t := time.NewTimer(rand.N(time.Duration(min(attempt, 20)+1) * 100 * time.Microsecond))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// execution is one call of Execute.
type execution struct {
	e      *Engine
	guards []kv.Guard
	// By outcome: [0] if a guard does not hold, [1] if all do
	branches [2]branch
}

// branch is a batch, nil if there is nothing to do, and what it is called.
//
// The branches of one execution have different names, so that one that is
// remembered tells which was applied: the name of the call, and the same with the
// top bit of its sequence.
type branch struct {
	batch   *kv.WriteBatch
	options kv.WriteOptions
}

const otherwiseBit = 1 << 63

func (e *Engine) newExecution(guards []kv.Guard, then, otherwise *kv.WriteBatch, o kv.WriteOptions) (*execution, error) {
	l := e.opts.Limits
	bytes := 0
	for i := range guards {
		g := &guards[i]
		if err := errors.Join(l.CheckKey(g.Key), g.Check(l)); err != nil {
			return nil, fmt.Errorf("guard %d: %w", i, err)
		}
		bytes += len(g.Key) + len(g.Value)
	}
	if err := errors.Join(l.CheckBatch(len(guards), bytes), checkDurability(o.Durability)); err != nil {
		return nil, err
	}
	if o.RequestID.Sequence&otherwiseBit != 0 {
		return nil, fmt.Errorf("%w: sequence %d of an execute is above %d", kv.ErrInvalidArgument, o.RequestID.Sequence, uint64(otherwiseBit-1))
	}
	x := &execution{e: e, guards: guards}
	for i, b := range []*kv.WriteBatch{otherwise, then} {
		if b == nil || b.Len() == 0 && len(b.Guards()) == 0 {
			continue
		}
		if len(b.Guards()) > 0 {
			return nil, fmt.Errorf("%w: a batch of an execute has conditions of its own", kv.ErrInvalidArgument)
		}
		if err := errors.Join(b.Check(l), e.checkOps(b)); err != nil {
			return nil, err
		}
		identify(&o, b)
		b.Normalize(l)
		x.branches[i] = branch{b, o}
	}
	if o.RequestID.Named() {
		x.branches[0].options.RequestID.Sequence |= otherwiseBit
	}
	return x, nil
}

// bytes returns the size of the larger branch.
func (x *execution) bytes() int {
	n := 0
	for _, b := range x.branches {
		if b.batch != nil {
			n = max(n, b.batch.Bytes())
		}
	}
	return n
}

// try is one attempt. A conflict, or partition.ErrStale, asks for another.
//
// Whether one of the branches has been applied before is asked after the guards
// were read, and again in the order of the log. An attempt of the same name that
// is under way meanwhile and comes first is either found there, or has changed
// what this one read, which then tries again and finds it; or it did not change
// what this one read: then both chose the same branch, and the second is
// recognised by its name when it is proposed.
func (x *execution) try(ctx context.Context, watch *stopwatch) (succeeded bool, at kv.SeqNum, err error) {
	found := make([]kv.Lookup, len(x.guards))
	reads := make([]*kv.Lookup, len(x.guards))
	for i := range x.guards {
		found[i].Key, found[i].Want = x.guards[i].Key, x.guards[i].Want()
		reads[i] = &found[i]
	}
	watch.works()
	if at, err = x.e.LookupAt(ctx, reads, 0); err != nil {
		return false, 0, err
	}
	succeeded = true
	for i := range found {
		if err := found[i].Err; err != nil {
			return false, 0, err
		}
		succeeded = succeeded && x.guards[i].Holds(&found[i])
	}
	if was, version, known, err := x.remembered(ctx); known {
		return was, version, err
	}
	chosen := x.branches[0]
	if succeeded {
		chosen = x.branches[1]
	}
	if chosen.batch == nil {
		return succeeded, at, nil
	}
	p := x.e.newProposal(chosen.batch, chosen.options)
	for _, r := range reads {
		p.readGuard(r)
	}
	watch.waits()
	c, err := x.e.propose(ctx, p)
	if err != nil {
		return false, 0, err
	}
	at, err = x.e.await(ctx, c, chosen.options, watch)
	return succeeded, at, err
}

// remembered asks whether a branch has been applied before. The error says that
// one may have been applied, and that its outcome is forgotten.
func (x *execution) remembered(ctx context.Context) (succeeded bool, version kv.SeqNum, known bool, err error) {
	for i, b := range x.branches {
		if b.batch == nil {
			continue
		}
		lead := x.e.newProposal(b.batch, b.options).lead()
		version, found, lost := x.e.remembered(ctx, lead, b.options.RequestID, x.e.durability(b.options.Durability))
		if found && lost == nil {
			b.options.Note(true)
			return i == 1, version, true, nil
		}
		err = errors.Join(err, lost)
	}
	return false, 0, err != nil, err
}
