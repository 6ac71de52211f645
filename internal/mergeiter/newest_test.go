package mergeiter

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvd-db/kvd/internal/kv"
)

// visible is the model of Newest: what a map holds after all writes up to at.
func visible(entries []kv.Entry, at kv.SeqNum) []kv.Entry {
	newest := map[string]kv.SeqNum{}
	for _, e := range entries {
		if e.Seq <= at {
			newest[string(e.Key)] = max(newest[string(e.Key)], e.Seq)
		}
	}
	var shown []kv.Entry
	for _, e := range entries {
		if newest[string(e.Key)] == e.Seq && e.Kind != kv.KindDelete {
			shown = append(shown, e)
		}
	}
	return shown
}

func TestNewestGivesWhatAMapHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		entries := genEntries().Draw(t, "entries")
		at := kv.SeqNum(rapid.IntRange(0, len(entries)+1).Draw(t, "at"))
		checkWalks(t, Newest(New(spread(t, entries)...), at), visible(entries, at))
	})
}

func TestNewestShowsEachKeyOnce(t *testing.T) {
	it := Newest(newSlice(
		put("a", 5), del("a", 3), put("a", 2),
		del("b", 6), put("b", 1),
		put("c", 9), put("c", 4),
		put("d", 7),
	), 6)
	it.First()
	requireEntries(t, []kv.Entry{put("a", 5), put("c", 4)}, rest(it))
}

func TestNewestPassesAReadErrorOn(t *testing.T) {
	hidden := newSlice(del("a", 4), put("a", 3), put("a", 2), put("b", 1))
	hidden.failAt = 3
	it := Newest(hidden, kv.MaxSeqNum)
	assert.False(t, it.First(), "the error comes while it steps over what a tombstone hides")
	assert.False(t, it.Valid())
	assert.ErrorIs(t, it.Err(), kv.ErrCorrupt)
	assert.ErrorIs(t, it.Close(), kv.ErrCorrupt)
	assert.Equal(t, 1, hidden.closed)
}

func TestNewestRefusesARangeTombstone(t *testing.T) {
	source := func() kv.Iterator {
		return newSlice(put("a", 1),
			kv.Entry{Key: []byte("b"), Value: []byte("d"), Seq: 5, Kind: kv.KindRangeDelete}, put("c", 2))
	}
	it := Newest(source(), 5)
	require.True(t, it.First())
	require.False(t, it.Next())
	require.ErrorContains(t, it.Err(), "range tombstone")
	require.False(t, it.First(), "an error is final")
	require.ErrorContains(t, it.Close(), "range tombstone")

	it = Newest(source(), 4)
	it.First()
	requireEntries(t, []kv.Entry{put("a", 1), put("c", 2)}, rest(it))
	require.NoError(t, it.Err(), "a newer range tombstone is not visible")
}
