package sstable

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
)

// sweepEntries is a small file with every feature: several blocks, versions that cross
// them, tombstones of both kinds, expiry.
func sweepEntries() []kv.Entry {
	entries := numbered(24, 12)
	for i := range entries {
		entries[i].Seq += 100
	}
	for seq := kv.SeqNum(1); seq < 14; seq++ {
		entries = append(entries, put("key00021", fmt.Sprint("version", seq), seq))
	}
	entries = append(entries, del("key00007", 50), rangeDel("key00030", "key00036", 120), rangeDel("x", "y", 3))
	entries[5].Expiry = 1_700_000_000_000
	sortEntries(entries)
	return entries
}

// requireHonest opens a damaged file and runs every kind of read on it: each answer is
// either right or an error. It returns whether there was any error.
func requireHonest(t *testing.T, data []byte, entries []kv.Entry, questions []Query, damage string) (noticed bool) {
	t.Helper()
	isDamage := func(err error) {
		require.ErrorIs(t, err, kv.ErrCorrupt, damage)
		require.ErrorContains(t, err, "000013.sst", damage)
		noticed = true
	}
	r, err := Open(&bytesFile{data: data}, testID, nil)
	if err != nil {
		isDamage(err)
		return true
	}
	for i := range questions {
		q := query(questions[i].Key, questions[i].At)
		r.Get(&q)
		if q.Err != nil {
			isDamage(q.Err)
			continue
		}
		require.Equal(t, resultOf(&questions[i]), resultOf(&q), "%s: key %q at %d", damage, q.Key, q.At)
	}
	it := r.NewIterator(IterOptions{})
	got, err := collect(it, it.First())
	require.LessOrEqual(t, len(got), len(entries), damage)
	requireSameEntries(t, entries[:len(got)], got)
	if err != nil {
		isDamage(err)
	} else {
		require.Len(t, got, len(entries), damage)
	}
	got, err = collectBack(it, it.Last())
	require.LessOrEqual(t, len(got), len(entries), damage)
	requireSameEntries(t, reversed(entries)[:len(got)], got)
	if err != nil {
		isDamage(err)
	} else {
		require.Len(t, got, len(entries), damage)
	}
	if err := r.Verify(t.Context(), nil); err != nil {
		isDamage(err)
	}
	return noticed
}

// answers returns the questions about entries, each answered by the oracle.
func answers(entries []kv.Entry) []Query {
	qs := questions(entries)
	for i := range qs {
		want := oracle(entries, qs[i].Key, qs[i].At)
		qs[i].Done, qs[i].Kind, qs[i].Seq, qs[i].Expiry, qs[i].Value = want.done, want.kind, want.seq, want.expiry, []byte(want.value)
	}
	return qs
}

func TestAFlippedBitInAnyByteIsNoticed(t *testing.T) {
	for _, entries := range [][]kv.Entry{sweepEntries(), withPointers(sweepEntries())} {
		f, _ := build(t, entries, WriterOptions{BlockBytes: 160})
		qs := answers(entries)
		step := 3
		if testsize.Reduced() {
			step = 9
		}
		for i := 0; i < len(f.data); i += step {
			damaged := bytes.Clone(f.data)
			damaged[i] ^= 1 << (i % 8)
			damage := fmt.Sprintf("bit %d of byte %d flipped", i%8, i)
			require.True(t, requireHonest(t, damaged, entries, qs, damage), damage)
		}
	}
}

func TestEveryTruncationIsNoticedAtOpen(t *testing.T) {
	entries := sweepEntries()
	f, _ := build(t, entries, WriterOptions{BlockBytes: 160})
	for n := range f.data {
		_, err := Open(&bytesFile{data: f.data[:n]}, testID, nil)
		require.ErrorIs(t, err, kv.ErrCorrupt, "cut to %d bytes", n)
	}
	for n := 1; n < 600; n += 7 {
		_, err := Open(&bytesFile{data: append(bytes.Clone(f.data), make([]byte, n)...)}, testID, nil)
		require.ErrorIs(t, err, kv.ErrCorrupt, "%d zero bytes after the end", n)
	}
}

func TestTruncationWhileOpenIsDamageNotTheEnd(t *testing.T) {
	entries := numbered(300, 100)
	f, _ := build(t, entries, WriterOptions{})
	r := open(t, f, nil)
	f.data = f.data[:9_000]
	it := r.NewIterator(IterOptions{})
	_, err := collect(it, it.First())
	require.ErrorIs(t, err, kv.ErrCorrupt)
	require.False(t, it.Last())
	require.ErrorIs(t, it.Err(), kv.ErrCorrupt)
	require.False(t, it.SeekLT(entries[200].Key))
	require.ErrorIs(t, it.Err(), kv.ErrCorrupt)
	q := query(entries[200].Key, kv.MaxSeqNum)
	r.Get(&q)
	require.ErrorIs(t, q.Err, kv.ErrCorrupt)
	require.ErrorContains(t, q.Err, "file ends early: 0 of ")
}

func TestBytesMissingOrAddedInTheMiddleAreNoticedAtOpen(t *testing.T) {
	f, _ := build(t, sweepEntries(), WriterOptions{BlockBytes: 160})
	_, err := Open(&bytesFile{data: f.data[1:]}, testID, nil)
	require.ErrorContains(t, err, "footer names more bytes than the file has")
	_, err = Open(&bytesFile{data: append([]byte{1}, f.data...)}, testID, nil)
	require.ErrorContains(t, err, "the file has 1")
	require.ErrorIs(t, err, kv.ErrCorrupt)
}

func TestEveryZeroedSectorIsNoticed(t *testing.T) {
	const sector = 512
	entries := sweepEntries()
	f, _ := build(t, entries, WriterOptions{BlockBytes: 160})
	qs := answers(entries)
	for at := 0; at < len(f.data); at += sector {
		damaged := bytes.Clone(f.data)
		clear(damaged[at:min(at+sector, len(damaged))])
		require.True(t, requireHonest(t, damaged, entries, qs, fmt.Sprintf("sector at %d zeroed", at)))
	}
}

// An intact block at another place than it was written is damage.
func TestMisplacedBlocksAreNoticed(t *testing.T) {
	// All blocks have the same shape, so that only identity distinguishes them.
	entries := numbered(60, 30)
	other := numbered(60, 30)
	for i := range other {
		other[i].Value = bytes.Repeat([]byte{'!'}, 30)
	}
	f, _ := build(t, entries, WriterOptions{BlockBytes: 200})
	qs := answers(entries)
	r := open(t, f, nil)
	blockOf := func(data []byte, i int) []byte {
		at, n := r.index.span(i, i)
		return data[at:][:n]
	}
	_, length := r.index.span(0, 0)
	for i := range r.index.blocks() - 1 {
		if len(blockOf(f.data, i)) != length || len(blockOf(f.data, i+1)) != length {
			continue
		}
		damaged := bytes.Clone(f.data)
		copy(blockOf(damaged, i), blockOf(f.data, i+1))
		copy(blockOf(damaged, i+1), blockOf(f.data, i))
		require.True(t, requireHonest(t, damaged, entries, qs, "neighbours swapped"))
	}
	for _, id := range []kv.FileID{{Partition: testID.Partition, Num: testID.Num + 1}, {Partition: testID.Partition + 1, Num: testID.Num}} {
		foreign := &bytesFile{}
		w := NewWriter(foreign, id, WriterOptions{BlockBytes: 200})
		for i := range other {
			require.NoError(t, w.Add(&other[i]))
		}
		_, err := w.Finish()
		require.NoError(t, err)
		require.Len(t, foreign.data, len(f.data))
		for i := range r.index.blocks() {
			damaged := bytes.Clone(f.data)
			copy(blockOf(damaged, i), blockOf(foreign.data, i))
			require.True(t, requireHonest(t, damaged, entries, qs, "block of another file"))
		}
		// Replace filter, index and properties by those of the other file, then everything.
		tail := len(f.data) - footerBytes - int(r.footer.tailSize())
		damaged := append(bytes.Clone(f.data[:tail]), foreign.data[tail:len(f.data)-footerBytes]...)
		damaged = append(damaged, f.data[len(f.data)-footerBytes:]...)
		require.True(t, requireHonest(t, damaged, entries, qs, "tail of another file"))
		_, err = Open(foreign, testID, nil)
		require.ErrorIs(t, err, kv.ErrCorrupt)
		require.ErrorContains(t, err, "not file 13 of partition 3")
	}
}

// A filter that lost a bit would hide a live key (planted bug 19).
func TestDamagedFilterHidesNoKey(t *testing.T) {
	entries := numbered(100, 10)
	f, _ := build(t, entries, WriterOptions{})
	r := open(t, f, nil)
	damaged := bytes.Clone(f.data)
	clear(damaged[r.footer.data:][:r.footer.filter-trailerBytes-8])
	requireHonest(t, damaged, entries, answers(entries), "filter without a bit")
}

func TestUnknownVersionIsNotCorruption(t *testing.T) {
	f, _ := build(t, numbered(10, 10), WriterOptions{})
	for _, version := range []uint32{1, formatWithout - 1, formatVersion + 1, 1 << 31} {
		// A footer of another length, as a newer version may have.
		newer := append(bytes.Clone(f.data), "fields that we do not know"...)
		newer = appendEnvelope(newer, len(f.data), version)
		_, err := Open(&bytesFile{data: newer}, testID, nil)
		require.ErrorIs(t, err, kv.ErrUnsupportedVersion)
		require.NotErrorIs(t, err, kv.ErrCorrupt)
	}
	never := appendEnvelope(bytes.Clone(f.data), len(f.data), 0)
	_, err := Open(&bytesFile{data: never}, testID, nil)
	require.ErrorIs(t, err, kv.ErrCorrupt)
	require.ErrorContains(t, err, "format 0")
}

func TestUnknownHashIsRefused(t *testing.T) {
	_, meta := build(t, numbered(1, 1), WriterOptions{})
	var b tailBuilder
	b.data(t, func(w *Writer) {
		e := put("a", "b", 1)
		require.NoError(t, w.Add(&e))
	})
	_, err := Open(b.finish(t, func(dst []byte) []byte { return appendProperties(dst, &meta, "sip-hash") }), testID, nil)
	require.ErrorIs(t, err, kv.ErrUnsupportedVersion)
}
