package kvd

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A transaction behaves like a copy of a map: what it reads is what the map has,
// whatever it wrote before, in any order and direction, and committing it makes
// the store the map. All that it learned of the store is in its read set.
func TestATransactionBehavesLikeAMap(t *testing.T) {
	everyStore(t, func(t *testing.T, db *Client) {
		rapid.Check(t, func(r *rapid.T) {
			m := txnModel{db: db, ctx: context.Background()}
			m.start(r)
			defer m.tx.Discard()
			r.Repeat(map[string]func(*rapid.T){
				"put":          m.put,
				"delete":       m.delete,
				"delete range": m.deleteRange,
				"get":          m.get,
				"get many":     m.getMany,
				"scan":         m.scan,
			})
			m.commit(r)
		})
	})
}

type txnModel struct {
	db      *Client
	ctx     context.Context
	tx      *Txn
	model   map[string]string
	written map[string]bool // keys that the transaction decides itself
	learned map[string]bool // keys of which it learned what is stored
}

// A small universe, so that writes, ranges and scans meet.
var modelKeys = []string{"a", "aa", "ab", "b", "ba", "bb", "bc", "c", "ca", "cc", "d", "da"}

func modelKey(r *rapid.T) string { return rapid.SampledFrom(modelKeys).Draw(r, "key") }

func modelRange(r *rapid.T) Range {
	bounds := append([]string{""}, modelKeys...)
	draw := func(what string) []byte { return []byte(rapid.SampledFrom(bounds).Draw(r, what)) }
	start, end := draw("start"), draw("end")
	if len(end) > 0 && bytes.Compare(start, end) > 0 {
		start, end = end, start
	}
	return Between(start, end)
}

func (m *txnModel) start(r *rapid.T) {
	m.model, m.written, m.learned = make(map[string]string), make(map[string]bool), make(map[string]bool)
	b := new(Batch).DeleteRange(Between(nil, []byte("z")))
	for _, key := range rapid.SliceOfDistinct(rapid.SampledFrom(modelKeys), rapid.ID).Draw(r, "stored") {
		m.model[key] = "stored"
		b.Put([]byte(key), []byte("stored"))
	}
	_, err := m.db.Apply(m.ctx, b)
	require.NoError(r, err)
	m.tx, err = m.db.Begin()
	require.NoError(r, err)
}

func (m *txnModel) put(r *rapid.T) {
	key, value := modelKey(r), rapid.StringN(0, 3, 3).Draw(r, "value")
	k, v := []byte(key), []byte(value)
	require.NoError(r, m.tx.Put(m.ctx, k, v))
	clear(k) // what is kept is a copy
	clear(v)
	m.model[key], m.written[key] = value, true
}

func (m *txnModel) delete(r *rapid.T) {
	key := modelKey(r)
	require.NoError(r, m.tx.Delete(m.ctx, []byte(key)))
	delete(m.model, key)
	m.written[key] = true
}

func (m *txnModel) deleteRange(r *rapid.T) {
	deleted := modelRange(r)
	require.NoError(r, m.tx.DeleteRange(m.ctx, deleted))
	for _, key := range modelKeys {
		if deleted.contains([]byte(key)) {
			delete(m.model, key)
			m.written[key] = true
		}
	}
}

func (m *txnModel) learn(key string) {
	if !m.written[key] {
		m.learned[key] = true
	}
}

func (m *txnModel) check(r *rapid.T, l Lookup, key string) {
	want, there := m.model[key]
	require.Equal(r, there, l.Found, key)
	require.Equal(r, want, string(l.Value), key)
	require.Equal(r, there && !m.written[key], l.Version != 0, "what is not committed has no version")
	m.learn(key)
}

func (m *txnModel) get(r *rapid.T) {
	key := modelKey(r)
	item, err := m.tx.GetItem(m.ctx, []byte(key))
	if !errors.Is(err, ErrNotFound) {
		require.NoError(r, err)
		require.Equal(r, key, string(item.Key))
	}
	m.check(r, Lookup{Item: item, Found: err == nil}, key)
}

func (m *txnModel) getMany(r *rapid.T) {
	var keys [][]byte
	for _, key := range rapid.SliceOf(rapid.SampledFrom(modelKeys)).Draw(r, "keys") {
		keys = append(keys, []byte(key))
	}
	found, err := m.tx.GetMany(m.ctx, keys)
	require.NoError(r, err)
	require.Len(r, found, len(keys))
	for i, l := range found {
		require.Equal(r, keys[i], l.Key)
		m.check(r, l, string(keys[i]))
	}
}

func (m *txnModel) scan(r *rapid.T) {
	scanned := modelRange(r)
	reverse, keysOnly := rapid.Bool().Draw(r, "reverse"), rapid.Bool().Draw(r, "keys only")
	limit, leave := rapid.IntRange(0, 5).Draw(r, "limit"), rapid.IntRange(0, 5).Draw(r, "leave after")
	var want []string
	for _, key := range slices.Sorted(maps.Keys(m.model)) {
		if scanned.contains([]byte(key)) {
			want = append(want, key)
		}
	}
	if reverse {
		slices.Reverse(want)
	}
	whole := true
	for _, n := range []int{limit, leave} {
		if n > 0 && len(want) >= n {
			want, whole = want[:n], false
		}
	}
	opts := []ScanOption{Limit(limit)}
	if reverse {
		opts = append(opts, Reverse())
	}
	if keysOnly {
		opts = append(opts, KeysOnly())
	}

	before := maps.Clone(m.model)
	var got []string
	for item, err := range m.tx.Scan(m.ctx, scanned, opts...) {
		require.NoError(r, err)
		got = append(got, string(item.Key))
		if keysOnly {
			require.Empty(r, item.Value)
		} else {
			require.Equal(r, before[string(item.Key)], string(item.Value))
		}
		if len(got) == leave {
			break
		}
		if rapid.Bool().Draw(r, "write in the loop") {
			// The loop goes on over what it began with.
			defer func() { m.written[string(item.Key)] = true }()
			require.NoError(r, m.tx.Delete(m.ctx, item.Key))
			delete(m.model, string(item.Key))
		}
	}
	require.Equal(r, want, got)
	for _, key := range modelKeys {
		k := []byte(key)
		if !scanned.contains(k) || !whole && (len(got) == 0 || beyond(key, got[len(got)-1], reverse)) {
			continue
		}
		m.learn(key)
	}
}

// beyond reports whether a scan comes to key after last.
func beyond(key, last string, reverse bool) bool {
	if reverse {
		return key < last
	}
	return key > last
}

func (m *txnModel) commit(r *rapid.T) {
	keys, ranges := m.tx.reads.reads()
	for key := range m.learned {
		known := slices.ContainsFunc(keys, func(k []byte) bool { return string(k) == key })
		for _, r := range ranges {
			known = known || Between(r.Start, r.End).contains([]byte(key))
		}
		require.True(r, known, "%s was read, but the read set does not say so", key)
	}
	committed, err := m.tx.Commit(m.ctx)
	require.NoError(r, err)
	require.Equal(r, committed, m.tx.CommittedVersion())
	got := make(map[string]string)
	for item, err := range m.db.Scan(m.ctx, All()) {
		require.NoError(r, err)
		got[string(item.Key)] = string(item.Value)
	}
	require.Equal(r, m.model, got)
}
