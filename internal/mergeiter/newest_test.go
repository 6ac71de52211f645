package mergeiter

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvd-db/kvd/internal/kv"
)

// visible is the model of Newest: what a map holds after all writes up to the
// view's number, deletes of ranges among them.
func visible(entries []kv.Entry, v View) []kv.Entry {
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

func TestNewestGivesWhatAMapHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		entries := genEntries().Draw(t, "entries")
		view := View{
			At:     kv.SeqNum(rapid.IntRange(0, len(entries)+1).Draw(t, "at")),
			Now:    uint64(rapid.IntRange(0, 3).Draw(t, "now")),
			Covers: covers(t, len(entries)),
		}
		sources := spread(t, entries)
		for _, c := range view.Covers { // in the stream too, as sources give them
			sources = append(sources, newSlice(c.All()...))
		}
		checkWalks(t, Newest(New(sources...), view), visible(entries, view))
	})
}

func TestNewestShowsEachKeyOnce(t *testing.T) {
	it := Newest(newSlice(
		put("a", 5), del("a", 3), put("a", 2),
		del("b", 6), put("b", 1),
		put("c", 9), put("c", 4),
		put("d", 7),
	), View{At: 6})
	it.First()
	requireEntries(t, []kv.Entry{put("a", 5), put("c", 4)}, rest(it))
	it.Last()
	requireEntries(t, []kv.Entry{put("c", 4), put("a", 5)}, restBack(it))
}

func TestAnExpiredVersionHidesOlderOnes(t *testing.T) {
	lease := put("a", 5)
	lease.Expiry = 100
	for now, want := range map[uint64][]kv.Entry{0: {lease}, 99: {lease}, 100: nil, 101: nil} {
		it := Newest(newSlice(lease, put("a", 3)), View{At: 9, Now: now})
		it.First()
		requireEntries(t, want, rest(it))
		it.Last()
		requireEntries(t, want, restBack(it))
	}
}

func TestARangeTombstoneHidesWhatIsOlder(t *testing.T) {
	tombstone := kv.Entry{Key: []byte("a"), Value: []byte("c"), Seq: 5, Kind: kv.KindRangeDelete}
	covers := []*kv.RangeTombstones{kv.NewRangeTombstones([]kv.Entry{tombstone})}
	entries := []kv.Entry{tombstone, put("a", 5), put("a", 4), put("b", 6), put("b", 3), put("bb", 2), put("c", 1)}
	for at, want := range map[kv.SeqNum][]kv.Entry{
		4: {put("a", 4), put("b", 3), put("bb", 2), put("c", 1)},
		5: {put("a", 5), put("c", 1)}, // what its own batch put stays
		6: {put("a", 5), put("b", 6), put("c", 1)},
	} {
		it := Newest(newSlice(entries...), View{At: at, Covers: covers})
		it.First()
		requireEntries(t, want, rest(it))
		it.Last()
		requireEntries(t, reversed(want), restBack(it))
	}
}

func TestNewestPassesAReadErrorOn(t *testing.T) {
	hidden := newSlice(del("a", 4), put("a", 3), put("a", 2), put("b", 1))
	hidden.failAt = 3
	it := Newest(hidden, View{At: kv.MaxSeqNum})
	assert.False(t, it.First(), "the error comes while it steps over what a tombstone hides")
	assert.False(t, it.Valid())
	assert.ErrorIs(t, it.Err(), kv.ErrCorrupt)
	assert.ErrorIs(t, it.Close(), kv.ErrCorrupt)
	assert.Equal(t, 1, hidden.closed)
}

// On a backward walk the version that must be shown may be the one that cannot be
// read: an older one must not be shown in its place.
func TestNewestBackwardShowsNoOlderVersionForAnError(t *testing.T) {
	for failAt := 1; failAt <= 3; failAt++ {
		source := newSlice(put("a", 4), put("a", 3), put("a", 2))
		source.failAt = failAt
		it := Newest(source, View{At: kv.MaxSeqNum})
		require.False(t, it.Last())
		require.False(t, it.Valid())
		require.ErrorIs(t, it.Err(), kv.ErrCorrupt)
		require.ErrorIs(t, it.Close(), kv.ErrCorrupt)
	}
}
