package memtable

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// model is an obviously correct memtable: every entry, in the order of Add, and a
// linear search.
type model []kv.Entry

func (m *model) add(t *Table, e kv.Entry) {
	*m = append(*m, kv.Entry{
		Key: bytes.Clone(e.Key), Value: bytes.Clone(e.Value), Seq: e.Seq, Kind: e.Kind, Expiry: e.Expiry,
	})
	t.Add(keyhash.Sum(e.Key), &e)
}

func (m model) get(key []byte, at kv.SeqNum) (newest kv.Entry, ok bool) {
	for _, e := range m {
		if e.Kind != kv.KindRangeDelete && bytes.Equal(e.Key, key) && e.Seq <= at && e.Seq > newest.Seq {
			newest, ok = e, true
		}
	}
	return newest, ok
}

func (m model) rangeTombstones() []kv.Entry {
	return slices.DeleteFunc(slices.Clone(m), func(e kv.Entry) bool { return e.Kind != kv.KindRangeDelete })
}

// cover returns the number of the newest range tombstone up to at over key, 0 if there
// is none.
func (m model) cover(key []byte, at kv.SeqNum) (newest kv.SeqNum) {
	for _, e := range m.rangeTombstones() {
		if e.Seq <= at && (kv.Range{Start: e.Key, End: e.Value}).Contains(key) {
			newest = max(newest, e.Seq)
		}
	}
	return newest
}

// since returns the entries with larger numbers than seq in the order of Add.
func (m model) since(seq kv.SeqNum) []kv.Entry {
	return slices.DeleteFunc(slices.Clone(m), func(e kv.Entry) bool { return e.Seq <= seq })
}

// sorted returns the entries in the order of an iterator: that of kv.Compare,
// the latest first among equals.
func (m model) sorted() []kv.Entry {
	s := slices.Clone(m)
	slices.Reverse(s)
	slices.SortStableFunc(s, func(a, b kv.Entry) int { return kv.Compare(a.Key, a.Seq, b.Key, b.Seq) })
	return s
}

func put(key string, seq kv.SeqNum) kv.Entry {
	return kv.Entry{Key: []byte(key), Value: fmt.Appendf(nil, "%s@%d", key, seq), Seq: seq, Kind: kv.KindPut}
}

func del(key string, seq kv.SeqNum) kv.Entry {
	return kv.Entry{Key: []byte(key), Seq: seq, Kind: kv.KindDelete}
}

func get(t *Table, key string, at kv.SeqNum) (e kv.Entry, ok bool) {
	ok = t.Get(keyhash.Sum([]byte(key)), []byte(key), at, &e)
	return e, ok
}

// rest returns the current entry of the iterator and all that follow. The slices are
// the table's: nothing may overwrite them.
func rest(it kv.Iterator) []kv.Entry {
	var entries []kv.Entry
	for ; it.Valid(); it.Next() {
		entries = append(entries, *it.Entry())
	}
	return entries
}

func all(t *Table) []kv.Entry {
	it := t.NewIterator()
	it.First()
	return rest(it)
}

// restBackward is rest for a backward walk.
func restBackward(it kv.Iterator) []kv.Entry {
	var entries []kv.Entry
	for ; it.Valid(); it.Prev() {
		entries = append(entries, *it.Entry())
	}
	return entries
}

func reversed(entries []kv.Entry) []kv.Entry {
	r := slices.Clone(entries)
	slices.Reverse(r)
	return r
}

// writtenSince returns the first limit entries of WrittenSince.
func writtenSince(t *Table, seq kv.SeqNum, limit int) []kv.Entry {
	var entries []kv.Entry
	t.WrittenSince(seq, func(e *kv.Entry) bool {
		entries = append(entries, *e)
		return len(entries) < limit
	})
	return entries
}

func requireEntries(t require.TestingT, want, got []kv.Entry) {
	require.Len(t, got, len(want))
	for i := range want {
		if !assertEntry(t, want[i], got[i]) {
			require.FailNow(t, "entries differ", "entry %d of %d", i, len(want))
		}
	}
}

// assertEntry compares without testify, because it is called millions of times, and
// calls testify only to show a difference.
func assertEntry(t assert.TestingT, want, got kv.Entry) bool {
	if bytes.Equal(want.Key, got.Key) && bytes.Equal(want.Value, got.Value) && (want.Value == nil) == (got.Value == nil) &&
		want.Seq == got.Seq && want.Kind == got.Kind && want.Expiry == got.Expiry {
		return true
	}
	return assert.Equal(t, want, got)
}
