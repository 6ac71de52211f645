package mergeiter

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"sort"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvd-db/kvd/internal/kv"
)

// sliceIterator is a source in memory that can fail. Like a source that reads
// blocks, it reuses the memory of its entry for the next one.
type sliceIterator struct {
	entries []kv.Entry
	pos     int
	entry   kv.Entry
	key     []byte
	value   []byte

	failAt   int // the move that fails, counted from 1; 0 is none
	moves    int
	err      error
	closeErr error
	closed   int
}

func newSlice(entries ...kv.Entry) *sliceIterator {
	return &sliceIterator{entries: entries, pos: len(entries)}
}

func (s *sliceIterator) First() bool { return s.move(0) }

func (s *sliceIterator) SeekGE(key []byte) bool {
	return s.move(sort.Search(len(s.entries), func(i int) bool {
		return bytes.Compare(s.entries[i].Key, key) >= 0
	}))
}

func (s *sliceIterator) Next() bool { return s.move(s.pos + 1) }

func (s *sliceIterator) Last() bool { return s.move(len(s.entries) - 1) }

func (s *sliceIterator) SeekLT(key []byte) bool {
	return s.move(sort.Search(len(s.entries), func(i int) bool {
		return bytes.Compare(s.entries[i].Key, key) >= 0
	}) - 1)
}

func (s *sliceIterator) Prev() bool { return s.Valid() && s.move(s.pos-1) }

func (s *sliceIterator) move(pos int) bool {
	if s.moves++; s.moves == s.failAt {
		s.err = fmt.Errorf("move %d: %w", s.moves, errRead)
	}
	s.pos = pos
	if pos < 0 {
		s.pos = len(s.entries)
	}
	for _, old := range [][]byte{s.key, s.value} {
		for i := range old {
			old[i] = '!'
		}
	}
	if !s.Valid() {
		return false
	}
	s.entry = s.entries[s.pos]
	s.key = append(s.key[:0], s.entry.Key...)
	s.entry.Key = s.key
	if s.entry.Value != nil {
		s.value = append(s.value[:0], s.entry.Value...)
		s.entry.Value = s.value[:len(s.value):len(s.value)]
		if s.entry.Value == nil {
			s.entry.Value = []byte{}
		}
	}
	return true
}

func (s *sliceIterator) Valid() bool      { return s.err == nil && s.pos < len(s.entries) && s.closed == 0 }
func (s *sliceIterator) Entry() *kv.Entry { return &s.entry }
func (s *sliceIterator) Err() error       { return s.err }

func (s *sliceIterator) Close() error {
	s.closed++
	s.pos = len(s.entries)
	if s.err == nil {
		s.err = s.closeErr
	}
	return s.err
}

func put(key string, seq kv.SeqNum) kv.Entry {
	return kv.Entry{Key: []byte(key), Value: fmt.Appendf(nil, "%s@%d", key, seq), Seq: seq, Kind: kv.KindPut}
}

func del(key string, seq kv.SeqNum) kv.Entry {
	return kv.Entry{Key: []byte(key), Seq: seq, Kind: kv.KindDelete}
}

func compareEntries(a, b kv.Entry) int { return kv.Compare(a.Key, a.Seq, b.Key, b.Seq) }

// genKey draws from a tiny space full of prefixes and extreme bytes, so that
// collisions are the rule.
func genKey() *rapid.Generator[[]byte] {
	return rapid.SliceOfN(rapid.SampledFrom([]byte{0x00, 'a', 0xff}), 1, 3)
}

// genEntries draws versions of few keys, in the order of kv.Compare, without duplicates
// of key and number.
func genEntries() *rapid.Generator[[]kv.Entry] {
	return rapid.Custom(func(t *rapid.T) []kv.Entry {
		var entries []kv.Entry
		for _, key := range rapid.SliceOfN(genKey(), 0, 40).Draw(t, "keys") {
			e := kv.Entry{Key: key, Seq: kv.SeqNum(len(entries) + 1), Kind: kv.KindPut}
			switch rapid.IntRange(0, 4).Draw(t, "kind") {
			case 0:
				e.Kind = kv.KindDelete
			case 1:
				e.Value = []byte{}
			case 2:
				e.Value = []byte{byte(len(entries))}
				e.Expiry = uint64(rapid.IntRange(1, 3).Draw(t, "expiry"))
			default:
				e.Value = []byte{byte(len(entries)), 'v'}
			}
			entries = append(entries, e)
		}
		slices.SortFunc(entries, compareEntries)
		return entries
	})
}

// genTombstones draws range tombstones with numbers of the entries, with other numbers,
// and with equal numbers, as one batch may write them.
func genTombstones(most int) *rapid.Generator[[]kv.Entry] {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) kv.Entry {
		start, end := genKey().Draw(t, "start"), genKey().Draw(t, "end")
		if c := bytes.Compare(start, end); c > 0 {
			start, end = end, start
		} else if c == 0 {
			end = append(end, 0)
		}
		seq := kv.SeqNum(rapid.IntRange(1, most+1).Draw(t, "number"))
		return kv.Entry{Key: start, Value: end, Seq: seq, Kind: kv.KindRangeDelete}
	}), 0, 5)
}

// spread distributes sorted entries over sources, some of which may stay empty.
func spread(t *rapid.T, entries []kv.Entry) []kv.Iterator {
	dealt := make([][]kv.Entry, rapid.IntRange(0, 9).Draw(t, "sources"))
	if len(dealt) == 0 && len(entries) > 0 {
		dealt = make([][]kv.Entry, 1)
	}
	for _, e := range entries {
		i := rapid.IntRange(0, len(dealt)-1).Draw(t, "source")
		dealt[i] = append(dealt[i], e)
	}
	sources := make([]kv.Iterator, len(dealt))
	for i := range dealt {
		sources[i] = newSlice(dealt[i]...)
	}
	return sources
}

// rest copies the current entry of the iterator and all that follow.
func rest(it kv.Iterator) []kv.Entry { return collect(it, it.Next) }

// restBack is rest on a backward walk.
func restBack(it kv.Iterator) []kv.Entry {
	return collect(it, it.Prev)
}

func collect(it kv.Iterator, move func() bool) []kv.Entry {
	var entries []kv.Entry
	for it.Valid() {
		e := *it.Entry()
		e.Key, e.Value = bytes.Clone(e.Key), bytes.Clone(e.Value)
		entries = append(entries, e)
		if valid := move(); valid != it.Valid() {
			panic("a move must return Valid")
		}
	}
	return entries
}

// reversed returns a copy of the entries in backward order.
func reversed(entries []kv.Entry) []kv.Entry {
	back := slices.Clone(entries)
	slices.Reverse(back)
	return back
}

// atLeast returns the entries whose key is >= key.
func atLeast(entries []kv.Entry, key []byte) []kv.Entry {
	from, _ := slices.BinarySearchFunc(entries, key, func(e kv.Entry, key []byte) int {
		return cmp.Or(bytes.Compare(e.Key, key), 1)
	})
	return slices.Clip(entries[from:])
}

// checkWalks compares First, Last, every kind of seek and the entries that follow with a
// model.
func checkWalks(t *rapid.T, it kv.Iterator, want []kv.Entry) {
	require.False(t, it.Valid(), "a new iterator stands nowhere")
	if rapid.Bool().Draw(t, "backward first") {
		require.Equal(t, len(want) > 0, it.Last())
		requireEntries(t, reversed(want), restBack(it))
	}
	require.Equal(t, len(want) > 0, it.First())
	requireEntries(t, want, rest(it))
	for range rapid.IntRange(0, 5).Draw(t, "seeks") {
		key := rapid.SliceOfN(rapid.SampledFrom([]byte{0x00, 'a', 'b', 0xff}), 0, 4).Draw(t, "seek")
		ahead := atLeast(want, key)
		if rapid.Bool().Draw(t, "backward") {
			checkBackward(t, it, want[:len(want)-len(ahead)], key)
			continue
		}
		require.Equal(t, len(ahead) > 0, it.SeekGE(key))
		if rapid.Bool().Draw(t, "walk on") {
			requireEntries(t, ahead, rest(it))
			require.False(t, it.Next(), "after the end")
		} else if len(ahead) > 0 {
			require.Equal(t, ahead[0].Key, it.Entry().Key)
			require.Equal(t, ahead[0].Seq, it.Entry().Seq)
		}
	}
	require.NoError(t, it.Err())
	require.NoError(t, it.Close())
	require.False(t, it.Valid(), "closed")
	require.NoError(t, it.Close())
}

// checkBackward compares SeekLT and the entries that follow with the entries before key.
func checkBackward(t *rapid.T, it kv.Iterator, before []kv.Entry, key []byte) {
	require.Equal(t, len(before) > 0, it.SeekLT(key))
	if rapid.Bool().Draw(t, "walk on") {
		requireEntries(t, reversed(before), restBack(it))
		require.False(t, it.Prev(), "before the start")
	} else if len(before) > 0 {
		end := before[len(before)-1]
		require.Equal(t, end.Key, it.Entry().Key)
		require.Equal(t, end.Seq, it.Entry().Seq)
	}
}

func requireEntries(t require.TestingT, want, got []kv.Entry) {
	if h, ok := t.(interface{ Helper() }); ok {
		h.Helper()
	}
	require.Len(t, got, len(want))
	for i := range want {
		require.Equal(t, want[i], got[i], "entry %d", i)
	}
}

var errRead = &kv.CorruptionError{File: "000007.sst", Offset: 4096, Reason: "planted"}

// failingSources returns the sources of a small merge, of which one fails at the
// given move.
func failingSources(which, failAt int) []kv.Iterator {
	a := newSlice(put("a", 9), put("c", 8), put("e", 7))
	b := newSlice(put("b", 6), put("d", 5), put("f", 4))
	c := newSlice(put("a", 3), put("c", 2), put("g", 1))
	sources := []*sliceIterator{a, b, c}
	sources[which].failAt = failAt
	return []kv.Iterator{a, b, c}
}

// wholeMerge returns all entries of failingSources.
func wholeMerge(t *testing.T) []kv.Entry {
	it := New(failingSources(0, 0)...)
	it.First()
	all := rest(it)
	require.Len(t, all, 9)
	require.True(t, slices.IsSortedFunc(all, compareEntries))
	return all
}
