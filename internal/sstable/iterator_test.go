package sstable

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
)

func TestSeekGEFindsTheFirstEntryNotBefore(t *testing.T) {
	entries := numbered(200, 10)
	entries = slices.Insert(entries, 50, put("key00099", "new", 900), put("key00099", "old", 1))
	sortEntries(entries)
	f, _ := build(t, entries, WriterOptions{BlockBytes: 128})
	it := open(t, f, nil).NewIterator(IterOptions{})
	for q := range slices.Chunk(questions(entries), 4) { // all kinds in turn
		q := q[0]
		want, _ := slices.BinarySearchFunc(entries, q.Key, func(e kv.Entry, key []byte) int {
			return bytes.Compare(e.Key, key)
		})
		got, err := collect(it, it.SeekGE(q.Key))
		require.NoError(t, err)
		requireSameEntries(t, entries[want:], got)
	}
	require.NoError(t, it.Close())
}

func TestSeekGEFindsTheNewestVersionAtABlockBoundary(t *testing.T) {
	var entries []kv.Entry
	for _, key := range []string{"a", "b", "c"} {
		for seq := kv.SeqNum(30); seq > 0; seq-- {
			entries = append(entries, put(key, "0123456789", seq))
		}
	}
	for blockBytes := 30; blockBytes < 300; blockBytes += 7 {
		f, _ := build(t, entries, WriterOptions{BlockBytes: blockBytes})
		it := open(t, f, nil).NewIterator(IterOptions{})
		for i, key := range []string{"a", "b", "c"} {
			got, err := collect(it, it.SeekGE([]byte(key)))
			require.NoError(t, err)
			requireSameEntries(t, entries[30*i:], got)
		}
	}
}

func TestIteratorKeepsItsContract(t *testing.T) {
	f, _ := build(t, numbered(3, 3), WriterOptions{})
	it := open(t, f, nil).NewIterator(IterOptions{})
	require.False(t, it.Valid(), "a new iterator stands nowhere")
	require.False(t, it.Next(), "from nowhere there is no next")
	require.True(t, it.First())
	require.True(t, it.Valid())
	require.True(t, it.Next())
	require.True(t, it.Next())
	require.False(t, it.Next())
	require.False(t, it.Valid())
	require.NoError(t, it.Err(), "the end is no error")
	require.False(t, it.Next(), "after the end is the end")
	require.True(t, it.First(), "a new move starts again")
	require.False(t, it.SeekGE([]byte("z")))
	require.NoError(t, it.Err())
	require.NoError(t, it.Close())
	require.NoError(t, it.Close(), "Close is idempotent")
	require.False(t, it.First())
	require.ErrorIs(t, it.Err(), kv.ErrClosed)
}

func TestIteratorReadsAhead(t *testing.T) {
	entries := numbered(4_000, 100)
	f, meta := build(t, entries, WriterOptions{})
	r := open(t, f, NewCache(1<<20))
	f.takeReads()

	it := r.NewIterator(IterOptions{})
	got, err := collect(it, it.First())
	require.NoError(t, err)
	require.Len(t, got, len(entries))
	require.LessOrEqual(t, len(f.takeReads()), int(meta.Size/defaultReadahead)+1, "a walk from First reads ahead at once")
	require.Zero(t, r.cache.cache.Stats().Bytes, "and leaves the cache alone")

	require.True(t, it.SeekGE([]byte("key03000")))
	require.Len(t, f.takeReads(), 1)
	require.Less(t, cap(it.(*Iterator).ahead.buf), defaultReadahead+1)
	_, err = collect(it, it.SeekGE([]byte("key03000")))
	require.NoError(t, err)
	reads := f.takeReads()
	require.Less(t, reads[0], 5_000, "the first read after a seek is one block")
	require.True(t, slices.IsSorted(reads[:5]), "then they grow: %v", reads)
	require.LessOrEqual(t, slices.Max(reads), defaultReadahead)
	require.NoError(t, it.Close())
}

func TestIteratorFillsTheCacheIfAsked(t *testing.T) {
	entries := numbered(1_000, 100)
	f, _ := build(t, entries, WriterOptions{})
	r := open(t, f, NewCache(16<<20))
	for range 2 {
		it := r.NewIterator(IterOptions{FillCache: true, Readahead: 16 << 10})
		got, err := collect(it, it.First())
		require.NoError(t, err)
		requireSameEntries(t, entries, got)
		require.NoError(t, it.Close())
	}
	stats := r.cache.cache.Stats()
	require.EqualValues(t, longWalk, stats.Hits, "blocks after longWalk are not counted")
	f.takeReads()
	requireAnswers(t, r, entries)
	require.Empty(t, f.takeReads(), "there was room for all")
}

// A long walk drops nothing from the cache and counts no uses of its blocks.
func TestALongWalkLeavesTheCacheToPointReads(t *testing.T) {
	hot, cold := numbered(60, 100), numbered(3_000, 100)
	cache := NewCache(40 << 10)
	hotFile, _ := build(t, hot, WriterOptions{})
	coldFile, _ := build(t, cold, WriterOptions{})
	h, c := open(t, hotFile, cache), open(t, coldFile, cache)
	requireAnswers(t, h, hot)
	for range 2 {
		it := c.NewIterator(IterOptions{FillCache: true, Readahead: 16 << 10})
		require.True(t, it.First())
		for it.(*Iterator).blockAt < longWalk { // until then it is like any scan
			require.True(t, it.Next())
		}
		requireAnswers(t, h, hot)
		hotFile.takeReads()
		_, err := collect(it, it.Next())
		require.NoError(t, err)
		require.NoError(t, it.Close())
		requireAnswers(t, h, hot)
		require.Empty(t, hotFile.takeReads())
	}
}

func TestIteratorReportsAReadErrorAtTheRightPlace(t *testing.T) {
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
	got, err := collect(it, it.First())
	require.ErrorIs(t, err, eio)
	require.NotErrorIs(t, err, kv.ErrCorrupt)
	requireSameEntries(t, entries[:len(got)], got)
	require.Equal(t, bad, it.(*Iterator).blockAt, "all blocks before the bad one were served")
	require.False(t, it.Next(), "an error is not passed over")
	require.ErrorIs(t, it.Close(), eio)
}
