package embed

import (
	"bytes"
	"context"
	"sync"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/trace"
	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
)

// oneRead is the scratch memory of one Get. Its lookup is zero but for a Get under way.
type oneRead struct {
	lookup kv.Lookup
	list   [1]*kv.Lookup // of lookup
	stages trace.Stages
}

var oneReads = sync.Pool{New: func() any {
	r := new(oneRead)
	r.list[0] = &r.lookup
	return r
}}

// Get implements backend.Backend.
func (l *local) Get(ctx context.Context, key []byte, at backend.ReadVersion, t *backend.Timings) (backend.Value, error) {
	version, err := l.version(at)
	if err != nil {
		return backend.Value{}, err
	}
	r := oneReads.Get().(*oneRead)
	r.lookup.Key = key
	if t != nil {
		r.stages = trace.Stages{}
		r.lookup.Stages = &r.stages
	}
	if version == 0 {
		err = l.engine.Lookup(ctx, r.list[:])
	} else {
		_, err = l.engine.LookupAt(ctx, r.list[:], version)
	}
	tell(t, &r.stages)
	v, err := l.value(&r.lookup, err)
	r.lookup = kv.Lookup{}
	oneReads.Put(r)
	return v, err
}

// value is what a lookup found. It is handed over.
func (l *local) value(r *kv.Lookup, err error) (backend.Value, error) {
	switch {
	case err != nil:
		return backend.Value{}, failure(err)
	case r.Err != nil:
		return backend.Value{}, failure(r.Err)
	case !r.Found:
		return backend.Value{}, absent
	}
	return l.valueOf(r), nil
}

// valueOf is what a lookup found, which must have found something.
func (l *local) valueOf(r *kv.Lookup) backend.Value {
	if r.Value == nil {
		r.Value = []byte{} // it is there
	}
	return backend.Value{Bytes: r.Value, Version: uint64(r.Version), TTL: l.ttlOf(r.Expiry)}
}

// manyReads is the scratch memory of one GetMany. Of what serves again, the lookups are zero but
// for the memory of their values.
type manyReads struct {
	lookups []kv.Lookup
	list    []*kv.Lookup // of lookups
	budget  *kv.ReadBudget
	stages  trace.Stages
}

var manyReadsPool = sync.Pool{New: func() any { return &manyReads{budget: kv.NewReadBudget(0)} }}

const (
	// maxKeptReads is how many lookups scratch memory has at most that serves again.
	maxKeptReads = 256
	// maxKeptValue is how many bytes the memory of a value has at most that serves again. A
	// larger value is handed over to the caller; smaller ones are copied, into one piece of
	// memory: one allocation costs less than one for each.
	maxKeptValue = 512
)

// takeReads returns n lookups without keys.
func takeReads(n int) *manyReads {
	m := manyReadsPool.Get().(*manyReads)
	if n > cap(m.lookups) {
		m.lookups, m.list = make([]kv.Lookup, n), make([]*kv.Lookup, n)
		for i := range m.lookups {
			m.list[i] = &m.lookups[i]
		}
	}
	m.lookups, m.list = m.lookups[:n], m.list[:n]
	return m
}

// release takes the lookups back.
func (m *manyReads) release() {
	if cap(m.lookups) > maxKeptReads {
		return
	}
	for i := range m.lookups {
		value := m.lookups[i].Value
		m.lookups[i] = kv.Lookup{}
		if cap(value) <= maxKeptValue {
			m.lookups[i].Value = value
		}
	}
	m.stages = trace.Stages{}
	manyReadsPool.Put(m)
}

// tell calls found for each lookup, with a value that the caller owns.
func (m *manyReads) tell(l *local, found func(int, backend.Value, bool)) {
	small := 0
	for i := range m.lookups {
		if v := m.lookups[i].Value; cap(v) <= maxKeptValue {
			small += len(v)
		}
	}
	var copies arena
	copies.expect(small)
	for i := range m.lookups {
		r := &m.lookups[i]
		if !r.Found {
			found(i, backend.Value{}, false)
			continue
		}
		v := l.valueOf(r)
		if cap(r.Value) <= maxKeptValue {
			_, v.Bytes = copies.clone(nil, r.Value)
		}
		found(i, v, true)
	}
}

// GetMany implements backend.Backend. It has the limits of a batch, as a server has.
func (l *local) GetMany(ctx context.Context, keys [][]byte, at backend.ReadVersion, t *backend.Timings, found func(int, backend.Value, bool)) error {
	if len(keys) > l.limits.BatchOps {
		return tooLargef("%d keys, limit is %d", len(keys), l.limits.BatchOps)
	}
	version, err := l.version(at)
	if err != nil {
		return err
	}
	limit := max(l.limits.BatchBytes, l.limits.ValueBytes)
	m := takeReads(len(keys))
	defer m.release()
	m.budget.Reset(limit)
	lookups := m.lookups
	for i, key := range keys {
		lookups[i].Key, lookups[i].Budget = key, m.budget
	}
	if t != nil && len(lookups) > 0 {
		lookups[0].Stages = &m.stages
	}
	_, err = l.engine.LookupAt(ctx, m.list, version)
	tell(t, &m.stages)
	switch {
	case err != nil:
		return failure(err)
	case m.budget.Spent():
		return tooLargef("the answer has more than %d bytes; ask for fewer keys", limit)
	}
	for i := range lookups {
		if lookups[i].Err != nil {
			return failure(lookups[i].Err)
		}
	}
	m.tell(l, found)
	return nil
}

// Scan implements backend.Backend.
func (l *local) Scan(ctx context.Context, s *backend.Scan, yield func(backend.Item) bool) (err error) {
	at, err := l.version(s.At)
	if err != nil {
		return err
	}
	r := kv.Range(s.Range)
	if len(r.End) > 0 && bytes.Compare(r.Start, r.End) > 0 {
		return invalidf("the range ends before it starts")
	}
	if err := l.limits.CheckRange(r); err != nil {
		return failure(err)
	}
	scanner, err := l.engine.Scan(ctx, r, kv.ScanOptions{KeysOnly: s.KeysOnly, Limit: s.Limit, Reverse: s.Reverse, At: at})
	if err != nil {
		return failure(err)
	}
	defer func() {
		if closeErr := scanner.Close(); err == nil {
			err = failure(closeErr)
		}
	}()
	var copies arena
	for scanner.Next() {
		item := scanner.Item()
		given := backend.Item{Key: item.Key, Value: item.Value, Version: uint64(item.Version), TTL: l.ttlOf(item.Expiry)}
		if !s.Borrow {
			given.Key, given.Value = copies.clone(item.Key, item.Value)
		}
		if s.KeysOnly {
			given.Value = nil
		}
		if !yield(given) {
			return nil
		}
	}
	return failure(scanner.Err())
}
