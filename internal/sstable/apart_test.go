package sstable

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
)

// withPointers replaces the value of every third put by a pointer into value file 7 or
// 300.
func withPointers(entries []kv.Entry) []kv.Entry {
	for i := range entries {
		if e := &entries[i]; e.Kind == kv.KindPut && i%3 == 0 {
			p := kv.ValuePointer{File: [...]kv.FileNum{7, 300}[i%2], Offset: uint64(1000 * i), Length: uint32(500 + i)}
			e.Value, e.Apart = p.AppendTo(nil), true
		}
	}
	return entries
}

// refs counts what entries need of each value file.
func refs(entries []kv.Entry) (want []kv.ValueRef) {
	for _, file := range []kv.FileNum{7, 300} {
		ref := kv.ValueRef{File: file}
		for _, e := range entries {
			if p, ok := kv.ParseValuePointer(e.Value); e.Apart && ok && p.File == file {
				ref.Values++
				ref.Bytes += uint64(p.Length)
			}
		}
		want = append(want, ref)
	}
	return want
}

func TestPointersAreHandedOn(t *testing.T) {
	entries := withPointers(sweepEntries())
	f, meta := build(t, entries, WriterOptions{BlockBytes: 160})
	require.Equal(t, refs(entries), meta.Values)
	r := open(t, f, nil)
	require.Equal(t, meta, r.Meta())
	it := r.NewIterator(IterOptions{})
	got, err := collect(it, it.First())
	require.NoError(t, err)
	require.Equal(t, len(entries), len(got))
	for i := range entries {
		require.Equal(t, entries[i].Apart, got[i].Apart)
		require.True(t, bytes.Equal(entries[i].Value, got[i].Value))
	}
	for i := range entries {
		e := &entries[i]
		if e.Kind != kv.KindPut {
			continue
		}
		budget := kv.NewReadBudget(0)
		q := query(e.Key, e.Seq)
		q.Value, q.Budget = []byte("room"), budget
		r.Get(&q)
		require.NoError(t, q.Err)
		require.Equal(t, e.Apart, q.Apart)
		if e.Apart {
			p, _ := kv.ParseValuePointer(e.Value)
			require.Equal(t, p, q.Pointer)
			require.Equal(t, "room", string(q.Value), "the value is for others to read")
			require.True(t, budget.Spent(), "the budget is that of the value, not of the pointer")
			r.Get(&q)
		} else {
			require.Equal(t, string(e.Value), string(q.Value))
		}
	}
	require.NoError(t, r.Verify(t.Context(), nil))
}

func TestGoldenFileWithPointers(t *testing.T) {
	entries := withPointers(sweepEntries())
	f, meta := build(t, entries, WriterOptions{BlockBytes: 160})
	r := open(t, golden(t, formatStats, "pointers.sst", f), nil)
	require.Equal(t, meta, r.Meta())
	requireAnswers(t, r, entries)
	require.NoError(t, r.Verify(t.Context(), nil))
}

func TestVerifyCountsPointers(t *testing.T) {
	entries := withPointers(sweepEntries())
	f := &bytesFile{}
	w := NewWriter(f, testID, WriterOptions{})
	for i := range entries {
		require.NoError(t, w.Add(&entries[i]))
	}
	ref := w.census.values[7]
	ref.Bytes++
	w.census.values[7] = ref
	_, err := w.Finish()
	require.NoError(t, err)
	require.ErrorContains(t, open(t, f, nil).Verify(t.Context(), nil), "properties differ")
}

func TestWriterRefusesWrongPointers(t *testing.T) {
	good := kv.ValuePointer{File: 1, Length: 1}.AppendTo(nil)
	for name, e := range map[string]kv.Entry{
		"a delete":  {Key: []byte("k"), Value: good, Seq: 1, Kind: kv.KindDelete, Apart: true},
		"malformed": {Key: []byte("k"), Value: []byte("x"), Seq: 1, Kind: kv.KindPut, Apart: true},
		"cut":       {Key: []byte("k"), Value: good[:2], Seq: 1, Kind: kv.KindPut, Apart: true},
	} {
		w := NewWriter(&bytesFile{}, testID, WriterOptions{})
		require.ErrorIs(t, w.Add(&e), kv.ErrInvalidArgument, name)
	}
}

// A malformed pointer in an intact block is damage to every read that reaches it.
func TestMalformedPointerIsDamage(t *testing.T) {
	e := put("k", "\x00yz", 1)
	var b blockBuilder
	b.add(&e, keyhash.Sum(e.Key))
	contents := b.appendTo(nil, 0)
	contents[len(contents)-len("\x00yz")-minEntryBytes] |= flagApart
	block, ok := parseBlock(contents)
	require.True(t, ok)
	it := blockIterator(block)
	require.False(t, it.read(0))
	require.ErrorIs(t, it.err, kv.ErrCorrupt)
	q := query([]byte("k"), 1)
	it.r.search(&q, 0, &block, 0)
	require.ErrorIs(t, q.Err, kv.ErrCorrupt)
}
