package workload

import (
	"bytes"
	"context"
	"slices"
	"sort"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/loadgen"
)

// storeTarget is a correct store with scans, transactions and snapshots, unless a field
// injects a fault.
type storeTarget struct {
	mapTarget
	versions map[string]int // number of writes of each key

	lose     func() bool                           // a commit is acknowledged and not applied
	stale    func() bool                           // a commit is not validated: its reads precede another commit
	scanned  func(keys []string) []string          // changes the keys that a scan returns
	shared   bool                                  // snapshots are not copies
	conflict func()                                // called between the reads and the commit
	onGet    func(value []byte) ([]byte, bool)     // changes the result of a get
	onPut    func(key []byte) (forget bool)        // a put is acknowledged and not applied
	older    map[string][]byte                     // values before the last commit
	onScan   func(key, value []byte) (k, v []byte) // changes an item of a scan
}

func newStoreTarget() *storeTarget {
	return &storeTarget{mapTarget: *newMapTarget(), versions: make(map[string]int), older: make(map[string][]byte)}
}

func (s *storeTarget) Put(ctx context.Context, key, value []byte) error {
	if s.onPut != nil && s.onPut(key) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write(string(key), bytes.Clone(value))
	return nil
}

// write must be called with mu locked.
func (s *storeTarget) write(key string, value []byte) {
	s.older[key] = s.values[key]
	s.values[key] = value
	s.versions[key]++
}

func (s *storeTarget) Get(ctx context.Context, key, buf []byte) ([]byte, bool, error) {
	value, found, err := s.mapTarget.Get(ctx, key, buf)
	if s.onGet != nil && found {
		value, found = s.onGet(value)
	}
	return value, found, err
}

func (s *storeTarget) Scan(_ context.Context, start []byte, n int, visit func(key, value []byte) error) error {
	s.mu.Lock()
	var keys []string
	for key := range s.values {
		if key >= string(start) {
			keys = append(keys, key)
		}
	}
	sort.Strings(keys)
	keys = keys[:min(n, len(keys))]
	if s.scanned != nil {
		keys = s.scanned(keys)
	}
	values := make([][]byte, len(keys))
	for i, key := range keys {
		values[i] = s.values[key]
	}
	s.mu.Unlock()
	for i := range keys {
		key, value := []byte(keys[i]), values[i]
		if s.onScan != nil {
			key, value = s.onScan(key, value)
		}
		if err := visit(key, value); err != nil {
			return err
		}
	}
	return nil
}

func (s *storeTarget) Transact(ctx context.Context, body func(context.Context, Transaction) error) (int, error) {
	for conflicts := 0; ; conflicts++ {
		tx := &storeTransaction{store: s, read: make(map[string]int), stale: s.stale != nil && s.stale()}
		if err := body(ctx, tx); err != nil {
			return conflicts, err
		}
		if s.conflict != nil {
			s.conflict()
		}
		if tx.commit() {
			return conflicts, nil
		}
	}
}

// storeTransaction validates its reads by the versions.
type storeTransaction struct {
	store  *storeTarget
	read   map[string]int
	keys   []string
	values [][]byte
	stale  bool
}

func (t *storeTransaction) Get(_ context.Context, key []byte) ([]byte, bool, error) {
	t.store.mu.Lock()
	defer t.store.mu.Unlock()
	t.read[string(key)] = t.store.versions[string(key)]
	value, found := t.store.values[string(key)]
	if t.stale && t.store.older[string(key)] != nil {
		value = t.store.older[string(key)]
	}
	return bytes.Clone(value), found, nil
}

func (t *storeTransaction) Put(_ context.Context, key, value []byte) error {
	t.keys = append(t.keys, string(key))
	t.values = append(t.values, value)
	return nil
}

func (t *storeTransaction) commit() bool {
	s := t.store
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, version := range t.read {
		if s.versions[key] != version {
			return false
		}
	}
	if s.lose != nil && s.lose() {
		return true
	}
	for i, key := range t.keys {
		s.write(key, bytes.Clone(t.values[i]))
	}
	return true
}

func (s *storeTarget) TakeSnapshot(context.Context) (Snapshot, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	snapshot := newMapTarget()
	if s.shared {
		return &storeSnapshot{&s.mapTarget}, nil
	}
	for key, value := range s.values {
		snapshot.values[key] = value
	}
	return &storeSnapshot{snapshot}, nil
}

type storeSnapshot struct{ at *mapTarget }

func (s *storeSnapshot) Get(ctx context.Context, key []byte) ([]byte, bool, error) {
	return s.at.Get(ctx, key, nil)
}

func (s *storeSnapshot) Close() error { return nil }

// loaded returns a bench with records loaded into a target.
func loaded(t *testing.T, target Target, records uint64) *Bench {
	t.Helper()
	b, err := NewBench(target, Records{Count: records, ValueBytes: 64, Seed: 1})
	require.NoError(t, err)
	trial, err := b.Load(t.Context(), 3, time.Second, loadgen.Observer{})
	require.NoError(t, err)
	require.Equal(t, records, trial.Ops)
	require.Equal(t, records, trial.Operation("insert").Count)
	return b
}

func core(t *testing.T, name string) Core {
	t.Helper()
	c, err := ParseCore(name)
	require.NoError(t, err)
	return c
}

func operations(workers int, n uint64) loadgen.Span {
	return loadgen.Span{Workers: workers, Operations: n, Interval: time.Second}
}

func nothing(uint64, uint64) {}

// sorted returns the positions of the first n records in order.
func sorted(n uint64) []position {
	var all []position
	for id := range n {
		all = append(all, positionOf(id))
	}
	slices.Sort(all)
	return all
}
