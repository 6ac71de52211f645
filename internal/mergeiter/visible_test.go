package mergeiter

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/scanbatch"
)

// visible is the model of Visible: the content of a map after all writes up to the
// view's number, range deletes included.
func visible(entries []kv.Entry, v scanbatch.View) []kv.Entry {
	newest := map[string]kv.SeqNum{}
	for _, e := range entries {
		if e.Seq <= v.At && e.Kind != kv.KindRangeDelete {
			newest[string(e.Key)] = max(newest[string(e.Key)], e.Seq)
		}
	}
	var shown []kv.Entry
	for _, e := range entries {
		if newest[string(e.Key)] != e.Seq || e.Kind != kv.KindPut || e.Expiry != 0 && e.Expiry <= v.Now {
			continue
		}
		covered := false
		for _, c := range v.Covers {
			for _, t := range c.All() {
				in := bytes.Compare(t.Key, e.Key) <= 0 && bytes.Compare(e.Key, t.Value) < 0
				covered = covered || in && t.Seq <= v.At && t.Seq > e.Seq
			}
		}
		if !covered {
			shown = append(shown, e)
		}
	}
	return shown
}

// covers draws the range tombstones of a few sources.
func covers(t *rapid.T, numbers int) []*kv.RangeTombstones {
	var sets []*kv.RangeTombstones
	for range rapid.IntRange(0, 3).Draw(t, "sources with tombstones") {
		sets = append(sets, kv.NewRangeTombstones(genTombstones(numbers).Draw(t, "range tombstones")))
	}
	return append(sets, nil)
}

// fillingSource is a source that fills batches itself, one entry after the other.
type fillingSource struct {
	*sliceIterator
	backward bool
}

func (f *fillingSource) Last() bool { f.backward = true; return f.sliceIterator.Last() }

func (f *fillingSource) SeekLT(key []byte) bool {
	f.backward = true
	return f.sliceIterator.SeekLT(key)
}

func (f *fillingSource) Fill(b *scanbatch.Batch, v *scanbatch.View, bound []byte) (passed int) {
	for f.Valid() && !b.Full() && passed < b.Steps {
		if c := bytes.Compare(f.entry.Key, bound); bound != nil && (c == 0 || (c > 0) != f.backward) {
			return passed
		}
		for b.Stage(f.entry.Key); f.Valid() && bytes.Equal(f.entry.Key, b.StagedKey()); passed++ {
			if v.Sees(f.entry.Seq, f.entry.Kind) {
				b.Version(&f.entry)
			}
			if f.backward {
				f.Prev()
			} else {
				f.Next()
			}
		}
		if f.Err() == nil {
			b.Commit(v)
		}
	}
	return passed
}

// shown returns everything from v, in batches of size items.
func shown(v *Visible, size int) (entries []kv.Entry) {
	var b scanbatch.Batch
	for more := true; more; {
		b.Reset(size, 1<<10, false)
		more = v.Fill(&b)
		for _, item := range b.Items {
			entries = append(entries, kv.Entry{
				Key: bytes.Clone(item.Key), Value: append([]byte{}, item.Value...), Seq: item.Version, Kind: kv.KindPut, Expiry: item.Expiry,
			})
		}
	}
	return entries
}

func newVisible(view scanbatch.View, r kv.Range, reverse bool, sources ...kv.Iterator) *Visible {
	v := &Visible{}
	v.Init(view, r, reverse, sources)
	return v
}

func TestVisibleGivesWhatAMapHolds(t *testing.T) {
	bound := rapid.OneOf(rapid.Just[[]byte](nil), genKey(), rapid.Just([]byte{}))
	v := &Visible{} // one for all: it is reused
	rapid.Check(t, func(t *rapid.T) {
		entries := genEntries().Draw(t, "entries")
		view := scanbatch.View{
			At:     kv.SeqNum(rapid.IntRange(0, len(entries)+1).Draw(t, "at")),
			Now:    uint64(rapid.IntRange(0, 3).Draw(t, "now")),
			Covers: covers(t, len(entries)),
		}
		r := kv.Range{Start: bound.Draw(t, "start"), End: bound.Draw(t, "end")}
		reverse := rapid.Bool().Draw(t, "reverse")
		sources := spread(t, entries)
		for _, c := range view.Covers { // sources return them as entries too
			sources = append(sources, newSlice(c.All()...))
		}
		for i := range sources {
			if rapid.Bool().Draw(t, "fills") {
				sources[i] = &fillingSource{sliceIterator: sources[i].(*sliceIterator)}
			}
		}
		var want []kv.Entry
		for _, e := range visible(entries, view) {
			if r.Contains(e.Key) {
				want = append(want, e)
			}
		}
		if reverse {
			want = reversed(want)
		}
		v.Init(view, r, reverse, sources)
		requireEntries(t, want, shown(v, rapid.IntRange(1, 9).Draw(t, "size")))
		require.NoError(t, v.Err())
		require.NoError(t, v.Close())
		require.NoError(t, v.Close())
		for _, s := range sources {
			require.False(t, s.Valid(), "closed")
		}
	})
}

func TestVisibleShowsEachKeyOnce(t *testing.T) {
	for _, reverse := range []bool{false, true} {
		v := newVisible(scanbatch.View{At: 6}, kv.Range{}, reverse, newSlice(
			put("a", 5), del("a", 3), put("a", 2),
			del("b", 6), put("b", 1),
			put("c", 9), put("c", 4),
			put("d", 7),
		))
		want := []kv.Entry{put("a", 5), put("c", 4)}
		if reverse {
			want = reversed(want)
		}
		requireEntries(t, want, shown(v, 8))
	}
}

func TestAnExpiredVersionHidesOlderOnes(t *testing.T) {
	lease := put("a", 5)
	lease.Expiry = 100
	for now, want := range map[uint64][]kv.Entry{0: {lease}, 99: {lease}, 100: nil, 101: nil} {
		for _, reverse := range []bool{false, true} {
			v := newVisible(scanbatch.View{At: 9, Now: now}, kv.Range{}, reverse, newSlice(lease, put("a", 3)))
			requireEntries(t, want, shown(v, 8))
		}
	}
}

func TestARangeTombstoneHidesWhatIsOlder(t *testing.T) {
	tombstone := kv.Entry{Key: []byte("a"), Value: []byte("c"), Seq: 5, Kind: kv.KindRangeDelete}
	covers := []*kv.RangeTombstones{nil, kv.NewRangeTombstones([]kv.Entry{tombstone})}
	entries := []kv.Entry{tombstone, put("a", 5), put("a", 4), put("b", 6), put("b", 3), put("bb", 2), put("c", 1)}
	for at, want := range map[kv.SeqNum][]kv.Entry{
		4: {put("a", 4), put("b", 3), put("bb", 2), put("c", 1)},
		5: {put("a", 5), put("c", 1)}, // a put of the tombstone's own batch stays
		6: {put("a", 5), put("b", 6), put("c", 1)},
	} {
		view := scanbatch.View{At: at, Covers: covers}
		requireEntries(t, want, shown(newVisible(view, kv.Range{}, false, newSlice(entries...)), 8))
		requireEntries(t, reversed(want), shown(newVisible(view, kv.Range{}, true, newSlice(entries...)), 8))
	}
}

// Wherever a source fails, Visible returns a prefix of the right answer, and
// then the error. It shows no older version in place of one that could not be read.
func TestVisibleGivesWhatComesBeforeAnError(t *testing.T) {
	var all []kv.Entry
	for _, e := range wholeMerge(t) {
		if len(all) == 0 || string(all[len(all)-1].Key) != string(e.Key) {
			all = append(all, e)
		}
	}
	for _, reverse := range []bool{false, true} {
		want := all
		if reverse {
			want = reversed(all)
		}
		for which := range 3 {
			for failAt := 1; failAt <= 4; failAt++ {
				sources := failingSources(which, failAt)
				v := newVisible(scanbatch.View{At: kv.MaxSeqNum}, kv.Range{}, reverse, sources...)
				got := shown(v, 2)
				require.Less(t, len(got), len(want)+1)
				requireEntries(t, want[:len(got)], got)
				require.ErrorIs(t, v.Err(), kv.ErrCorrupt)
				require.False(t, v.Fill(new(scanbatch.Batch)), "for good")
				require.ErrorIs(t, v.Close(), kv.ErrCorrupt)
				for _, s := range sources {
					require.Equal(t, 1, s.(*sliceIterator).closed)
				}
			}
		}
	}
}

// On a backward walk the error may be at the version that must be shown.
func TestABackwardWalkShowsNoOlderVersionForAnError(t *testing.T) {
	for failAt := 1; failAt <= 3; failAt++ {
		source := newSlice(put("a", 4), put("a", 3), put("a", 2))
		source.failAt = failAt
		v := newVisible(scanbatch.View{At: kv.MaxSeqNum}, kv.Range{}, true, source)
		require.Empty(t, shown(v, 8))
		require.ErrorIs(t, v.Err(), kv.ErrCorrupt)
	}
}

// Fill returns from a walk over deleted keys before it finds any item.
func TestFillReturnsFromALongWalkOverWhatIsHidden(t *testing.T) {
	var entries []kv.Entry
	for i := range 10_000 {
		entries = append(entries, del(string([]byte{'a', byte(i >> 8), byte(i)}), 1))
	}
	entries = append(entries, put("b", 1))
	for _, source := range []kv.Iterator{newSlice(entries...), &fillingSource{sliceIterator: newSlice(entries...)}} {
		v := newVisible(scanbatch.View{At: 1}, kv.Range{}, false, source)
		var b scanbatch.Batch
		b.Reset(1, 1<<10, false)
		require.True(t, v.Fill(&b))
		require.Empty(t, b.Items)
		requireEntries(t, []kv.Entry{put("b", 1)}, shown(v, 8))
	}
}

func TestKeysOnlyLeavesValuesOut(t *testing.T) {
	for _, reverse := range []bool{false, true} {
		v := newVisible(scanbatch.View{At: 9}, kv.Range{}, reverse, newSlice(put("a", 2), put("a", 1)), newSlice(put("a", 3)))
		var b scanbatch.Batch
		b.Reset(8, 1<<10, true)
		require.False(t, v.Fill(&b))
		require.Len(t, b.Items, 1)
		require.Equal(t, kv.Item{Key: []byte("a"), Version: 3}, b.Items[0])
	}
}
