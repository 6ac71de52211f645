// Package servertest has a store in memory for the tests of those who speak to
// a server: honest, small and slow. It is not the engine.
package servertest

import (
	"bytes"
	"context"
	"slices"
	"sort"
	"sync"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/server"
)

// Store is a map that keeps server.Store's obligations. Its hooks let a test
// stand in the way. Safe for concurrent use.
type Store struct {
	// OnLookup and OnWrite run before each call is served, outside the lock. An
	// error of theirs is the error of the call. Set before the store is used.
	OnLookup func(ctx context.Context, reads []*kv.Lookup) error
	OnWrite  func(ctx context.Context, writes []*kv.Write) error
	// OnScan runs before each item of a scan.
	OnScan func(ctx context.Context, item *kv.Item) error

	limits kv.Limits
	mu     struct {
		sync.Mutex
		items   map[string]kv.Item
		version kv.SeqNum
	}
}

var _ server.Store = (*Store)(nil)

// New returns an empty store.
func New(l kv.Limits) *Store {
	s := &Store{limits: l}
	s.mu.items = make(map[string]kv.Item)
	return s
}

// Limits implements server.Store.
func (s *Store) Limits() kv.Limits { return s.limits }

// Len returns the number of keys.
func (s *Store) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.mu.items)
}

// Lookup implements server.Store.
func (s *Store) Lookup(ctx context.Context, reads []*kv.Lookup) error {
	if s.OnLookup != nil {
		if err := s.OnLookup(ctx, reads); err != nil {
			return err
		}
	}
	_, err := s.LookupAt(ctx, reads)
	return err
}

// LookupAt implements server.Store.
func (s *Store) LookupAt(ctx context.Context, reads []*kv.Lookup) (kv.SeqNum, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range reads {
		*r = kv.Lookup{Key: r.Key, Budget: r.Budget, ReadVersion: s.mu.version}
		if r.Budget.Spent() {
			r.Err = kv.ErrBudgetSpent
			continue
		}
		item, found := s.mu.items[string(r.Key)]
		if !found {
			continue
		}
		if !r.Budget.Take(len(item.Value)) {
			r.Err = kv.ErrBudgetSpent
			continue
		}
		r.Found, r.Version, r.Value = true, item.Version, bytes.Clone(item.Value)
	}
	return s.mu.version, nil
}

// Write implements server.Store.
func (s *Store) Write(ctx context.Context, writes []*kv.Write) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.OnWrite != nil {
		if err := s.OnWrite(ctx, writes); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range writes {
		if w.Err != nil {
			continue // a hook decided it
		}
		s.mu.version++
		w.Version = s.mu.version
		s.putLocked(&w.Op)
	}
	return nil
}

// Apply implements server.Store.
func (s *Store) Apply(ctx context.Context, b *kv.WriteBatch, _ kv.WriteOptions) (kv.SeqNum, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.version++
	for i := range b.Ops() {
		s.putLocked(&b.Ops()[i])
	}
	return s.mu.version, nil
}

func (s *Store) putLocked(op *kv.Op) {
	if op.Kind == kv.KindDelete {
		delete(s.mu.items, string(op.Key))
		return
	}
	s.mu.items[string(op.Key)] = kv.Item{Key: bytes.Clone(op.Key), Value: slices.Clone(op.Value), Version: s.mu.version}
}

// Scan implements server.Store.
func (s *Store) Scan(ctx context.Context, r kv.Range, o kv.ScanOptions) (server.Scanner, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sc := &scanner{ctx: ctx, store: s, version: s.mu.version}
	for key, item := range s.mu.items {
		if r.Contains([]byte(key)) {
			if o.KeysOnly {
				item.Value = nil
			}
			sc.items = append(sc.items, item)
		}
	}
	sort.Slice(sc.items, func(i, j int) bool { return bytes.Compare(sc.items[i].Key, sc.items[j].Key) < 0 })
	if o.Limit > 0 && uint64(len(sc.items)) > o.Limit {
		sc.items = sc.items[:o.Limit]
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
