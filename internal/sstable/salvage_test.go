package sstable

import (
	"bytes"
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
)

// salvaged returns the entries that Salvage passes on.
func salvaged(t testing.TB, data []byte) ([]kv.Entry, Salvaged) {
	t.Helper()
	var entries []kv.Entry
	found, err := Salvage(context.Background(), &bytesFile{data: data}, testID, func(e *kv.Entry) error {
		entries = append(entries, cloneEntry(e))
		return nil
	})
	require.NoError(t, err)
	require.EqualValues(t, len(entries), found.Entries)
	return entries, found
}

// requireSalvaged checks that nothing is invented, that whatever is missing is in a gap, and
// returns how many entries are missing.
func requireSalvaged(t testing.TB, entries []kv.Entry, data []byte, what string, at int) (missing int) {
	t.Helper()
	got, found := salvaged(t, data)
	for _, e := range entries {
		if len(got) > 0 && got[0].Seq == e.Seq && got[0].Kind == e.Kind && bytes.Equal(got[0].Key, e.Key) {
			requireEntry(t, &e, &got[0])
			got = got[1:]
			continue
		}
		missing++
		require.True(t, slices.ContainsFunc(found.Gaps, func(g Gap) bool {
			return bytes.Compare(g.After, e.Key) <= 0 && (g.Before == nil || bytes.Compare(e.Key, g.Before) <= 0)
		}), "%s at %d: %q/%d is missing, and in no gap: %+v", what, at, e.Key, e.Seq, found.Gaps)
	}
	require.Empty(t, got, "%s at %d: invented", what, at)
	require.Equal(t, missing > 0, missing > 0 && len(found.Damage) > 0, "%s at %d", what, at)
	return missing
}

// A damaged byte costs the entries of at most one block, wherever it is.
func TestSalvageKeepsEveryBlockThatVerifies(t *testing.T) {
	t.Parallel()
	entries := sweepEntries()
	f, meta := build(t, entries, WriterOptions{BlockBytes: 160})
	r := open(t, f, nil)
	most := uint64(0)
	for i := range r.index.blocks() {
		most = max(most, r.index.fields(i).entries)
	}
	require.Greater(t, r.index.blocks(), 4)
	data := int(r.footer.data)

	got, found := salvaged(t, f.data)
	requireSameEntries(t, entries, got)
	require.Empty(t, found.Damage)
	require.Equal(t, meta.Entries, found.Meta.Entries)

	stride := 1
	if testsize.Reduced() {
		stride = 7
	}
	for at := 0; at < len(f.data); at += stride {
		flipped := bytes.Clone(f.data)
		flipped[at] ^= 1 << (at % 8)
		missing := requireSalvaged(t, entries, flipped, "flip", at)
		if at >= data {
			require.Zero(t, missing, "byte %d is not of the data", at)
		}
		require.LessOrEqual(t, uint64(missing), most)

		// Without an index the blocks are searched.
		clear(flipped[data:])
		require.LessOrEqual(t, uint64(requireSalvaged(t, entries, flipped, "flip without index", at)), most)

		cut := requireSalvaged(t, entries, f.data[:at], "cut", at)
		whole := uint64(0)
		for i := range r.index.blocks() {
			if r.index.offsets[i+1] <= uint64(at) {
				whole += r.index.fields(i).entries
			}
		}
		require.Equal(t, len(entries)-int(whole), cut, "cut at %d: every whole block is kept", at)
	}
}

// The blocks of a file with the largest entries, and with one entry, are found as well.
func TestSalvageFindsBlocksOfEverySize(t *testing.T) {
	for _, entries := range [][]kv.Entry{
		{put("a", "", 1)},
		{put("a", "1", 3), put("b", string(bytes.Repeat([]byte{1}, 200<<10)), 2), put("c", "3", 1)},
		numbered(3000, 10),
		paddedEntries(),
	} {
		f, _ := build(t, entries, WriterOptions{})
		clear(f.data[len(f.data)-footerBytes:])
		got, found := salvaged(t, f.data)
		requireSameEntries(t, entries, got)
		require.Empty(t, found.Gaps)
		require.NotNil(t, found.Meta, "the properties are found after the index")
	}
}

// Nothing is taken from a file that belongs elsewhere.
func TestSalvageTakesNothingOfAnotherFile(t *testing.T) {
	f, _ := build(t, numbered(100, 10), WriterOptions{})
	other := kv.FileID{Partition: testID.Partition, Num: testID.Num + 1}
	visit := func(*kv.Entry) error { panic("an entry of another file") }
	found, err := Salvage(t.Context(), f, other, visit)
	require.NoError(t, err)
	require.NotEmpty(t, found.Foreign)
	clear(f.data[len(f.data)-footerBytes:])
	found, err = Salvage(t.Context(), f, other, visit)
	require.NoError(t, err)
	require.Zero(t, found.Entries)
}

func FuzzSalvage(f *testing.F) {
	whole, _ := build(f, sweepEntries(), WriterOptions{BlockBytes: 160})
	f.Add(whole.data)
	f.Add(whole.data[:len(whole.data)/2])
	padded, _ := build(f, paddedEntries(), WriterOptions{})
	f.Add(padded.data[:pageBytes])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		entries, _ := salvaged(t, data)
		var last position
		for i := range entries {
			relation := last.relation(&entries[i])
			require.NotEqual(t, outOfOrder, relation)
			last.move(&entries[i], relation)
		}
	})
}
