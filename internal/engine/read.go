package engine

import (
	"context"
	"slices"
	"sync"

	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/partition"
)

// Get returns the newest value of key that was acknowledged before the call, or
// a newer one.
//
// The caller owns the result, whose Key is key itself; key is not kept. Errors:
// kv.ErrNotFound if the key is absent, kv.ErrClosed, kv.ErrInvalidArgument for an
// empty key, the error of ctx if it ended before the read began, and a
// *kv.CorruptionError if a block that the read needs is damaged.
// Cost: no I/O if a memtable has the key; otherwise at most one block for each run whose
// filter admits the key, commonly one, and the value if it is separated, unless the cache
// has them.
func (e *Engine) Get(ctx context.Context, key []byte) (kv.Item, error) {
	one := oneReadPool.Get().(*oneRead)
	defer oneReadPool.Put(one)
	one.Lookup = kv.Lookup{Key: key}
	one.reads[0] = &one.Lookup
	err := e.Lookup(ctx, one.reads[:])
	l := one.Lookup
	one.Lookup = kv.Lookup{}
	switch {
	case err != nil:
		return kv.Item{}, err
	case l.Err != nil:
		return kv.Item{}, l.Err
	case !l.Found:
		return kv.Item{}, kv.ErrNotFound
	}
	return kv.Item{Key: key, Value: l.Value, Version: l.Version, Expiry: l.Expiry}, nil
}

// oneRead is the scratch memory of one Get.
type oneRead struct {
	kv.Lookup
	reads [1]*kv.Lookup
}

var oneReadPool = sync.Pool{New: func() any { return new(oneRead) }}

// Lookup answers independent reads of the newest state, each for itself: see
// kv.Lookup. If Lookup itself fails, for the reasons for which Get fails before it
// reads, no answer counts. The reads and their keys are borrowed until it returns.
// The memory of the values is not bounded unless the reads share a Budget.
func (e *Engine) Lookup(ctx context.Context, reads []*kv.Lookup) error {
	defer e.events.Guard()
	if e.closed.Load() {
		return kv.ErrClosed
	}
	if e.member != nil {
		if err := e.member.round(ctx, freshnessOf(reads)); err != nil {
			return err
		}
	}
	return e.lookupHere(ctx, reads)
}

// freshnessOf returns how new the state must be that all of the reads see.
func freshnessOf(reads []*kv.Lookup) (f kv.Freshness) {
	for i, r := range reads {
		if i == 0 {
			f = r.Fresh
		}
		f = f.And(r.Fresh)
	}
	return f
}

// lookupHere is Lookup of the state that this node shows. It is the newest of a cluster only if
// a round has been asked before, or if it is checked when a record is proposed.
func (e *Engine) lookupHere(ctx context.Context, reads []*kv.Lookup) error {
	watch := readWatch(reads)
	if err := e.prepare(reads); err != nil {
		return err
	}
	defer e.yield(len(reads))
	var err error
	if len(reads) == 1 {
		one := [1]partition.ReadShare{{Partition: e.partitions[e.route(reads[0].Hash)], Reads: reads}}
		err = e.lookupShares(ctx, one[:], &watch)
	} else {
		s := e.shareReads(reads)
		err = e.lookupShares(ctx, s.shares, &watch)
		s.release()
	}
	watch.stop()
	return err
}

// LookupCached answers, as Lookup does, those reads whose answers are in memory, and
// returns the others, in the memory of reads, for Lookup. It never waits, neither for the
// disk nor for other reads, so it answers none if Options.Reads.Linger is set. It does not
// yield the processor: a caller that calls it in a loop should.
func (e *Engine) LookupCached(reads []*kv.Lookup) (left []*kv.Lookup, err error) {
	defer e.events.Guard()
	if e.closed.Load() {
		return nil, kv.ErrClosed
	}
	if e.opts.Reads.Linger > 0 || e.member != nil { // a member asks its cluster first
		return reads, nil
	}
	watch := readWatch(reads)
	if err := e.prepare(reads); err != nil {
		return nil, err
	}
	s := e.shareReads(reads)
	defer s.release()
	watch.works()
	l := partition.BeginLookup(s.shares)
	defer l.End()
	l.Cached()
	left = reads[:0]
	for i := range s.shares {
		left = append(left, l.Left(i)...)
	}
	watch.stop()
	return left, nil
}

// lookupShares answers reads of several partitions, at one version of each: from memory, what
// memory has, and then the others in micro-batches.
func (e *Engine) lookupShares(ctx context.Context, shares []partition.ReadShare, watch *stopwatch) error {
	l := partition.BeginLookup(shares)
	defer l.End()
	if e.opts.Reads.Linger == 0 { // otherwise the reads of a partition wait for each other
		watch.works()
		if l.Cached() {
			return nil
		}
	}
	e.waiters.begin()
	defer e.waiters.end()
	for i := range shares {
		if len(l.Left(i)) == 0 {
			continue
		}
		watch.waits()
		times := watch.newTrace()
		err := l.Rest(ctx, i, times)
		watch.addTrace(times, err == nil)
		if err != nil {
			return err
		}
	}
	return nil
}

// LookupAt answers many reads at one version of all partitions, and returns it:
// that of a live snapshot, or, if at is zero, one that holds everything
// acknowledged before the call. Otherwise as Lookup.
//
// Errors, besides those of Lookup: kv.ErrVersionGone if no live snapshot has the
// version, or its lease ended meanwhile; the answers then mean nothing.
// Cost: with at zero it waits until everything acknowledged before the call is
// visible everywhere; under a load of sync writes that may take a sync.
func (e *Engine) LookupAt(ctx context.Context, reads []*kv.Lookup, at kv.SeqNum) (kv.SeqNum, error) {
	defer e.events.Guard()
	if e.closed.Load() {
		return 0, kv.ErrClosed
	}
	watch := readWatch(reads)
	defer watch.stop()
	if err := e.prepare(reads); err != nil {
		return 0, err
	}
	defer e.yield(len(reads))
	e.waiters.begin()
	defer e.waiters.end()
	if at == 0 {
		p, err := e.pin(ctx, freshnessOf(reads))
		if err != nil {
			return 0, err
		}
		defer e.sequencer.release(p)
		watch.works()
		e.lookupAt(reads, p.at, p.now)
		return p.at, nil
	}
	watch.works()
	now, err := e.snapshots.find(at)
	if err != nil {
		return 0, err
	}
	return at, e.lookupLeased(reads, at, now)
}

// LookupCachedAt is LookupAt if the answers to all reads, which share one budget, are in
// memory. Otherwise it reports false, no answer counts, and the budget is as before. It
// never waits, so it also reports false while an acknowledged write is not yet visible in
// all partitions.
func (e *Engine) LookupCachedAt(reads []*kv.Lookup, at kv.SeqNum) (_ kv.SeqNum, answered bool, err error) {
	defer e.events.Guard()
	if e.closed.Load() {
		return 0, false, kv.ErrClosed
	}
	watch := readWatch(reads)
	defer watch.stop()
	if err := e.prepare(reads); err != nil {
		return 0, false, err
	}
	watch.works()
	if at == 0 {
		if e.member != nil || e.sequencer.Visible() < e.acknowledged() {
			return 0, false, nil
		}
		p := e.sequencer.acquire()
		defer e.sequencer.release(p)
		return p.at, e.lookupCachedAt(reads, p.at, p.now), nil
	}
	now, err := e.snapshots.find(at)
	if err != nil || !e.lookupCachedAt(reads, at, now) {
		return 0, false, err
	}
	_, err = e.snapshots.find(at)
	return at, err == nil, err
}

// lookupCachedAt is lookupAt for LookupCachedAt.
func (e *Engine) lookupCachedAt(reads []*kv.Lookup, at kv.SeqNum, now uint64) bool {
	if len(reads) == 0 {
		return true
	}
	budget := reads[0].Budget
	mark := budget.Mark()
	s := e.shareReads(reads)
	defer s.release()
	l := partition.BeginLookupAt(s.shares, at, now)
	if l.Cached() {
		l.End()
		return true
	}
	l.Discard()
	budget.Rewind(mark)
	return false
}

// lookupLeased reads at a version that has had a lease until now. It checks the lease again
// after the reads, since the answers count only if it lasted that long: see snapshots.
func (e *Engine) lookupLeased(reads []*kv.Lookup, at kv.SeqNum, now uint64) error {
	e.lookupAt(reads, at, now)
	_, err := e.snapshots.find(at)
	return err
}

// lookupAt reads at a pinned version and its time.
func (e *Engine) lookupAt(reads []*kv.Lookup, at kv.SeqNum, now uint64) {
	s := e.shareReads(reads)
	defer s.release()
	partition.LookupAt(s.shares, at, now)
}

// prepare checks and hashes the keys.
func (e *Engine) prepare(reads []*kv.Lookup) error {
	for _, r := range reads {
		if err := e.opts.limits.CheckKey(r.Key); err != nil {
			return err
		}
		r.Hash = keyhash.Sum(r.Key)
	}
	return nil
}

// sharedReads are the reads of one call, by partition.
type sharedReads struct {
	reads  []*kv.Lookup
	ends   []int // for each partition, where its share of reads ends
	shares []partition.ReadShare
}

var sharedReadsPool = sync.Pool{New: func() any { return new(sharedReads) }}

// shareReads groups reads by partition, in linear time.
func (e *Engine) shareReads(reads []*kv.Lookup) *sharedReads {
	s := sharedReadsPool.Get().(*sharedReads)
	s.reads = slices.Grow(s.reads, len(reads))[:len(reads)]
	s.ends = slices.Grow(s.ends, len(e.partitions))[:len(e.partitions)]
	clear(s.ends)
	for _, r := range reads {
		s.ends[e.route(r.Hash)]++
	}
	end := 0
	for i, n := range s.ends {
		if n > 0 {
			s.shares = append(s.shares, partition.ReadShare{Partition: e.partitions[i], Reads: s.reads[end:][:n]})
		}
		s.ends[i], end = end, end+n
	}
	for _, r := range reads {
		i := &s.ends[e.route(r.Hash)]
		s.reads[*i] = r
		*i++
	}
	return s
}

// release gives the memory back.
func (s *sharedReads) release() {
	clear(s.reads)
	clear(s.shares)
	s.reads, s.shares = s.reads[:0], s.shares[:0]
	sharedReadsPool.Put(s)
}
