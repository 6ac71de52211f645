package valuefile

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sort"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvd-db/kvd/internal/kv"
)

// sliceIterator is a source in memory that uses its memory again, and that can fail.
type sliceIterator struct {
	entries    []kv.Entry
	pos        int
	entry      kv.Entry
	key, value []byte
	failAt     int // index of an entry that cannot be read; -1: none
	err        error
}

var errRead = errors.New("read error")

func newSlice(entries []kv.Entry) *sliceIterator {
	return &sliceIterator{entries: entries, pos: len(entries), failAt: -1}
}

func (s *sliceIterator) seek(key []byte) int {
	return sort.Search(len(s.entries), func(i int) bool { return bytes.Compare(s.entries[i].Key, key) >= 0 })
}

func (s *sliceIterator) First() bool            { return s.move(0) }
func (s *sliceIterator) SeekGE(key []byte) bool { return s.move(s.seek(key)) }
func (s *sliceIterator) Next() bool             { return s.Valid() && s.move(s.pos+1) }
func (s *sliceIterator) Last() bool             { return s.move(len(s.entries) - 1) }
func (s *sliceIterator) SeekLT(key []byte) bool { return s.move(s.seek(key) - 1) }
func (s *sliceIterator) Prev() bool             { return s.Valid() && s.move(s.pos-1) }
func (s *sliceIterator) Valid() bool            { return s.err == nil && s.pos < len(s.entries) }
func (s *sliceIterator) Entry() *kv.Entry       { return &s.entry }
func (s *sliceIterator) Err() error             { return s.err }
func (s *sliceIterator) Close() error           { return s.err }

func (s *sliceIterator) move(pos int) bool {
	if pos < 0 {
		pos = len(s.entries)
	}
	s.pos, s.err = pos, nil
	if pos == s.failAt {
		s.err = errRead
	}
	for _, old := range [][]byte{s.key, s.value} {
		for i := range old {
			old[i] = '!'
		}
	}
	if !s.Valid() {
		return false
	}
	e := s.entries[pos]
	s.key, s.value = append(s.key[:0], e.Key...), append(s.value[:0], e.Value...)
	s.entry = e
	s.entry.Key, s.entry.Value = s.key, s.value
	return true
}

// mixed returns entries of which some have their values in files 13 and 14, and the
// same with their values.
func (s *shelf) mixed(large []bool) (stored, whole []kv.Entry) {
	var values [2][][]byte
	for i, apart := range large {
		e := kv.Entry{Key: fmt.Appendf(nil, "key%04d", i), Seq: kv.SeqNum(i + 1), Kind: kv.KindPut, Value: fmt.Appendf(nil, "value %d", i)}
		if apart {
			e.Value = bytes.Repeat(e.Value, 1+i%5*200)
			values[i%2] = append(values[i%2], e.Value)
		}
		whole = append(whole, e)
	}
	var pointers [2][]kv.ValuePointer
	for i := range values {
		if len(values[i]) > 0 {
			pointers[i], _ = s.write(kv.FileNum(13+i), values[i]...)
		}
	}
	stored = slices.Clone(whole)
	for i, apart := range large {
		if apart {
			stored[i].Value, stored[i].Apart = pointers[i%2][0].AppendTo(nil), true
			pointers[i%2] = pointers[i%2][1:]
		}
	}
	return stored, whole
}

// rest walks to the end.
func rest(it kv.Iterator, valid bool, step func() bool) (all []kv.Entry) {
	for ; valid; valid = step() {
		e := *it.Entry()
		e.Key, e.Value = bytes.Clone(e.Key), bytes.Clone(e.Value)
		all = append(all, e)
	}
	return all
}

func requireEntries(t *testing.T, want, got []kv.Entry) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		require.Equal(t, want[i], got[i], "entry %d", i)
	}
}

func TestResolveGivesEveryValue(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newShelf(t)
		large := rapid.SliceOfN(rapid.Bool(), 0, 200).Draw(rt, "large")
		stored, whole := s.mixed(large)
		set := NewSet(s.open)
		it := set.Resolve(newSlice(stored), false)
		require.False(t, it.Valid(), "stands nowhere")
		requireEntries(t, whole, rest(it, it.First(), it.Next))
		require.NoError(t, it.Err())
		from := rapid.IntRange(0, len(whole)).Draw(rt, "from")
		key := fmt.Appendf(nil, "key%04d", from)
		requireEntries(t, whole[from:], rest(it, it.SeekGE(key), it.Next))
		back := rest(it, it.SeekLT(key), it.Prev)
		slices.Reverse(back)
		requireEntries(t, whole[:from], back)
		back = rest(it, it.Last(), it.Prev)
		slices.Reverse(back)
		requireEntries(t, whole, back)
		require.NoError(t, it.Close())
		require.NoError(t, it.Close(), "idempotent")

		it = set.Resolve(newSlice(stored), true)
		keys := rest(it, it.First(), it.Next)
		require.Len(t, keys, len(whole))
		for i, e := range keys {
			require.Equal(t, kv.Entry{Key: whole[i].Key, Seq: whole[i].Seq, Kind: whole[i].Kind}, e)
		}
		require.NoError(t, it.Close())
		require.NoError(t, set.Close())
	})
}

// What comes before an error is given, and then the error, not the end.
func TestResolveArrivesAtErrors(t *testing.T) {
	const n = 150
	large := slices.Repeat([]bool{true, true, false}, n/3)
	for at := 0; at < n; at += 7 {
		s := newShelf(t)
		stored, whole := s.mixed(large)
		set := NewSet(s.open)

		source := newSlice(stored)
		source.failAt = at
		it := set.Resolve(source, false)
		require.Len(t, rest(it, it.First(), it.Next), at)
		require.ErrorIs(t, it.Err(), errRead)
		require.False(t, it.Next())
		require.Len(t, rest(it, it.Last(), it.Prev), n-1-at)
		require.ErrorIs(t, it.Err(), errRead)
		require.ErrorIs(t, it.Close(), errRead)

		if p, ok := kv.ParseValuePointer(stored[at].Value); ok && stored[at].Apart {
			data := s.content(p.File)
			data[p.Offset+lengthBytes] ^= 1
			s.replace(p.File, data)
			fresh := NewSet(s.open)
			it = fresh.Resolve(newSlice(stored), false)
			requireEntries(t, whole[:at], rest(it, it.First(), it.Next))
			require.ErrorIs(t, it.Err(), kv.ErrCorrupt)
			require.False(t, it.Valid())
			require.False(t, it.Next())
			require.ErrorIs(t, it.Close(), kv.ErrCorrupt)
			require.NoError(t, fresh.Close())
		}
		require.NoError(t, set.Close())
	}
}

func TestResolveDoesNotTurnRound(t *testing.T) {
	s := newShelf(t)
	stored, _ := s.mixed([]bool{true, true, true})
	set := NewSet(s.open)
	it := set.Resolve(newSlice(stored), false)
	require.True(t, it.First())
	require.Panics(t, func() { it.Prev() })
	require.True(t, it.Last())
	require.Panics(t, func() { it.Next() })
	require.NoError(t, it.Close())
	require.NoError(t, set.Close())
}
