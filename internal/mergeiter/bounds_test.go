package mergeiter

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/kvd-db/kvd/internal/kv"
)

func TestBoundedGivesTheRange(t *testing.T) {
	bound := rapid.OneOf(rapid.Just[[]byte](nil), genKey(), rapid.Just([]byte{}))
	rapid.Check(t, func(t *rapid.T) {
		entries := genEntries().Draw(t, "entries")
		r := kv.Range{Start: bound.Draw(t, "start"), End: bound.Draw(t, "end")}
		var want []kv.Entry
		for _, e := range entries {
			if r.Contains(e.Key) {
				want = append(want, e)
			}
		}
		checkWalks(t, Bounded(New(spread(t, entries)...), r), want)
	})
}

func TestBoundedPassesAReadErrorOn(t *testing.T) {
	s := newSlice(put("a", 1), put("b", 2), put("c", 3))
	s.failAt = 2
	it := Bounded(s, kv.Range{Start: []byte("a"), End: []byte("z")})
	assert.True(t, it.First())
	assert.False(t, it.Next())
	assert.ErrorIs(t, it.Err(), kv.ErrCorrupt)
	assert.ErrorIs(t, it.Close(), kv.ErrCorrupt)
	assert.Equal(t, 1, s.closed)
}

func TestTurningRoundPanics(t *testing.T) {
	source := func() kv.Iterator { return New(newSlice(put("a", 1), put("c", 3)), newSlice(put("b", 2))) }
	for name, it := range map[string]kv.Iterator{
		"merge":   source(),
		"bounded": Bounded(source(), kv.Range{}),
	} {
		require.True(t, it.First(), name)
		require.Panics(t, func() { it.Prev() }, name)
		require.True(t, it.SeekLT([]byte("c")), name)
		require.Panics(t, func() { it.Next() }, name)
		require.Equal(t, "b", string(it.Entry().Key), name)
		require.True(t, it.SeekGE([]byte("b")), name)
		require.Equal(t, []kv.Entry{put("b", 2), put("c", 3)}, rest(it), name)
		require.True(t, it.Last(), name)
		require.Equal(t, []kv.Entry{put("c", 3), put("b", 2), put("a", 1)}, restBack(it), name)
	}
}
