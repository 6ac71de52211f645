package sstable

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
)

func TestVerifyReadsEveryByte(t *testing.T) {
	f, meta := build(t, numbered(3_000, 100), WriterOptions{})
	r := open(t, f, NewCache(1<<20))
	requireAnswers(t, r, numbered(3_000, 100)[:3]) // Verify must not trust cached blocks
	f.takeReads()
	var progress int64
	require.NoError(t, r.Verify(t.Context(), func(n int64) { progress += n }))
	require.EqualValues(t, meta.Size, progress)
	total := 0
	for _, n := range f.takeReads() {
		total += n
	}
	require.GreaterOrEqual(t, total, int(meta.Size))
}

func TestVerifyNamesEveryDamagedBlock(t *testing.T) {
	f, _ := build(t, numbered(3_000, 100), WriterOptions{})
	r := open(t, f, NewCache(1<<20))
	var want []int64
	for _, i := range []int{0, 3, 4, r.index.blocks() - 1} {
		offset, _ := r.index.span(i, i)
		f.data[offset+10] ^= 1
		want = append(want, offset)
	}
	f.data[r.footer.data+1] ^= 1 // the filter, which was good when the file was opened
	want = append([]int64{int64(r.footer.data)}, want...)

	err := r.Verify(t.Context(), nil)
	var joined interface{ Unwrap() []error }
	require.ErrorAs(t, err, &joined)
	var offsets []int64
	for _, err := range joined.Unwrap() {
		var damage *kv.CorruptionError
		require.ErrorAs(t, err, &damage)
		require.Equal(t, f.Name(), damage.File)
		offsets = append(offsets, damage.Offset)
	}
	require.Equal(t, want, offsets)
}

func TestVerifyBoundsItsReport(t *testing.T) {
	f, _ := build(t, numbered(3_000, 100), WriterOptions{BlockBytes: 512})
	r := open(t, f, nil)
	for i := range int(r.footer.data) {
		f.data[i] = 0
	}
	var joined interface{ Unwrap() []error }
	require.ErrorAs(t, r.Verify(t.Context(), nil), &joined)
	require.Len(t, joined.Unwrap(), maxVerifyErrors)
}

func TestVerifyStopsWithItsContext(t *testing.T) {
	f, _ := build(t, numbered(3_000, 100), WriterOptions{})
	r := open(t, f, nil)
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	err := r.Verify(ctx, func(int64) {
		if calls++; calls == 3 {
			cancel()
		}
	})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 3, calls)
}

func TestVerifyReportsReadErrors(t *testing.T) {
	eio := errors.New("input/output error")
	f, _ := build(t, numbered(3_000, 100), WriterOptions{})
	r := open(t, f, nil)
	f.onRead = func([]byte, int64) error { return eio }
	require.ErrorIs(t, r.Verify(t.Context(), nil), eio)
}

// tailBuilder makes files with valid checksums over wrong contents.
type tailBuilder struct {
	f *bytesFile
	w *Writer
}

// data writes the entries that fill adds, without the tail.
func (b *tailBuilder) data(t *testing.T, fill func(w *Writer)) {
	t.Helper()
	b.f = &bytesFile{}
	b.w = NewWriter(b.f, testID, WriterOptions{BlockBytes: 100})
	fill(b.w)
	require.NoError(t, b.w.cutBlock(nil))
	b.w.census.end(b.w.last.key)
}

// finish writes the tail, with other properties if given.
func (b *tailBuilder) finish(t *testing.T, properties func(dst []byte) []byte) *bytesFile {
	t.Helper()
	require.NoError(t, b.w.writeTail())
	if properties != nil {
		b.w.pending = b.w.pending[:len(b.w.pending)-int(b.w.footer.properties)]
		n, err := b.w.writeBlock(kindProperties, properties)
		require.NoError(t, err)
		b.w.footer.properties = uint64(n)
	}
	b.w.pending = b.w.footer.appendTo(b.w.pending)
	require.NoError(t, b.w.flush())
	return b.f
}

// Checksums prove that the bytes are those that were written. Verify also finds
// what an incorrect writer wrote.
func TestVerifyFindsWhatChecksumsCannot(t *testing.T) {
	fill := func(w *Writer) {
		for _, e := range sweepEntries() {
			require.NoError(t, w.Add(&e))
		}
	}
	for name, test := range map[string]struct {
		lie        func(w *Writer)
		properties func(m kv.TableMeta) kv.TableMeta
		reason     string
	}{
		"entries": {
			properties: func(m kv.TableMeta) kv.TableMeta { m.Entries++; return m },
			reason:     "properties differ",
		},
		"deletes": {
			properties: func(m kv.TableMeta) kv.TableMeta { m.Deletes--; return m },
			reason:     "properties differ",
		},
		"smallest": {
			properties: func(m kv.TableMeta) kv.TableMeta { m.Smallest = []byte("a"); return m },
			reason:     "properties differ",
		},
		"largest": {
			properties: func(m kv.TableMeta) kv.TableMeta { m.Largest = []byte("z"); return m },
			reason:     "properties differ",
		},
		"sequence numbers": {
			properties: func(m kv.TableMeta) kv.TableMeta { m.MaxSeq++; return m },
			reason:     "properties differ",
		},
		"filter": {
			lie: func(w *Writer) {
				victim := keyhash.Sum([]byte("key00014"))
				w.hashes = slices.DeleteFunc(w.hashes, func(h uint64) bool { return h == victim })
			},
			reason: "the filter lacks a key",
		},
		"range tombstones": {
			lie:    func(w *Writer) { w.census.tombstones = w.census.tombstones[:1] },
			reason: "range tombstones differ",
		},
		"count of a block": {
			lie:    func(w *Writer) { w.index.blocks[1].entries++ },
			reason: "the index counts other entries",
		},
		"separator before its block": {
			lie:    func(w *Writer) { w.index.keys[w.index.blocks[0].keyEnd-1] -= 2 },
			reason: "after the separator of its block",
		},
		"old versions": {
			lie:    func(w *Writer) { w.census.stats.stats.Shadowed++ },
			reason: "expiry and old versions",
		},
		"padding": {
			lie:    func(w *Writer) { w.padding++ },
			reason: "other bytes of padding",
		},
		"separator after the next block": {
			lie:    func(w *Writer) { w.index.keys[w.index.blocks[0].keyEnd-1] += 2 },
			reason: "the index leads to another block",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var b tailBuilder
			b.data(t, fill)
			if test.lie != nil {
				test.lie(b.w)
			}
			var properties func(dst []byte) []byte
			if test.properties != nil {
				m := test.properties(b.w.census.meta)
				properties = func(dst []byte) []byte {
					return appendStats(appendProperties(dst, &m, keyhash.Name), &b.w.census.stats.stats)
				}
			}
			r := open(t, b.finish(t, properties), nil)
			err := r.Verify(t.Context(), nil)
			require.ErrorIs(t, err, kv.ErrCorrupt)
			require.ErrorContains(t, err, test.reason)
		})
	}
}

func TestVerifyFindsEntriesOutOfOrder(t *testing.T) {
	var b tailBuilder
	b.data(t, func(w *Writer) {
		for _, key := range []string{"b", "a"} {
			e := put(key, "", 1)
			w.block.add(&e, keyhash.Sum(e.Key))
			w.census.add(&e, newKey)
			w.hashes = append(w.hashes, keyhash.Sum(e.Key))
		}
		w.last.key = []byte("b")
	})
	b.w.census.meta.Smallest = []byte("a")
	r := open(t, b.finish(t, nil), nil)
	require.ErrorContains(t, r.Verify(t.Context(), nil), "out of order")
}

// A wrong fingerprint hides its key from point reads.
func TestVerifyFindsAWrongFingerprint(t *testing.T) {
	var b tailBuilder
	b.data(t, func(w *Writer) {
		for _, e := range numbered(5, 5) {
			require.NoError(t, w.Add(&e))
		}
		w.block.fingerprints[len(w.block.fingerprints)-1]++
	})
	r := open(t, b.finish(t, nil), nil)
	require.ErrorContains(t, r.Verify(t.Context(), nil), "a fingerprint is not that of its key")
}
