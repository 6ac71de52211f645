package sstable

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
)

// before returns the entries that a backward walk from SeekLT(key) visits.
func before(entries []kv.Entry, key []byte) []kv.Entry {
	n, _ := slices.BinarySearchFunc(entries, key, func(e kv.Entry, key []byte) int {
		return bytes.Compare(e.Key, key)
	})
	return reversed(entries[:n])
}

func TestSeekLTFindsTheLastEntryBefore(t *testing.T) {
	entries := numbered(200, 10)
	entries = append(entries, put("key00099", "new", 900), put("key00099", "old", 1),
		rangeDel("key00100", "key00200", 800), rangeDel("key00101", "z", 2))
	for seq := range kv.SeqNum(40) {
		entries = append(entries, put("key00201", fmt.Sprint(seq), 1000+seq))
	}
	sortEntries(entries)
	for _, blockBytes := range []int{1, 40, 128, 700, 4096} {
		f, _ := build(t, entries, WriterOptions{BlockBytes: blockBytes})
		it := open(t, f, nil).NewIterator(IterOptions{})
		for q := range slices.Chunk(questions(entries), 4) { // all kinds in turn
			q := q[0]
			got, err := collectBack(it, it.SeekLT(q.Key))
			require.NoError(t, err)
			requireSameEntries(t, before(entries, q.Key), got)
		}
		require.NoError(t, it.Close())
	}
}

// A backward walk visits the versions of a key oldest first, and skips none where they
// cross from one block to the next.
func TestBackwardWalkMeetsTheVersionsOfAKeyAcrossBoundaries(t *testing.T) {
	var entries []kv.Entry
	for _, key := range []string{"a", "b", "c"} {
		for seq := kv.SeqNum(50); seq > 0; seq-- {
			entries = append(entries, put(key, "0123456789", seq))
		}
	}
	entries = append(entries, rangeDel("b", "d", 20)) // ties with a version
	sortEntries(entries)
	for blockBytes := 30; blockBytes < 3000; blockBytes += blockBytes/4 + 1 {
		f, _ := build(t, entries, WriterOptions{BlockBytes: blockBytes})
		it := open(t, f, nil).NewIterator(IterOptions{})
		for _, key := range []string{"", "a", "b", "bb", "c", "d"} {
			got, err := collectBack(it, it.SeekLT([]byte(key)))
			require.NoError(t, err)
			requireSameEntries(t, before(entries, []byte(key)), got)
		}
	}
}

func TestBackwardWalkKeepsTheContract(t *testing.T) {
	f, _ := build(t, numbered(3, 3), WriterOptions{})
	it := open(t, f, nil).NewIterator(IterOptions{})
	require.False(t, it.Prev(), "from nowhere there is no way back")
	require.True(t, it.Last())
	require.True(t, it.Prev())
	require.Panics(t, func() { it.Next() }, "a walk has one direction")
	require.True(t, it.Prev())
	require.False(t, it.Prev())
	require.False(t, it.Valid())
	require.NoError(t, it.Err(), "the front is no error")
	require.False(t, it.Prev(), "before the front is the front")
	require.Panics(t, func() { it.Next() }, "also when the walk has ended")
	require.True(t, it.First(), "a new move may turn round")
	require.Panics(t, func() { it.Prev() })
	require.True(t, it.Next())
	require.True(t, it.SeekLT([]byte("z")))
	require.False(t, it.SeekLT([]byte("key00000")), "nothing is before the first key")
	require.False(t, it.SeekLT(nil))
	require.NoError(t, it.Err())
	require.True(t, it.Last())
	require.NoError(t, it.Close())
	require.False(t, it.Prev())
	require.False(t, it.Last())
	require.ErrorIs(t, it.Err(), kv.ErrClosed)
}

func TestBackwardWalkReadsAhead(t *testing.T) {
	entries := numbered(4_000, 100)
	f, meta := build(t, entries, WriterOptions{})
	r := open(t, f, NewCache(1<<20))
	f.takeReads()

	it := r.NewIterator(IterOptions{})
	got, err := collectBack(it, it.Last())
	require.NoError(t, err)
	requireSameEntries(t, reversed(entries), got)
	require.LessOrEqual(t, len(f.takeReads()), int(meta.Size/defaultReadahead)+1, "a walk from Last reads ahead at once")
	require.Zero(t, r.cache.cache.Stats().Bytes, "and leaves the cache alone")

	it = r.NewIterator(IterOptions{})
	_, err = collectBack(it, it.SeekLT([]byte("key06000")))
	require.NoError(t, err)
	reads := f.takeReads()
	require.Less(t, reads[0], 5_000, "the first read of a seek is one block")
	require.True(t, slices.IsSorted(reads[:5]), "then they grow: %v", reads)
	require.LessOrEqual(t, slices.Max(reads), defaultReadahead)
	total := 0
	for _, n := range reads {
		total += n
	}
	end, _ := r.index.span(r.index.find([]byte("key06000"), kv.MaxSeqNum)+1, r.index.blocks()-1)
	require.EqualValues(t, end, total, "no block is read twice")
	require.NoError(t, it.Close())
}

func TestBackwardWalkFillsTheCacheIfAsked(t *testing.T) {
	entries := numbered(1_000, 100)
	f, _ := build(t, entries, WriterOptions{})
	r := open(t, f, NewCache(16<<20))
	for range 2 {
		it := r.NewIterator(IterOptions{FillCache: true, Readahead: 16 << 10})
		got, err := collectBack(it, it.Last())
		require.NoError(t, err)
		requireSameEntries(t, reversed(entries), got)
		require.NoError(t, it.Close())
	}
	stats := r.cache.cache.Stats()
	require.EqualValues(t, longWalk, stats.Hits, "blocks after longWalk are not counted")
	require.EqualValues(t, longWalk, stats.Misses)
}

func TestBackwardWalkReportsAReadErrorAtTheRightPlace(t *testing.T) {
	eio := errors.New("input/output error")
	entries := numbered(500, 100)
	f, _ := build(t, entries, WriterOptions{})
	r := open(t, f, nil)
	bad := r.index.blocks() / 2
	start, length := r.index.span(bad, bad)
	f.onRead = func(p []byte, offset int64) error {
		if offset < start+int64(length) && start < offset+int64(len(p)) {
			return eio
		}
		return nil
	}
	it := r.NewIterator(IterOptions{})
	got, err := collectBack(it, it.Last())
	require.ErrorIs(t, err, eio)
	require.NotErrorIs(t, err, kv.ErrCorrupt)
	requireSameEntries(t, reversed(entries)[:len(got)], got)
	require.Equal(t, bad, it.(*Iterator).blockAt, "all blocks after the bad one were served")
	require.False(t, it.Prev(), "an error is not passed over")
	require.ErrorIs(t, it.Close(), eio)
}
