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

// executeAttempts is how often Execute tries. Guessed: a call that conflicts as often
// competes with hundreds of others for the same keys.
const executeAttempts = 100

// Execute evaluates the guards and applies the batch then if all hold, otherwise the batch
// otherwise, as one transaction: no key that the guards were evaluated on is written, or
// expires, until the batch is in the log. Either batch may be empty or nil; neither may
// have guards. Execute returns whether all guards held and the version of the commit or,
// if the batch was empty, the version that the guards were evaluated at.
//
// If a call with the same request id (kv.RequestID) was applied before, it gets the same
// answer, whatever the guards evaluate to now. A call that chose an empty batch leaves no
// trace, and is evaluated again. The top bit of the sequence must be 0; the store uses it.
//
// The slices are borrowed until Execute returns, and the batches are normalized.
// Errors: a *kv.ConflictError after a hundred attempts that conflicted with other writes;
// those of reading the guards' keys; otherwise as Apply.
// Cost: for each attempt, that of LookupAt for the guards, then that of Commit.
func (e *Engine) Execute(ctx context.Context, guards []kv.Guard, then, otherwise *kv.WriteBatch, o kv.WriteOptions) (succeeded bool, at kv.SeqNum, err error) {
	defer e.events.Guard()
	to, err := e.writable(onlyDeletes(slices.Concat(opsOf(then), opsOf(otherwise))))
	if err != nil {
		return false, 0, err
	}
	x, err := e.newExecution(guards, then, otherwise, o)
	if err != nil {
		return false, 0, err
	}
	x.to = to
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
		if err := errors.Join(e.awaitConflicting(ctx, to, err), pauseFor(ctx, attempt)); err != nil {
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

// pauseFor waits for a short random time that grows with the attempts, so that conflicting
// calls do not conflict again.
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
	to     *writers
	guards []kv.Guard
	// By outcome: [0] if a guard does not hold, [1] if all hold.
	branches [2]branch
}

// branch is a batch, nil if there is nothing to do, with its options.
//
// The branches of one execution have different request ids, so that a remembered id tells
// which branch was applied: branch 1 has the request id of the call, branch 0 has it with
// the top bit of the sequence set.
type branch struct {
	batch   *kv.WriteBatch
	options kv.WriteOptions
}

const otherwiseBit = 1 << 63

func (e *Engine) newExecution(guards []kv.Guard, then, otherwise *kv.WriteBatch, o kv.WriteOptions) (*execution, error) {
	l := e.opts.limits
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
		return nil, fmt.Errorf("%w: sequence %d of an execute, want at most %d", kv.ErrInvalidArgument, o.RequestID.Sequence, uint64(otherwiseBit-1))
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

// bytes returns what the larger branch takes.
func (x *execution) bytes() int {
	n := 0
	for _, b := range x.branches {
		if b.batch != nil {
			n = max(n, b.batch.Takes(x.e.opts.limits))
		}
	}
	return n
}

// try is one attempt. After a conflict, or partition.ErrStale, the caller tries again.
//
// It looks for a branch that was applied before once the guards are read; commit looks
// again, in the order of the log. Suppose that another attempt with the same request id is
// in progress and is appended first. Either the first look finds it. Or it changed what
// this attempt read: then this attempt conflicts, and the next one finds it. Or it did
// not: then both chose the same branch, and commit recognises the request id.
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
	p := x.e.newProposal(x.to, chosen.batch, chosen.options)
	for _, r := range reads {
		p.readGuard(r)
	}
	watch.waits()
	if at, err = x.e.commit(ctx, p, watch); err != nil {
		return false, 0, err
	}
	return succeeded, at, nil
}

// remembered reports whether a branch was applied before, and which. It returns an error if
// one may have been applied, but its outcome is no longer known.
func (x *execution) remembered(ctx context.Context) (succeeded bool, version kv.SeqNum, known bool, err error) {
	for i, b := range x.branches {
		if b.batch == nil {
			continue
		}
		lead := x.e.newProposal(x.to, b.batch, b.options).lead()
		version, found, lost := x.e.remembered(ctx, x.to, lead, b.options.RequestID, x.e.durability(b.options.Durability))
		if found && lost == nil {
			b.options.Note(true)
			return i == 1, version, true, nil
		}
		err = errors.Join(err, lost)
	}
	return false, 0, err != nil, err
}
