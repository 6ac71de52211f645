package mergeiter

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvd-db/kvd/internal/kv"
)

func TestMergeGivesEveryEntryInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		entries := genEntries().Draw(t, "entries")
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
	assert.NoError(t, it.Err())
	assert.NoError(t, it.Close())
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
	}
}

// TestReadErrorIsNotTheEnd fails every move of every source in turn (planted bug
// 13; facebook/rocksdb 8.7.0 lost keys that way).
func TestReadErrorIsNotTheEnd(t *testing.T) {
	whole := wholeMerge(t)
	failed := 0
	for which := range 3 {
		for failAt := 1; ; failAt++ {
			sources := failingSources(which, failAt)
			it := New(sources...)
			it.First()
			got := rest(it)
			requireEntries(t, whole[:len(got)], got)
			if sources[which].(*sliceIterator).moves < failAt {
				requireEntries(t, whole, got)
				require.NoError(t, it.Err())
				break
			}
			failed++
			name := fmt.Sprintf("source %d, move %d", which, failAt)
			require.ErrorIs(t, it.Err(), kv.ErrCorrupt, name)
			require.ErrorContains(t, it.Err(), fmt.Sprintf("move %d", failAt), name)
			require.False(t, it.Next(), name)
			require.False(t, it.First(), "%s: an error is final", name)
			require.ErrorIs(t, it.Close(), kv.ErrCorrupt, name)
			require.ErrorIs(t, it.Close(), kv.ErrCorrupt, name)
		}
	}
	require.Equal(t, 3*4, failed, "First and three Nexts of each source")
}

func TestReadErrorOfASeekEndsTheMerge(t *testing.T) {
	for which := range 3 {
		it := New(failingSources(which, 2)...)
		require.True(t, it.First())
		require.False(t, it.SeekGE([]byte("z")))
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
