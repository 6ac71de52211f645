package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kvd-db/kvd/internal/commit"
	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/partition"
	"github.com/kvd-db/kvd/internal/wal"
)

// Commit ends an optimistic transaction: it applies the batch at one version if nothing
// that the transaction read has been written since its read version, and the guards of
// the batch hold. So committed transactions, batches and single operations are strictly
// serializable, in the order of their versions.
//
// The expiry of a key counts as a write if the transaction names the key (Expiring).
//
// A transaction that does not commit leaves nothing in the log.
//
// Errors: a *kv.ConflictError or a *kv.ConditionError if the transaction lost: run it
// again; kv.ErrVersionGone if the memtables no longer reach back to its read version and
// its snapshot has ended, kv.ErrOtherOpening, which wraps it, if it read before the
// store was opened, and kv.ErrVersionAhead, which also does, if it read on another node
// at a version that the cluster does not have; otherwise as Put. If an attempt with the
// same request id was applied before, Commit returns the version of that attempt, even if
// the read version is no longer valid.
//
// Cost: a lookup in the memtables for each key read and, if ranges were read, a step for
// each write since the read version; the partitions concerned append nothing meanwhile.
// Then the cost of Apply.
func (e *Engine) Commit(ctx context.Context, t *kv.Transaction, o kv.WriteOptions) (kv.SeqNum, error) {
	defer e.events.Guard()
	to, err := e.writable(onlyDeletes(t.Batch.Ops()))
	if err != nil {
		return 0, err
	}
	if err := errors.Join(t.Check(e.opts.limits), checkDurability(o.Durability), e.checkOps(t.Batch)); err != nil {
		return 0, err
	}
	watch := startWatch(o.Stages)
	defer watch.stop()
	size := t.Batch.Takes(e.opts.limits)
	if err := e.admit(ctx, size); err != nil {
		return 0, err
	}
	defer e.leave(size)
	identify(&o, t.Batch)
	t.Batch.Normalize(e.opts.limits)
	if t.ReadVersion == 0 {
		return e.applyConditional(ctx, to, t.Batch, o, &watch)
	}
	p := e.newProposal(to, t.Batch, o)
	if t.Elsewhere {
		if err := e.reach(ctx, to, t.ReadVersion); err != nil {
			return e.applied(ctx, p, err)
		}
	}
	if err := e.checkReadVersion(to, t); err != nil {
		// The caller concludes that no attempt was or will be applied, which only the leader knows.
		if unsure := e.confirm(ctx, to); unsure != nil {
			return 0, unsure
		}
		return e.applied(ctx, p, err)
	}
	for _, key := range t.Keys {
		p.read(key, t.ReadVersion)
	}
	if err := e.readExpiring(p, t); err != nil {
		return e.applied(ctx, p, err)
	}
	if guards := t.Batch.Guards(); len(guards) > 0 {
		// At the read version, so that all reads of the proposal have one version.
		watch.works()
		reads, err := e.evaluate(ctx, guards, t.ReadVersion)
		if err != nil {
			return e.applied(ctx, p, err)
		}
		for _, r := range reads {
			p.readGuard(r)
		}
		watch.waits()
	}
	p.scanned(t.Ranges, t.ReadVersion)
	version, err := e.commit(ctx, p, &watch)
	for errors.Is(err, partition.ErrStale) {
		watch.works()
		if err := e.refresh(p, t.ReadVersion); err != nil {
			// An earlier attempt at this transaction may be what changed the keys.
			e.awaitConflictVisible(ctx, to, err)
			return e.applied(ctx, p, err)
		}
		watch.waits()
		version, err = e.commit(ctx, p, &watch)
	}
	if err != nil {
		e.awaitConflictVisible(ctx, to, err)
		return 0, err
	}
	return version, nil
}

// awaitConflictVisible waits until the write that a transaction conflicted with can be read, or
// ctx ends. A caller that tries again before that conflicts again: without the wait 95 %
// of the commits of a contended load failed (see bench/NOTES.md).
func (e *Engine) awaitConflictVisible(ctx context.Context, to *writers, lost error) {
	var conflict *kv.ConflictError
	if errors.As(lost, &conflict) {
		_ = e.waitVisible(ctx, to, conflict.Version) // the conflict is the answer either way
	}
}

// refresh validates the reads of a proposal against the tables, up to what is visible. The
// result counts only if the lease on their version has not ended afterwards: see snapshots.
func (e *Engine) refresh(p *proposal, at kv.SeqNum) error {
	for i := range p.shares {
		if r := &p.shares[i].Reads; len(r.Keys)+len(r.Ranges) > 0 {
			if err := e.partitions[p.shares[i].Coordinator.ID()].Refresh(r); err != nil {
				return err
			}
		}
	}
	_, err := e.snapshots.find(at)
	return err
}

// proposal collects the operations and the reads of a batch by partition.
type proposal struct {
	e       *Engine
	to      *writers
	options kv.WriteOptions
	batch   *kv.WriteBatch
	bytes   int64

	shares []commit.Share  // of the partitions concerned, ascending
	few    [2]commit.Share // memory for shares
	whole  commit.Proposal
}

// newProposal distributes the operations of a normalized batch to partitions. A range
// delete goes to every partition, since each may have keys of the range.
func (e *Engine) newProposal(to *writers, b *kv.WriteBatch, o kv.WriteOptions) *proposal {
	o.Durability = e.durability(o.Durability)
	p := &proposal{e: e, to: to, options: o, batch: b, bytes: int64(b.Takes(e.opts.limits))}
	p.shares = p.few[:0]
	for _, op := range b.Ops() {
		if op.Kind == kv.KindRangeDelete {
			for i := range e.partitions {
				s := p.share(i)
				s.Ops = append(s.Ops, op)
			}
			continue
		}
		s := p.share(e.route(keyhash.Sum(op.Key)))
		s.Ops = append(s.Ops, op)
	}
	return p
}

// share returns the share of a partition, until another one is added.
func (p *proposal) share(partition int) *commit.Share {
	at := len(p.shares)
	for at > 0 && p.shares[at-1].Coordinator.ID() > partition {
		at--
	}
	if at == 0 || p.shares[at-1].Coordinator.ID() != partition {
		p.shares = slices.Insert(p.shares, at, commit.Share{Coordinator: p.to.coordinators[partition]})
		return &p.shares[at]
	}
	return &p.shares[at-1]
}

// read makes the proposal depend on a key that was read at a version: the key must not have
// been written since.
func (p *proposal) read(key []byte, at kv.SeqNum) {
	hash := keyhash.Sum(key)
	p.share(p.e.route(hash)).Reads.Read(partition.ReadKey{Key: key, Hash: hash}, at)
}

// readGuard makes the proposal depend on the read that a condition was evaluated on: the
// key must be neither written nor expired when the record is appended.
func (p *proposal) readGuard(found *kv.Lookup) {
	key := partition.ReadKey{Key: found.Key, Hash: found.Hash}
	r := &p.share(p.e.route(found.Hash)).Reads
	r.Read(key, found.ReadVersion)
	r.Expires(key, found.Expiry)
}

// readExpiring makes the proposal depend on the keys that a transaction found with an
// expiry: none may have expired when the record is appended to the log. It reads them
// again, at the read version and ignoring expiry, to learn when they expire. A key that is
// no longer found expired and was dropped by a compaction, or was written since.
func (e *Engine) readExpiring(p *proposal, t *kv.Transaction) error {
	if len(t.Expiring) == 0 {
		return nil
	}
	found := make([]kv.Lookup, len(t.Expiring))
	reads := make([]*kv.Lookup, len(found))
	for i, key := range t.Expiring {
		found[i].Key, found[i].Want = key, kv.WantNone
		reads[i] = &found[i]
	}
	if err := e.prepare(reads); err != nil {
		return err
	}
	e.lookupAt(reads, t.ReadVersion, 0)
	for _, r := range reads {
		if r.Err != nil {
			return r.Err
		}
		if !r.Found {
			return &kv.ConflictError{Key: bytes.Clone(r.Key), Version: t.ReadVersion}
		}
		p.readGuard(r)
	}
	return nil
}

// scanned makes the proposal depend on ranges that were read at a version.
func (p *proposal) scanned(ranges []kv.Range, at kv.SeqNum) {
	if len(ranges) == 0 {
		return
	}
	for i := range p.e.partitions {
		p.share(i).Reads.Scanned(ranges, at)
	}
}

// forget removes the reads of the proposal.
func (p *proposal) forget() {
	for i := range p.shares {
		p.shares[i].Reads = partition.Reads{}
	}
	p.shares = slices.DeleteFunc(p.shares, func(s commit.Share) bool { return len(s.Ops) == 0 })
}

// lead returns the coordinator that remembers the request id of the batch: that of the first
// partition it writes to.
func (p *proposal) lead() *commit.Coordinator {
	for i := range p.shares {
		if len(p.shares[i].Ops) > 0 {
			return p.shares[i].Coordinator
		}
	}
	panic("engine: a batch without operations")
}

// ofOneKey reports whether the batch writes one key and depends on no other.
func (p *proposal) ofOneKey() bool {
	if len(p.shares) != 1 || len(p.shares[0].Ops) != 1 || len(p.shares[0].Reads.Ranges) > 0 {
		return false
	}
	s := &p.shares[0]
	return !slices.ContainsFunc(s.Reads.Keys, func(k partition.ReadKey) bool { return !bytes.Equal(k.Key, s.Ops[0].Key) })
}

// commit applies the batch if nothing that it depends on has changed. A batch of one key goes the
// way of plain writes. The errors are those of commit.Propose and of await.
func (e *Engine) commit(ctx context.Context, p *proposal, watch *stopwatch) (kv.SeqNum, error) {
	if p.ofOneKey() {
		return e.applyWithin(ctx, p.to, p.shares[0].Coordinator.ID(), p.batch, &p.shares[0].Reads, p.options, watch)
	}
	c, err := e.propose(ctx, p)
	if err != nil {
		return 0, err
	}
	return e.await(ctx, p.to, c, p.options, watch)
}

// propose proposes p once there is room in memory and in the log.
func (e *Engine) propose(ctx context.Context, p *proposal) (*commit.Commit, error) {
	for {
		if err := e.across.take(ctx, p.bytes); err != nil {
			return nil, err
		}
		p.whole = commit.Proposal{
			Shares: p.shares, Durability: p.options.Durability, RequestID: p.options.RequestID, Timed: p.options.Stages != nil,
			Settled: p.settled,
		}
		c, err := commit.Propose(&p.whole)
		if !errors.Is(err, wal.ErrNoRoomYet) {
			return c, err
		}
		if err := p.to.log.AwaitRoom(ctx); err != nil {
			return nil, err
		}
	}
}

// settled gives back what propose has taken.
func (p *proposal) settled() { p.e.across.release(p.bytes) }

// await waits for a commit and returns its outcome.
func (e *Engine) await(ctx context.Context, to *writers, c *commit.Commit, o kv.WriteOptions, watch *stopwatch) (kv.SeqNum, error) {
	select {
	case <-c.Done():
	case <-ctx.Done():
		watch.addTrace(c.Trace(), false)
		return 0, fmt.Errorf("%w: %w", kv.ErrUncertain, ctx.Err())
	}
	version, err := c.Result()
	watch.addTrace(c.Trace(), err == nil)
	if err == nil && c.Deduplicated() {
		if err := e.awaitAttempt(ctx, to, version, e.durability(o.Durability)); err != nil {
			return 0, err
		}
	}
	o.Note(err == nil && c.Deduplicated())
	return version, err
}

// awaitAttempt returns once an earlier attempt, which was applied or is in the log, is visible
// and has the durability given. The error is kv.ErrUncertain.
func (e *Engine) awaitAttempt(ctx context.Context, to *writers, version kv.SeqNum, level kv.Durability) error {
	if err := e.waitVisible(ctx, to, version); err != nil {
		return fmt.Errorf("%w: %w", kv.ErrUncertain, err)
	}
	return commit.AwaitDurable(ctx, to.log, level)
}
