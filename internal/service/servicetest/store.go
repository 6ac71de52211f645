// Package servicetest has a store in memory for the tests of the service and of its clients:
// a small and slow model of the engine, with every version of every key in one map, under
// one lock, and a clock that the test moves.
package servicetest

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
)

// Store keeps service.Store's obligations. Its hooks let a test stand in the way.
// Safe for concurrent use.
type Store struct {
	// The hooks run before each call is served, outside the lock: OnLookup for
	// Lookup and LookupAt, OnWrite for Write, OnApply for Apply, Commit and Execute
	// (with the batch for the case that the guards hold), OnSnapshot for
	// BeginSnapshot. An error of theirs is the error of the call. Set them before the
	// store is used.
	//
	// One that is kv.ErrUncertain stands for an answer that was lost: what the call
	// asks for is done all the same.
	OnLookup   func(ctx context.Context, reads []*kv.Lookup) error
	OnWrite    func(ctx context.Context, writes []*kv.Write) error
	OnApply    func(ctx context.Context, b *kv.WriteBatch) error
	OnSnapshot func(ctx context.Context) error
	// OnCached says whether memory has the answer to a key: only the other ones are for
	// Lookup. Without it memory has all, or nothing if there is an OnLookup.
	OnCached func(key []byte) bool
	// OnScan runs before each item of a scan.
	OnScan func(ctx context.Context, item *kv.Item) error

	limits kv.Limits
	mu     struct {
		sync.Mutex
		keys    map[string][]kv.Entry // puts and deletes, oldest first
		version kv.SeqNum
		now     uint64

		snapshots map[uint64]snapshot
		lastID    uint64

		names     map[name]outcome
		forgotten kv.SeqNum // names of writes up to here are
	}
}

var _ service.Store = (*Store)(nil)

// New returns an empty store. Its clock stands still but for Advance.
func New(l kv.Limits) *Store {
	s := &Store{limits: l}
	s.mu.keys = make(map[string][]kv.Entry)
	s.mu.snapshots = make(map[uint64]snapshot)
	s.mu.names = make(map[name]outcome)
	s.mu.now = uint64(time.Now().UnixMilli())
	return s
}

// Limits implements service.Store.
func (s *Store) Limits() kv.Limits { return s.limits }

// Now implements service.Store.
func (s *Store) Now() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.now
}

// Advance moves the clock.
func (s *Store) Advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.now += uint64(d.Milliseconds())
}

// Len returns the number of keys.
func (s *Store) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.rangeLocked(kv.Range{}, s.newestLocked()))
}

// answerLost is how a hook asks for a call that is served but not answered.
func answerLost(err error) bool { return errors.Is(err, kv.ErrUncertain) }

// view is what a read sees: versions up to at, of which what has expired by now is
// none.
type view struct {
	at  kv.SeqNum
	now uint64
}

func (s *Store) newestLocked() view { return view{s.mu.version, s.mu.now} }

// findLocked returns the version of a key that a view shows.
func (s *Store) findLocked(key []byte, v view) (e kv.Entry, found bool) {
	for _, candidate := range s.mu.keys[string(key)] {
		if candidate.Seq <= v.at {
			e = candidate
		}
	}
	expired := e.Expiry != 0 && e.Expiry <= v.now
	return e, e.Kind == kv.KindPut && !expired
}

// rangeLocked returns the items of a range in no order.
func (s *Store) rangeLocked(r kv.Range, v view) (items []kv.Item) {
	for key := range s.mu.keys {
		if !r.Contains([]byte(key)) {
			continue
		}
		if e, found := s.findLocked([]byte(key), v); found {
			items = append(items, kv.Item{Key: []byte(key), Value: e.Value, Version: e.Seq, Expiry: e.Expiry})
		}
	}
	return items
}

// addLocked adds a version that has the store's newest number.
func (s *Store) addLocked(op *kv.Op) {
	if op.Kind == kv.KindRangeDelete {
		for _, item := range s.rangeLocked(kv.Range{Start: op.Key, End: op.Value}, s.newestLocked()) {
			s.addLocked(&kv.Op{Kind: kv.KindDelete, Key: item.Key})
		}
		return
	}
	versions := s.mu.keys[string(op.Key)]
	if n := len(versions); n > 0 && versions[n-1].Seq == s.mu.version {
		versions = versions[:n-1] // the last operation of a batch on a key wins
	}
	s.mu.keys[string(op.Key)] = append(versions, kv.Entry{
		Kind: op.Kind, Value: bytes.Clone(op.Value), Seq: s.mu.version, Expiry: op.Expiry,
	})
}
