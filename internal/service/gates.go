package service

import (
	"context"
	"errors"

	"github.com/kvd-db/kvd/internal/admission"
	"github.com/kvd-db/kvd/internal/kv"
)

// Kind of work: each has a gate of its own, so that no read waits for writes.
type Kind int

const (
	// Reads is work that reads the store.
	Reads Kind = iota
	// Writes is work that writes to it, and all other work.
	Writes
	kindCount
)

const (
	// cachedReads is the gate of reads that find no room at that of reads. The store may
	// have their answers in memory, while those inside wait for the disk.
	cachedReads = kindCount
	gateCount   = kindCount + 1
)

var kindNames = [gateCount]string{"reads", "writes", "cached_reads"}

// gatedStore is a Store with admission. A call that is refused was not begun.
//
// Peers take turns at a gate, and the connections of a peer share its turns. The connections
// of this machine, which have one address, take turns of their own.
//
// A call is inside only while the store performs it, not while its answer is sent: a client
// that is slow to take its answer keeps no other client out. Scans go at the pace of their
// clients and snapshots cost nothing, so they need no admission.
//
// Reads that find the gate for reads full are first answered from memory, through a gate
// of their own. Only what memory does not have waits for room: so a disk that hangs, and
// keeps reads inside for as long, delays nothing that does not need it. Nothing waits inside
// the second gate, so it is full only if the processors are busy.
type gatedStore struct {
	Store
	limits kv.Limits
	gates  [gateCount]*admission.Gate
}

// waitingShare is what may wait at a gate, as a multiple of what may be inside. The
// bound protects memory: a call that waits too long is refused long before. Guessed.
const waitingShare = 8

// readKeyBytes is the most bytes of keys that the store is asked for at once: beyond
// what ReadOps keys have with the default limits. What they bring is bounded by
// readBytes.
const readKeyBytes = 64 << 20

// writeBytes is the most bytes that the store is given to write at once. Much, since
// writes wait for the disk together. Guessed.
const writeBytes = 64 << 20

func newGatedStore(store Store, o *Options) *gatedStore {
	gate := func(inside admission.Size) *admission.Gate {
		return admission.New(admission.Bounds{
			Inside:  inside,
			Waiting: admission.Size{Ops: waitingShare * inside.Ops, Bytes: waitingShare * inside.Bytes},
		})
	}
	return &gatedStore{store, store.Limits(), [gateCount]*admission.Gate{
		Reads:       gate(admission.Size{Ops: o.ReadOps, Bytes: readKeyBytes}),
		Writes:      gate(admission.Size{Ops: o.WriteOps, Bytes: writeBytes}),
		cachedReads: gate(admission.Size{Ops: o.ReadOps, Bytes: readKeyBytes}),
	}}
}

// enter waits at a gate. Unless it returns an error, the caller leaves the gate afterwards.
func (s *gatedStore) enter(ctx context.Context, k Kind, size admission.Size) error {
	if s.gates[k].TryEnter(size) {
		return nil
	}
	err := s.gates[k].Enter(ctx, &ConnOf(ctx).lines[k], size)
	if refused, ok := errors.AsType[*kv.OverloadError](err); ok {
		return overloaded(refused.Reason, refused.RetryAfter) // the gate has counted it
	}
	return err
}

// Lookup implements Reader.
func (s *gatedStore) Lookup(ctx context.Context, lookups []*kv.Lookup) error {
	size := sizeOfLookups(lookups)
	if !s.gates[Reads].TryEnter(size) {
		left, err := s.lookupCached(ctx, lookups, size)
		if err != nil || len(left) == 0 {
			return err
		}
		lookups, size = left, sizeOfLookups(left)
		if err := s.enter(ctx, Reads, size); err != nil {
			return err
		}
	}
	defer s.gates[Reads].Leave(size)
	return s.Store.Lookup(ctx, lookups)
}

// lookupCached has the store answer what it has in memory and returns the rest.
func (s *gatedStore) lookupCached(ctx context.Context, lookups []*kv.Lookup, size admission.Size) (left []*kv.Lookup, err error) {
	if err := s.enter(ctx, cachedReads, size); err != nil {
		return nil, err
	}
	defer s.gates[cachedReads].Leave(size)
	stages := lookups[0].Stages
	if left, err = s.Store.LookupCached(lookups); len(left) > 0 {
		left[0].Stages = stages
	}
	return left, err
}

// LookupCached implements Reader. Where there is no room it answers nothing.
func (s *gatedStore) LookupCached(lookups []*kv.Lookup) ([]*kv.Lookup, error) {
	size := sizeOfLookups(lookups)
	for _, k := range []Kind{Reads, cachedReads} {
		if s.gates[k].TryEnter(size) {
			defer s.gates[k].Leave(size)
			return s.Store.LookupCached(lookups)
		}
	}
	return lookups, nil
}

// LookupAt implements Reader.
func (s *gatedStore) LookupAt(ctx context.Context, lookups []*kv.Lookup, at kv.SeqNum) (kv.SeqNum, error) {
	size := sizeOfLookups(lookups)
	if !s.gates[Reads].TryEnter(size) {
		version, answered, err := s.lookupCachedAt(ctx, lookups, at, size)
		if err != nil || answered {
			return version, err
		}
		if err := s.enter(ctx, Reads, size); err != nil {
			return 0, err
		}
	}
	defer s.gates[Reads].Leave(size)
	return s.Store.LookupAt(ctx, lookups, at)
}

func (s *gatedStore) lookupCachedAt(ctx context.Context, lookups []*kv.Lookup, at kv.SeqNum, size admission.Size) (_ kv.SeqNum, answered bool, err error) {
	if err := s.enter(ctx, cachedReads, size); err != nil {
		return 0, false, err
	}
	defer s.gates[cachedReads].Leave(size)
	return s.Store.LookupCachedAt(lookups, at)
}

// LookupCachedAt implements Reader. Where there is no room it answers nothing.
func (s *gatedStore) LookupCachedAt(lookups []*kv.Lookup, at kv.SeqNum) (_ kv.SeqNum, answered bool, err error) {
	size := sizeOfLookups(lookups)
	for _, k := range []Kind{Reads, cachedReads} {
		if s.gates[k].TryEnter(size) {
			defer s.gates[k].Leave(size)
			return s.Store.LookupCachedAt(lookups, at)
		}
	}
	return 0, false, nil
}

func sizeOfLookups(lookups []*kv.Lookup) admission.Size {
	size := admission.Size{Ops: len(lookups)}
	for _, l := range lookups {
		size.Bytes += len(l.Key)
	}
	return size
}

// Write implements Writer.
func (s *gatedStore) Write(ctx context.Context, all []*kv.Write) error {
	size := admission.Size{Ops: len(all)}
	for _, w := range all {
		size.Bytes += len(w.Op.Key) + len(w.Op.Value)
	}
	if err := s.enter(ctx, Writes, size); err != nil {
		return err
	}
	defer s.gates[Writes].Leave(size)
	return s.Store.Write(ctx, all)
}

// Apply implements Writer.
func (s *gatedStore) Apply(ctx context.Context, b *kv.WriteBatch, o kv.WriteOptions) (kv.SeqNum, error) {
	size := admission.Size{Ops: b.Len(), Bytes: b.Takes(s.limits)}
	if err := s.enter(ctx, Writes, size); err != nil {
		return 0, err
	}
	defer s.gates[Writes].Leave(size)
	return s.Store.Apply(ctx, b, o)
}

// Commit implements Writer.
func (s *gatedStore) Commit(ctx context.Context, t *kv.Transaction, o kv.WriteOptions) (kv.SeqNum, error) {
	size := admission.Size{Ops: t.Batch.Len() + len(t.Keys) + len(t.Ranges), Bytes: t.Batch.Takes(s.limits)}
	if err := s.enter(ctx, Writes, size); err != nil {
		return 0, err
	}
	defer s.gates[Writes].Leave(size)
	return s.Store.Commit(ctx, t, o)
}

// Execute implements Writer.
func (s *gatedStore) Execute(ctx context.Context, guards []kv.Guard, then, otherwise *kv.WriteBatch, o kv.WriteOptions) (bool, kv.SeqNum, error) {
	size := admission.Size{Ops: len(guards) + then.Len() + otherwise.Len(), Bytes: then.Takes(s.limits) + otherwise.Takes(s.limits)}
	if err := s.enter(ctx, Writes, size); err != nil {
		return false, 0, err
	}
	defer s.gates[Writes].Leave(size)
	return s.Store.Execute(ctx, guards, then, otherwise, o)
}
