package servicetest

import (
	"bytes"
	"context"
	"slices"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
)

// Lookup implements service.Store.
func (s *Store) Lookup(ctx context.Context, reads []*kv.Lookup) error {
	_, err := s.LookupAt(ctx, reads, 0)
	return err
}

// LookupCached implements service.Store: see OnCached.
func (s *Store) LookupCached(reads []*kv.Lookup) (left []*kv.Lookup, err error) {
	if s.OnLookup != nil && s.OnCached == nil {
		return reads, nil
	}
	var cached []*kv.Lookup
	for _, r := range reads {
		if s.OnCached == nil || s.OnCached(r.Key) {
			cached = append(cached, r)
		} else {
			left = append(left, r)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v, err := s.viewLocked(0)
	if err != nil {
		return nil, err
	}
	s.lookupLocked(cached, v)
	return append(reads[:0], left...), nil
}

// LookupCachedAt implements service.Store: see OnCached.
func (s *Store) LookupCachedAt(reads []*kv.Lookup, at kv.SeqNum) (kv.SeqNum, bool, error) {
	if s.OnLookup != nil && s.OnCached == nil {
		return 0, false, nil
	}
	for _, r := range reads {
		if s.OnCached != nil && !s.OnCached(r.Key) {
			return 0, false, nil
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v, err := s.viewLocked(at)
	if err != nil {
		return 0, false, err
	}
	s.lookupLocked(reads, v)
	return v.at, true, nil
}

// LookupAt implements service.Store.
func (s *Store) LookupAt(ctx context.Context, reads []*kv.Lookup, at kv.SeqNum) (kv.SeqNum, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if s.OnLookup != nil {
		if err := s.OnLookup(ctx, reads); err != nil {
			return 0, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v, err := s.viewLocked(at)
	if err != nil {
		return 0, err
	}
	s.lookupLocked(reads, v)
	return v.at, nil
}

func (s *Store) lookupLocked(reads []*kv.Lookup, v view) {
	for _, r := range reads {
		*r = kv.Lookup{Key: r.Key, Budget: r.Budget, ReadVersion: v.at}
		if r.Budget.Spent() {
			r.Err = kv.ErrBudgetSpent
			continue
		}
		e, found := s.findLocked(r.Key, v)
		if found && !r.Budget.Take(len(e.Value)) {
			r.Err = kv.ErrBudgetSpent
			continue
		}
		answer(r, &e, found)
	}
}

func answer(r *kv.Lookup, e *kv.Entry, found bool) {
	if found {
		r.Found, r.Version, r.Value, r.Expiry = true, e.Seq, bytes.Clone(e.Value), e.Expiry
	}
}

// Scan implements service.Store.
func (s *Store) Scan(ctx context.Context, r kv.Range, o kv.ScanOptions) (service.Scanner, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v, err := s.viewLocked(o.At)
	if err != nil {
		return nil, err
	}
	sc := &scanner{ctx: ctx, store: s, version: v.at, items: s.rangeLocked(r, v)}
	slices.SortFunc(sc.items, func(a, b kv.Item) int { return bytes.Compare(a.Key, b.Key) })
	if o.Reverse {
		slices.Reverse(sc.items)
	}
	if o.Limit > 0 && uint64(len(sc.items)) > o.Limit {
		sc.items = sc.items[:o.Limit]
	}
	if o.KeysOnly {
		for i := range sc.items {
			sc.items[i].Value = nil
		}
	}
	return sc, nil
}

type scanner struct {
	ctx     context.Context
	store   *Store
	version kv.SeqNum
	items   []kv.Item
	current kv.Item
	err     error
}

func (s *scanner) Next() bool {
	if s.err == nil {
		s.err = s.ctx.Err()
	}
	if s.err != nil || len(s.items) == 0 {
		return false
	}
	// A borrowed item is spoiled by the next, as an engine's would be.
	for i := range s.current.Key {
		s.current.Key[i] = 0xdd
	}
	s.current = s.items[0]
	s.current.Key = bytes.Clone(s.current.Key)
	s.items = s.items[1:]
	if s.store.OnScan != nil {
		s.err = s.store.OnScan(s.ctx, &s.current)
	}
	return s.err == nil
}

func (s *scanner) Item() *kv.Item     { return &s.current }
func (s *scanner) Version() kv.SeqNum { return s.version }
func (s *scanner) Err() error         { return s.err }
func (s *scanner) Close() error       { return nil }
