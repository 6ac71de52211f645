package sstable

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/scanbatch"
)

// genVersions draws entries of every kind, in the order of a file: several versions
// of a key, keys with long and without common prefixes, with and without expiry.
func genVersions(t *rapid.T) (entries []kv.Entry) {
	keys := rapid.SliceOfNDistinct(rapid.StringOfN(rapid.RuneFrom([]rune("ab")), 1, 12, -1), 1, 60, rapid.ID[string]).Draw(t, "keys")
	for i, key := range keys {
		for seq := range rapid.SampledFrom([]int{1, 1, 1, 2, 20}).Draw(t, "versions") {
			e := kv.Entry{Key: []byte(key), Seq: kv.SeqNum(seq + 1), Kind: kv.KindPut, Value: fmt.Appendf(nil, "%s@%d", key, seq)}
			switch rapid.IntRange(0, 7).Draw(t, "kind") {
			case 0:
				e.Kind, e.Value = kv.KindDelete, nil
			case 1:
				e.Kind, e.Value = kv.KindRangeDelete, []byte(key+"a")
			case 2:
				e.Expiry = uint64(rapid.IntRange(1, 3).Draw(t, "expiry"))
			case 3:
				e.Value = []byte{}
			case 4:
				e.Value = bytes.Repeat([]byte{byte(i)}, 200)
			}
			entries = append(entries, e)
		}
	}
	sortEntries(entries)
	return entries
}

// walkOf returns an iterator over a file of these entries, at the beginning of a walk, and
// the entries that it should visit.
func walkOf(r *Reader, entries []kv.Entry, reverse bool) (it *Iterator, want []kv.Entry) {
	it, want = r.NewIterator(IterOptions{}).(*Iterator), slices.Clone(entries)
	if reverse {
		slices.Reverse(want)
		it.Last()
	} else {
		it.First()
	}
	return it, want
}

// warm loads all blocks into the cache, if there is one.
func warm(t require.TestingT, r *Reader) {
	it := r.NewIterator(IterOptions{FillCache: true})
	for ok := it.First(); ok; ok = it.Next() {
	}
	require.NoError(t, errors.Join(it.Err(), it.Close()))
}

// fillAll returns what Fill gives in batches of size items up to each of the
// bounds, and checks where it stops.
func fillAll(t require.TestingT, it *Iterator, v *scanbatch.View, size int, bounds [][]byte, reverse bool) (shown []kv.Item) {
	total := uint64(0)
	for _, bound := range bounds {
		for it.Valid() && (bound == nil || (bytes.Compare(it.Entry().Key, bound) < 0) != reverse && !bytes.Equal(it.Entry().Key, bound)) {
			var b scanbatch.Batch
			b.Reset(size, 1<<10, false)
			passed := it.Fill(&b, v, bound)
			require.Positive(t, passed, "it gets on")
			total += uint64(passed)
			shown = append(shown, b.Items...)
		}
	}
	if it.Err() == nil {
		require.Equal(t, it.r.meta.Entries, total)
	}
	return shown
}

func TestFillGivesWhatTheMovesGive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		entries := genVersions(t)
		f := &bytesFile{}
		w := NewWriter(f, testID, WriterOptions{BlockBytes: rapid.IntRange(20, 400).Draw(t, "block")})
		for i := range entries {
			require.NoError(t, w.Add(&entries[i]))
		}
		_, err := w.Finish()
		require.NoError(t, err)
		var cache *Cache
		if rapid.Bool().Draw(t, "cached") {
			cache = NewCache(1 << 20)
		}
		r, err := Open(f, testID, cache)
		require.NoError(t, err)
		warm(t, r)
		v := &scanbatch.View{At: kv.SeqNum(rapid.IntRange(0, 21).Draw(t, "at")), Now: uint64(rapid.IntRange(0, 3).Draw(t, "now"))}
		if rapid.Bool().Draw(t, "covered") {
			v.Covers = []*kv.RangeTombstones{r.RangeTombstones()}
		}
		var want []kv.Item
		var last []byte
		for i := range entries {
			e := &entries[i]
			if !v.Sees(e.Seq, e.Kind) || bytes.Equal(e.Key, last) {
				continue
			}
			if last = e.Key; v.Shows(e) {
				want = append(want, kv.Item{Key: e.Key, Value: e.Value, Version: e.Seq, Expiry: e.Expiry})
			}
		}
		bounds := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) []byte {
			return []byte(rapid.StringOfN(rapid.RuneFrom([]rune("ab")), 1, 6, -1).Draw(t, "bound"))
		}), 0, 5).Draw(t, "bounds")
		slices.SortFunc(bounds, bytes.Compare)
		reverse := rapid.Bool().Draw(t, "reverse")
		size := rapid.IntRange(1, 20).Draw(t, "size")

		it := r.NewIterator(IterOptions{}).(*Iterator)
		if reverse {
			slices.Reverse(bounds)
			slices.Reverse(want)
			require.True(t, it.Last())
		} else {
			require.True(t, it.First())
		}
		got := fillAll(t, it, v, size, append(bounds, nil), reverse)
		require.NoError(t, it.Err())
		require.Len(t, got, len(want))
		for i := range want {
			require.Equal(t, string(want[i].Key), string(got[i].Key))
			require.Equal(t, string(want[i].Value), string(got[i].Value))
			require.Equal(t, want[i].Version, got[i].Version)
			require.Equal(t, want[i].Expiry, got[i].Expiry)
		}
		require.NoError(t, it.Close())
	})
}

// Moves and Fill calls may alternate.
func TestFillGoesOnFromWhereTheIteratorStands(t *testing.T) {
	entries := numbered(200, 20)
	f, _ := build(t, entries, WriterOptions{BlockBytes: 300})
	r := open(t, f, NewCache(1<<20))
	warm(t, r)
	it := r.NewIterator(IterOptions{}).(*Iterator)
	v := &scanbatch.View{At: kv.MaxSeqNum}
	for from := range 150 {
		require.True(t, it.SeekGE(entries[from].Key))
		var b scanbatch.Batch
		b.Reset(from%7+1, 1<<10, false)
		n := it.Fill(&b, v, entries[from+5].Key)
		require.Equal(t, min(5, from%7+1), n)
		require.Len(t, b.Items, n)
		for i := range n {
			require.Equal(t, string(entries[from+i].Key), string(b.Items[i].Key))
		}
		requireSameEntries(t, entries[from+n:from+n+1], []kv.Entry{*it.Entry()})
		require.True(t, it.Next())
		requireSameEntries(t, entries[from+n+1:from+n+2], []kv.Entry{*it.Entry()})
	}
}

// Batches borrow values from cached blocks in both directions, up to the memory that a
// batch may retain.
func TestFillCopiesNoValueOutOfTheCache(t *testing.T) {
	entries := numbered(400, 20)
	f, _ := build(t, entries, WriterOptions{BlockBytes: 300})
	v := &scanbatch.View{At: kv.MaxSeqNum}
	for _, reverse := range []bool{false, true} {
		r := open(t, f, NewCache(1<<20))
		warm(t, r)
		it, want := walkOf(r, entries, reverse)
		keys, values := 0, 0
		for _, e := range want[:200] {
			keys, values = keys+len(e.Key), values+len(e.Value)
		}
		var b scanbatch.Batch
		b.Reset(200, 1<<20, false)
		require.Equal(t, 200, it.Fill(&b, v, nil))
		require.Equal(t, 200, b.Near)
		require.Equal(t, keys+values, b.Size())
		require.Less(t, len(b.Data), keys+values/5, "keys, and what is at the edges of blocks")

		var few scanbatch.Batch
		few.Reset(1000, 1<<10, false)
		require.Less(t, it.Fill(&few, v, nil), 100)
		require.Less(t, few.Size(), 2<<10)

		require.NoError(t, errors.Join(it.Close(), r.Close()))
		runtime.GC()
		for i := range b.Items {
			require.Equal(t, string(want[i].Key), string(b.Items[i].Key))
			require.Equal(t, string(want[i].Value), string(b.Items[i].Value))
		}
	}
}

// Fill gives everything before damage, whichever block is damaged.
func TestFillGivesWhatComesBeforeDamage(t *testing.T) {
	entries := numbered(300, 20)
	f, _ := build(t, entries, WriterOptions{BlockBytes: 300})
	blocks := open(t, f, nil).index.blocks()
	v := &scanbatch.View{At: kv.MaxSeqNum}
	for bad := range blocks {
		r := open(t, f, nil)
		start, _ := r.index.span(bad, bad)
		f.data[start+1] ^= 1
		for _, reverse := range []bool{false, true} {
			it, want := walkOf(r, entries, reverse)
			got := fillAll(t, it, v, 10, [][]byte{nil}, reverse)
			require.ErrorIs(t, it.Err(), kv.ErrCorrupt)
			require.Less(t, len(got), len(want))
			for i := range got {
				require.Equal(t, string(want[i].Key), string(got[i].Key))
			}
			if bad == blocks/2 {
				require.NotEmpty(t, got)
			}
		}
		f.data[start+1] ^= 1
	}
}
