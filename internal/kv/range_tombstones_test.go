package kv

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"
)

func TestCoverIsTheNewestTombstoneOverTheKey(t *testing.T) {
	key := rapid.SliceOfN(rapid.SampledFrom([]byte{0x00, 'a', 'b', 0xff}), 1, 3)
	rapid.Check(t, func(t *rapid.T) {
		var tombstones []Entry
		for i := range rapid.IntRange(0, 12).Draw(t, "tombstones") {
			start, end := key.Draw(t, "start"), key.Draw(t, "end")
			if string(start) < string(end) {
				tombstones = append(tombstones, Entry{Key: start, Value: end, Seq: SeqNum(i + 1), Kind: KindRangeDelete})
			}
		}
		probe, at := key.Draw(t, "probe"), SeqNum(rapid.IntRange(0, 13).Draw(t, "at"))
		var want SeqNum
		for _, e := range tombstones {
			if e.Seq <= at && (Range{Start: e.Key, End: e.Value}).Contains(probe) {
				want = max(want, e.Seq)
			}
		}
		cut := rapid.IntRange(0, len(tombstones)).Draw(t, "cut")
		merged := MergeRangeTombstones(NewRangeTombstones(slices.Clone(tombstones[:cut])), NewRangeTombstones(slices.Clone(tombstones[cut:])))
		r := NewRangeTombstones(tombstones)
		for _, r := range []*RangeTombstones{r, merged} {
			assert.Equal(t, want, r.Cover(probe, at))
			assert.Equal(t, len(tombstones), r.Len())
		}
		assert.Equal(t, append([]Entry{}, r.All()...), append([]Entry{}, merged.All()...))
	})
}

func TestNoRangeTombstonesCoverNothing(t *testing.T) {
	var none *RangeTombstones
	assert.Zero(t, none.Len())
	assert.Empty(t, none.All())
	assert.Zero(t, none.Cover([]byte("a"), MaxSeqNum))
}
