package mergeiter

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvd-db/kvd/internal/kv"
)

func TestMergeGivesEveryEntryInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		entries := genEntries().Draw(t, "entries")
		for _, e := range genTombstones(len(entries)).Draw(t, "range tombstones") {
			at, met := slices.BinarySearchFunc(entries, e, compareEntries)
			if !met { // the order of ties is tested elsewhere
				entries = slices.Insert(entries, at, e)
			}
		}
		checkWalks(t, New(spread(t, entries)...), entries)
	})
}

func TestOneSourceIsReturnedAsItIs(t *testing.T) {
	s := newSlice(put("a", 1))
	assert.Same(t, s, New(s))
}

func TestNoSourcesAreAnEmptyMerge(t *testing.T) {
	it := New()
	assert.False(t, it.First())
	assert.False(t, it.SeekGE([]byte("a")))
	assert.False(t, it.Next())
	assert.False(t, it.Last())
	assert.False(t, it.SeekLT([]byte("a")))
	assert.False(t, it.Prev())
	assert.NoError(t, it.Err())
	assert.NoError(t, it.Close())
}

// Ties within a source and between sources come in exactly the reverse order,
// wherever the walk begins.
func TestBackwardIsTheReverseOfForwardWithTies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dealt := make([][]kv.Entry, rapid.IntRange(2, 5).Draw(t, "sources"))
		for i := range dealt {
			for j := range rapid.IntRange(0, 6).Draw(t, "entries") {
				dealt[i] = append(dealt[i], kv.Entry{
					Key: rapid.SampledFrom([][]byte{{'a'}, {'b'}}).Draw(t, "key"), Value: []byte{'z', byte(i), byte(j)},
					Seq: kv.SeqNum(rapid.IntRange(1, 2).Draw(t, "number")), Kind: kv.KindRangeDelete,
				})
			}
			slices.SortStableFunc(dealt[i], compareEntries)
		}
		sources := make([]kv.Iterator, len(dealt))
		for i := range dealt {
			sources[i] = newSlice(dealt[i]...)
		}
		it := New(sources...)
		it.First()
		all := rest(it)
		require.True(t, slices.IsSortedFunc(all, compareEntries))
		checkWalks(t, it, all)
	})
}

func TestNewerSourceBreaksATie(t *testing.T) {
	for n := 2; n <= 9; n++ {
		sources := make([]kv.Iterator, n)
		for i := range sources {
			sources[i] = newSlice(kv.Entry{
				Key: []byte("a"), Value: []byte{byte(i), 'z'}, Seq: 5, Kind: kv.KindRangeDelete,
			})
		}
		it := New(sources...)
		it.First()
		got := rest(it)
		require.Len(t, got, n)
		for i, e := range got {
			assert.Equal(t, byte(i), e.Value[0], "%d sources", n)
		}
		it.Last()
		require.Equal(t, reversed(got), restBack(it), "%d sources", n)
	}
}

// TestReadErrorIsNotTheEnd fails every move of every source in turn (planted bug
// 13; facebook/rocksdb 8.7.0 lost keys that way).
func TestReadErrorIsNotTheEnd(t *testing.T) {
	whole := wholeMerge(t)
	for name, c := range map[string]struct {
		walk func(it kv.Iterator) []kv.Entry
		want []kv.Entry
	}{
		"forward":  {func(it kv.Iterator) []kv.Entry { it.First(); return rest(it) }, whole},
		"backward": {func(it kv.Iterator) []kv.Entry { it.Last(); return restBack(it) }, reversed(whole)},
	} {
		t.Run(name, func(t *testing.T) {
			failed := 0
			for which := range 3 {
				for failAt := 1; ; failAt++ {
					sources := failingSources(which, failAt)
					it := New(sources...)
					got := c.walk(it)
					requireEntries(t, c.want[:len(got)], got)
					if sources[which].(*sliceIterator).moves < failAt {
						requireEntries(t, c.want, got)
						require.NoError(t, it.Err())
						break
					}
					failed++
					name := fmt.Sprintf("source %d, move %d", which, failAt)
					require.ErrorIs(t, it.Err(), kv.ErrCorrupt, name)
					require.ErrorContains(t, it.Err(), fmt.Sprintf("move %d", failAt), name)
					require.False(t, it.First(), "%s: an error is final", name)
					require.False(t, it.Next(), name)
					require.False(t, it.Last(), "%s: an error is final", name)
					require.False(t, it.Prev(), name)
					require.ErrorIs(t, it.Close(), kv.ErrCorrupt, name)
					require.ErrorIs(t, it.Close(), kv.ErrCorrupt, name)
				}
			}
			require.Equal(t, 3*4, failed, "the first move and three more of each source")
		})
	}
}

func TestReadErrorOfASeekEndsTheMerge(t *testing.T) {
	for which := range 3 {
		it := New(failingSources(which, 2)...)
		require.True(t, it.First())
		require.False(t, it.SeekGE([]byte("z")))
		require.ErrorIs(t, it.Err(), kv.ErrCorrupt)

		it = New(failingSources(which, 2)...)
		require.True(t, it.Last())
		require.False(t, it.SeekLT([]byte("a")))
		require.ErrorIs(t, it.Err(), kv.ErrCorrupt)
	}
}

func TestCloseClosesEverySource(t *testing.T) {
	first, second := errors.New("first"), errors.New("second")
	a, b, c := newSlice(put("a", 1)), newSlice(put("b", 2)), newSlice()
	b.closeErr, c.closeErr = first, second
	it := New(a, b, c)
	require.True(t, it.First())
	assert.ErrorIs(t, it.Close(), first)
	assert.ErrorIs(t, it.Close(), first, "idempotent")
	assert.False(t, it.Valid())
	assert.False(t, it.Next())
	for _, s := range []*sliceIterator{a, b, c} {
		assert.Equal(t, 1, s.closed)
	}
}
