package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/kvd-db/kvd/internal/commit"
	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/partition"
	"github.com/kvd-db/kvd/internal/trace"
	"github.com/kvd-db/kvd/internal/vfs"
)

// Put sets key to value and returns the version of the write.
//
// The slices are not kept. Errors: kv.ErrInvalidArgument or kv.ErrTooLarge for
// what can never be stored; kv.ErrOverloaded, kv.ErrReadOnly, kv.ErrClosed,
// kv.ErrFailed or the error of ctx if nothing was written; kv.ErrUncertain if ctx
// ended, or the log failed, while the write was under way.
func (e *Engine) Put(ctx context.Context, key, value []byte, o kv.WriteOptions) (kv.SeqNum, error) {
	return e.writeOne(ctx, kv.Op{Kind: kv.KindPut, Key: key, Value: value}, o)
}

// Delete removes key and returns the version of the write. It does not report whether the
// key was present. Otherwise as Put.
func (e *Engine) Delete(ctx context.Context, key []byte, o kv.WriteOptions) (kv.SeqNum, error) {
	return e.writeOne(ctx, kv.Op{Kind: kv.KindDelete, Key: key}, o)
}

// DeleteRange removes every key of a range, at the cost of one small write in each
// partition. An empty end is the end of the keyspace; a range that holds no key deletes
// nothing. Otherwise as Put.
func (e *Engine) DeleteRange(ctx context.Context, r kv.Range, o kv.WriteOptions) (kv.SeqNum, error) {
	var b kv.WriteBatch
	b.DeleteRange(r.Start, r.End)
	return e.Apply(ctx, &b, o)
}

func (e *Engine) writeOne(ctx context.Context, op kv.Op, o kv.WriteOptions) (kv.SeqNum, error) {
	defer e.events.Guard()
	to, err := e.writable(op.Kind != kv.KindPut)
	if err != nil {
		return 0, err
	}
	watch := startWatch(o.Stages)
	s := e.singles.Get().(*single)
	s.write = kv.Write{Op: op, Durability: o.Durability, RequestID: o.RequestID}
	if e.prepareWrite(&s.write); s.write.Err != nil {
		return 0, s.write.Err
	}
	size := op.Size()
	if err := e.admit(ctx, size); err != nil {
		watch.stop()
		return 0, err
	}
	defer e.leave(size)
	s.call.Reset(1)
	s.groups[0].Reset(to.coordinators[e.route(s.write.Hash)], s.call, s.writes[:])
	if watch.on() {
		s.groups[0].Time()
	}
	commit.Submit(ctx, s.groups[:])
	if ctx.Done() == nil {
		<-s.call.Done() // costs half of a select
	} else {
		select {
		case <-s.call.Done():
		case <-ctx.Done():
			watch.addTrace(s.groups[0].Abandon(ctx.Err()), false)
			watch.stop()
			to.makeDurable(ctx, s.writes[:]) // it may have been decided at the same moment
			return s.write.Version, s.write.Err
		}
	}
	watch.addTrace(s.call.Trace())
	watch.stop()
	to.makeDurable(ctx, s.writes[:])
	version, err := s.write.Version, s.write.Err
	s.write = kv.Write{}
	e.singles.Put(s)
	return version, err
}

// single is the only write of a call, with the memory that the call needs. It is reused
// after the call, unless the caller gave up: the leader may then still hold the group.
type single struct {
	write  kv.Write
	writes [1]*kv.Write
	call   *commit.Call
	groups [1]*commit.WriteGroup
}

func newSingle() any {
	s := &single{call: commit.NewCall(1)}
	s.writes[0], s.groups[0] = &s.write, new(commit.WriteGroup)
	return s
}

// prepareWrite checks a write and fills in what the engine adds to it, or sets its error.
func (e *Engine) prepareWrite(w *kv.Write) {
	w.Version, w.Deduplicated, w.Err, w.Read = 0, false, e.checkWrite(w), nil
	w.Hash = keyhash.Sum(w.Op.Key)
	w.Durability = e.durability(w.Durability)
	if w.RequestID.Named() {
		w.RequestID.Content = keyhash.ContentOne(&w.Op, w.Hash)
	}
}

// identify adds a hash of the content to the request id of a batch, if it has one.
func identify(o *kv.WriteOptions, b *kv.WriteBatch) {
	if o.RequestID.Named() {
		o.RequestID.Content = keyhash.Content(b.Ops())
	}
}

// Write applies independent writes, each atomic and acknowledged by itself, and returns
// when all are decided or ctx has ended. (If the log is idle, the caller itself may write
// and sync it, and then notices the end of ctx only afterwards: see
// [wal.Log.FlushOrSync].) Each write has its own result. Write itself fails only if no
// write was tried, for example with kv.ErrTooLarge: a call may have at most kv.MaxBatchOps
// writes and kv.MaxBatchBytes bytes, which are the limits of the largest batch too.
//
// Writes of one call on the same key happen in their order, except that writes which
// depend on what the key holds (kv.Write.If and Previous) are concurrent with the others.
// The slices are borrowed until Write returns. Errors are those of Put, and a
// *kv.ConditionError.
func (e *Engine) Write(ctx context.Context, writes []*kv.Write) error {
	defer e.events.Guard()
	to, err := e.writable(deletesAmong(writes))
	if err != nil {
		return err
	}
	if len(writes) > kv.MaxBatchOps {
		return fmt.Errorf("%w: a call of %d writes, limit is %d; split it into several calls", kv.ErrTooLarge, len(writes), kv.MaxBatchOps)
	}
	watch := writeWatch(writes)
	defer watch.stop()
	size := 0
	var guarded []*kv.Write
	for _, w := range writes {
		e.prepareWrite(w)
		if w.Err == nil && w.Op.Kind == kv.KindPut && e.readOnly.Load() {
			w.Err = e.readOnlyError()
		}
		size += w.Op.Size()
		if conditional(w) && w.Err == nil {
			guarded = append(guarded, w)
		}
	}
	if size > kv.MaxBatchBytes {
		return fmt.Errorf("%w: a call whose writes have %d bytes, limit is %d; split it into several calls", kv.ErrTooLarge, size, kv.MaxBatchBytes)
	}
	if err := e.admit(ctx, size); err != nil {
		return err
	}
	defer e.leave(size)
	switch {
	case len(guarded) == 0:
		e.submit(ctx, to, writes, &watch)
	case len(guarded) == len(writes):
		e.writeConditional(ctx, to, guarded, &watch)
	default:
		plain := slices.DeleteFunc(slices.Clone(writes), conditional)
		e.writeBoth(ctx, to, plain, guarded, &watch)
	}
	return nil
}

// deletesAmong reports whether any of the writes deletes: a read-only store accepts those
// while its disk is full.
func deletesAmong(writes []*kv.Write) bool {
	return slices.ContainsFunc(writes, func(w *kv.Write) bool { return w.Op.Kind != kv.KindPut })
}

// writeBoth performs plain and conditional writes concurrently: the plain ones do not wait for
// what the conditions read.
func (e *Engine) writeBoth(ctx context.Context, to *writers, plain, guarded []*kv.Write, watch *stopwatch) {
	other := watch.fork()
	var done sync.WaitGroup
	done.Go(func() {
		defer e.events.Guard()
		e.submit(ctx, to, plain, &other)
		other.stop()
	})
	e.writeConditional(ctx, to, guarded, watch)
	watch.stop()
	done.Wait()
	watch.join(&other)
}

// submit hands the valid ones of some writes to their partitions, and returns when they are
// decided or ctx has ended.
func (e *Engine) submit(ctx context.Context, to *writers, writes []*kv.Write, watch *stopwatch) {
	shares := e.shareWrites(writes)
	if len(shares) == 0 {
		return
	}
	call := commit.NewCall(len(shares))
	groups := make([]*commit.WriteGroup, len(shares))
	for i, s := range shares {
		groups[i] = to.coordinators[s.partition].NewWriteGroup(call, s.writes)
		if watch.on() {
			groups[i].Time()
		}
	}
	commit.Submit(ctx, groups)
	select {
	case <-call.Done():
		watch.addTrace(call.Trace())
	case <-ctx.Done():
		var late *trace.Batch // of a group that is not decided yet
		for _, g := range groups {
			if c := g.Abandon(ctx.Err()); c != nil {
				late = c
			}
		}
		watch.addTrace(late, false)
	}
	for _, s := range shares { // also if ctx has ended: groups may have been decided at the same moment, or before
		to.makeDurable(ctx, s.writes)
	}
}

// writeShare is the writes of one call that go to one partition.
type writeShare struct {
	partition int
	writes    []*kv.Write
}

// shareWrites groups the valid writes by partition and keeps their order.
func (e *Engine) shareWrites(writes []*kv.Write) []writeShare {
	if len(writes) == 1 {
		if writes[0].Err != nil {
			return nil
		}
		return []writeShare{{partition: e.route(writes[0].Hash), writes: writes}}
	}
	next := make([]int, len(e.partitions)) // first the count of each, then where its next write goes
	each := func(f func(p int, w *kv.Write)) {
		for _, w := range writes {
			if w.Err == nil {
				f(e.route(w.Hash), w)
			}
		}
	}
	each(func(p int, _ *kv.Write) { next[p]++ })
	var shares []writeShare
	sorted := make([]*kv.Write, len(writes))
	first := 0
	for p, n := range next {
		if n > 0 {
			shares = append(shares, writeShare{partition: p, writes: sorted[first : first+n]})
		}
		first, next[p] = first+n, first
	}
	each(func(p int, w *kv.Write) {
		sorted[next[p]] = w
		next[p]++
	})
	return shares
}

// Apply commits an atomic batch: all of its operations happen, at one version,
// or none. Of several operations on one key only the last one counts; the others are
// removed from the batch. If the batch has guards, all must hold in the state before it.
// Its slices are borrowed until Apply returns.
//
// Errors: as Put, and a *kv.ConditionError.
func (e *Engine) Apply(ctx context.Context, b *kv.WriteBatch, o kv.WriteOptions) (kv.SeqNum, error) {
	defer e.events.Guard()
	to, err := e.writable(onlyDeletes(b.Ops()))
	if err != nil {
		return 0, err
	}
	if err := errors.Join(b.Check(e.opts.limits), checkDurability(o.Durability), e.checkOps(b)); err != nil {
		return 0, err
	}
	watch := startWatch(o.Stages)
	defer watch.stop()
	size := b.Takes(e.opts.limits)
	if err := e.admit(ctx, size); err != nil {
		return 0, err
	}
	defer e.leave(size)
	identify(&o, b)
	b.Normalize(e.opts.limits)
	if len(b.Guards()) > 0 {
		return e.applyConditional(ctx, to, b, o, &watch)
	}
	if home, ok := e.homeOf(b.Ops()); ok {
		return e.applyWithin(ctx, to, home, b, nil, o, &watch)
	}
	return e.commit(ctx, e.newProposal(to, b, o), &watch)
}

// homeOf returns the partition of all operations, if there is one.
func (e *Engine) homeOf(ops []kv.Op) (home int, ok bool) {
	home = e.route(keyhash.Sum(ops[0].Key))
	for i := range ops {
		if ops[i].Kind == kv.KindRangeDelete && len(e.partitions) > 1 || e.route(keyhash.Sum(ops[i].Key)) != home {
			return 0, false
		}
	}
	return home, true
}

// applyWithin commits a batch all of whose keys are in one partition as a write group. For reads see
// commit.NewBatchGroup.
func (e *Engine) applyWithin(ctx context.Context, to *writers, home int, b *kv.WriteBatch, reads *partition.Reads, o kv.WriteOptions, watch *stopwatch) (kv.SeqNum, error) {
	call := commit.NewCall(1)
	g := to.coordinators[home].NewBatchGroup(call, b, reads, e.durability(o.Durability), o.RequestID)
	if watch.on() {
		g.Time()
	}
	commit.Submit(ctx, []*commit.WriteGroup{g})
	select {
	case <-call.Done():
		watch.addTrace(call.Trace())
	case <-ctx.Done():
		watch.addTrace(g.Abandon(ctx.Err()), false)
	}
	version, err := g.Result()
	if g.Deduplicated() {
		err = commit.AwaitDurable(ctx, to.log, e.durability(o.Durability))
	}
	o.Note(g.Deduplicated() && err == nil)
	return version, err
}

// checkWrite returns why a write is invalid, or nil.
func (e *Engine) checkWrite(w *kv.Write) error {
	if w.Op.Kind == kv.KindRangeDelete {
		return fmt.Errorf("%w: a write deletes a range, which lies in all partitions: use a batch", kv.ErrInvalidArgument)
	}
	if w.If != nil {
		if err := w.If.Check(e.opts.limits); err != nil {
			return err
		}
	}
	return errors.Join(e.checkOp(&w.Op), w.Op.Check(e.opts.limits), checkDurability(w.Durability))
}

// checkOps returns why the operations of a batch are invalid, or nil.
func (e *Engine) checkOps(b *kv.WriteBatch) error {
	for i := range b.Ops() {
		if err := e.checkOp(&b.Ops()[i]); err != nil {
			return err
		}
	}
	return nil
}

func (e *Engine) checkOp(op *kv.Op) error {
	switch {
	case op.Expiry == 0:
		return nil
	case op.Kind != kv.KindPut:
		return fmt.Errorf("%w: %s with an expiry", kv.ErrInvalidArgument, op.Kind)
	}
	if e.member != nil {
		return e.member.useTime()
	}
	err := e.clock.use()
	if vfs.CannotWrite(err) {
		e.spaceRefused(err)
		return e.readOnlyError()
	}
	return err
}

func (e *Engine) durability(d kv.Durability) kv.Durability {
	if e.member != nil {
		return kv.DurabilitySync // what is acknowledged is on the disks of a majority
	}
	if d == kv.DurabilityDefault {
		return e.opts.Durability
	}
	return d
}

func checkDurability(d kv.Durability) error {
	if !d.Valid() {
		return fmt.Errorf("%w: %s", kv.ErrInvalidArgument, d)
	}
	return nil
}

// route returns the partition of a hash.
func (e *Engine) route(hash uint64) int { return keyhash.Partition(hash, len(e.partitions)) }
