package sstable

import (
	"bytes"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/scanbatch"
)

// requireModest runs f and fails if it allocates too much for the size of its input.
func requireModest(t *testing.T, input int, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	require.LessOrEqual(t, after.TotalAlloc-before.TotalAlloc, uint64(32*input+256<<10))
}

// goldenParts returns the contents of the blocks of one kind in good files.
func goldenParts(f *testing.F, kind blockKind) [][]byte {
	sweep, _ := build(f, sweepEntries(), WriterOptions{BlockBytes: 160})
	padded, _ := build(f, paddedEntries(), WriterOptions{})
	return append(partsOf(f, sweep, kind), partsOf(f, padded, kind)...)
}

func partsOf(f *testing.F, file *bytesFile, kind blockKind) [][]byte {
	r := open(f, file, nil)
	part := func(offset, length uint64) []byte { return file.data[offset:][:length-trailerBytes] }
	var parts [][]byte
	at := r.footer
	switch kind {
	case kindData:
		for i := range r.index.blocks() {
			parts = append(parts, part(r.index.offsets[i], r.index.offsets[i+1]-r.index.offsets[i]))
		}
	case kindFilter:
		parts = append(parts, part(at.data, at.filter))
	case kindIndex:
		parts = append(parts, part(at.data+at.filter, at.index))
	case kindRanges:
		parts = append(parts, part(at.data+at.filter+at.index, at.ranges))
	case kindProperties:
		parts = append(parts, part(at.data+at.filter+at.index+at.ranges, at.properties))
	}
	return parts
}

// blockIterator returns an iterator over one block, not yet positioned.
func blockIterator(b block) *Iterator {
	r := &Reader{file: &bytesFile{}, index: index{offsets: []uint64{0, uint64(len(b.data))}, prefixes: []uint64{0}, fieldsAt: []uint32{0}, contents: make([]byte, minIndexFields)}}
	return &Iterator{r: r, block: b, at: -1, key: bytes.Clone(b.prefix())}
}

func FuzzBlock(f *testing.F) {
	for _, contents := range goldenParts(f, kindData) {
		f.Add(contents, []byte("key00021"), uint64(5))
	}
	var wide blockBuilder
	for _, e := range numbered(3, 1<<15) {
		wide.add(&e, keyhash.Sum(e.Key))
	}
	f.Add(wide.appendTo(nil, 0), []byte("key00002"), uint64(5))
	f.Add([]byte{}, []byte{}, uint64(0))
	f.Fuzz(func(t *testing.T, contents, key []byte, seq uint64) {
		b, ok := parseBlock(contents)
		if !ok {
			return
		}
		var h header
		requireModest(t, len(contents), func() {
			if found, ok := b.find(key, keyhash.Sum(key), kv.SeqNum(seq), &h); ok && found {
				require.LessOrEqual(t, h.seq, kv.SeqNum(seq))
				require.Equal(t, key, append(bytes.Clone(b.prefix()), b.suffix(&h)...))
				_ = b.value(&h)
			}
			b.touchEntry(keyhash.Sum(key))
			touchFront(contents)
			if i, ok := b.seek(key); ok {
				require.True(t, i >= 0 && i <= b.entries)
			}
		})
		// An iterator ends at the last entry or with an error.
		it := blockIterator(b)
		var last position
		ordered := true
		var entries []kv.Entry
		for it.at+1 < b.entries && it.step() {
			e := &it.entry
			relation := last.relation(e)
			ordered = ordered && relation != outOfOrder && relation != tied
			last.move(e, relation)
			entries = append(entries, cloneEntry(e))
		}
		// So does Fill, which does not validate the rest of an older version.
		fill := blockIterator(b)
		if fill.walk = forward; fill.step() {
			var batch scanbatch.Batch
			batch.Reset(1<<20, 1<<30, false)
			passed := fill.Fill(&batch, &scanbatch.View{At: kv.MaxSeqNum}, nil)
			require.GreaterOrEqual(t, passed, len(entries))
			require.True(t, it.err != nil || passed == len(entries))
		}
		require.True(t, it.err != nil || fill.err == nil)
		// A backward walk visits the same entries, from the last to the first or to an error.
		back := blockIterator(b)
		back.walk, back.at = backward, b.entries
		var met []kv.Entry
		for ok := back.stepBack(); ok; ok = back.Prev() {
			met = append(met, cloneEntry(back.Entry()))
		}
		require.Equal(t, it.err == nil, back.err == nil)
		if it.err != nil {
			return
		}
		requireSameEntries(t, entries, reversed(met))
		var builder blockBuilder
		for i := range entries {
			builder.add(&entries[i], keyhash.Sum(entries[i].Key))
		}
		if !ordered || !bytes.Equal(builder.appendTo(nil, len(b.padding())), contents) {
			return // not what a writer makes
		}
		for i := range entries {
			e := &entries[i]
			found, ok := b.find(e.Key, keyhash.Sum(e.Key), e.Seq, &h)
			require.True(t, found && ok)
			require.Equal(t, e.Kind, h.kind)
			require.True(t, bytes.Equal(e.Value, b.value(&h)))
			n, ok := b.seek(e.Key)
			require.True(t, ok && n <= i && bytes.Equal(entries[n].Key, e.Key))
		}
	})
}

func FuzzFilter(f *testing.F) {
	f.Add(goldenParts(f, kindFilter)[0], uint64(1))
	f.Add(appendFilter(nil, []uint64{1, 2, 3}, 10), uint64(3))
	f.Fuzz(func(t *testing.T, contents []byte, hash uint64) {
		filter, ok := parseFilter(contents)
		if ok {
			filter.mayContain(hash)
			filter.mayContain(^hash)
		}
	})
}

func FuzzIndex(f *testing.F) {
	f.Add(goldenParts(f, kindIndex)[0], uint64(1000), []byte("key00021"), uint64(5))
	f.Fuzz(func(t *testing.T, contents []byte, dataEnd uint64, key []byte, seq uint64) {
		var x index
		var ok bool
		requireModest(t, len(contents), func() { x, ok = parseIndex(contents, dataEnd) })
		if !ok {
			return
		}
		i := x.find(key, kv.SeqNum(seq))
		require.True(t, i >= 0 && i <= x.blocks())
		var b indexBuilder
		for i := range x.blocks() {
			fields := x.fields(i)
			b.keys = append(append(b.keys, x.common...), fields.suffix...)
			b.add(fields.seq, int(fields.length), int(fields.entries))
			require.Equal(t, i, x.find(b.keys[len(b.keys)-len(fields.suffix)-len(x.common):], fields.seq))
		}
		require.True(t, bytes.Equal(contents, b.appendTo(nil)), "what is accepted is what a writer makes")
	})
}

func FuzzRanges(f *testing.F) {
	f.Add(goldenParts(f, kindRanges)[0], []byte("key00031"), uint64(200))
	f.Fuzz(func(t *testing.T, contents, key []byte, at uint64) {
		var r *kv.RangeTombstones
		var ok bool
		requireModest(t, len(contents), func() { r, ok = parseRanges(contents) })
		if !ok {
			return
		}
		require.Equal(t, oracle(r.All(), key, kv.SeqNum(at)).seq, r.Cover(key, kv.SeqNum(at)))
		require.True(t, bytes.Equal(contents, appendRanges(nil, r.All())))
	})
}

func FuzzProperties(f *testing.F) {
	parts := goldenParts(f, kindProperties)
	good := parts[0]
	f.Add(good)
	f.Add(parts[1])
	f.Add(append([]byte{good[0] | 0x80, 0}, good[1:]...))               // the first number not in its shortest form
	f.Add(append(bytes.Clone(good[:len(good)-1]), 2, 5, 1, 9, 7, 2, 3)) // with pointers into two value files
	f.Fuzz(func(t *testing.T, contents []byte) {
		var m kv.TableMeta
		requireModest(t, len(contents), func() {
			for _, version := range []uint32{formatWithout, formatStats, formatVersion} {
				var s kv.TableStats
				m = kv.TableMeta{}
				name, padding, ok := parseProperties(contents, version, &m, &s)
				if !ok {
					continue
				}
				again := appendProperties(nil, &m, name)
				if version >= formatStats {
					again = appendStats(again, &s)
				}
				if version >= formatVersion {
					again = appendPadding(again, padding)
				}
				require.True(t, bytes.Equal(contents, again))
			}
		})
	})
}

func FuzzFooter(f *testing.F) {
	file, _ := build(f, sweepEntries(), WriterOptions{BlockBytes: 160})
	f.Add(file.data[len(file.data)-footerBytes:], uint64(len(file.data)))
	f.Fuzz(func(t *testing.T, tail []byte, size uint64) {
		if size < uint64(len(tail)) {
			return
		}
		for _, tail := range [][]byte{tail, appendEnvelope(bytes.Clone(tail), 0, formatVersion)} {
			footer, reason, err := parseFooter(tail, max(size, uint64(len(tail))))
			if reason == "" && err == nil {
				require.Equal(t, max(size, uint64(len(tail))), footer.fileSize())
				require.True(t, bytes.HasSuffix(tail, footer.appendTo(nil)))
			}
		}
	})
}

// Any bytes as a whole file: opening, reading and verifying end with an error
// or an answer.
func FuzzFile(f *testing.F) {
	for _, entries := range [][]kv.Entry{sweepEntries(), withPointers(sweepEntries()), numbered(1, 1)} {
		file, _ := build(f, entries, WriterOptions{BlockBytes: 160})
		f.Add(file.data, []byte("key00021"))
	}
	padded, _ := build(f, paddedEntries(), WriterOptions{})
	f.Add(padded.data, []byte("key00021"))
	f.Fuzz(func(t *testing.T, data, key []byte) {
		r, err := Open(&bytesFile{data: data}, testID, nil)
		if err != nil {
			return
		}
		q := query(key, kv.MaxSeqNum)
		r.Get(&q)
		it := r.NewIterator(IterOptions{})
		_, err = collect(it, it.First())
		_, backErr := collectBack(it, it.Last())
		it.SeekLT(key)
		if err != nil || backErr != nil || it.Err() != nil {
			require.Error(t, r.Verify(t.Context(), nil))
		}
	})
}
