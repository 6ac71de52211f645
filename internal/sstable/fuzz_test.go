package sstable

import (
	"bytes"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
)

// requireModest runs f and fails if it allocates out of proportion to its input.
func requireModest(t *testing.T, input int, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	require.LessOrEqual(t, after.TotalAlloc-before.TotalAlloc, uint64(32*input+256<<10))
}

// goldenParts returns the contents of the blocks of one kind in a good file.
func goldenParts(f *testing.F, kind blockKind) [][]byte {
	file, _ := build(f, sweepEntries(), WriterOptions{BlockBytes: 160})
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

func FuzzBlock(f *testing.F) {
	for _, contents := range goldenParts(f, kindData) {
		f.Add(contents, []byte("key00021"), uint64(5))
	}
	f.Add([]byte{}, []byte{}, uint64(0))
	f.Fuzz(func(t *testing.T, contents, key []byte, seq uint64) {
		b, ok := parseBlock(contents)
		if !ok {
			return
		}
		var h header
		requireModest(t, len(contents), func() {
			if found, ok := b.find(key, kv.SeqNum(seq), &h); ok && found {
				_ = b.valueBytes(&h)
			}
		})
		// An iterator walks to the end or to an error, and what it finds on the
		// way can be looked up if the block is in order.
		r := &Reader{file: &bytesFile{}, index: index{offsets: []uint64{0, uint64(len(contents))}, prefixes: []uint64{0}}}
		it := Iterator{r: r, block: b}
		var last position
		ordered := true
		var entries []kv.Entry
		for it.next < b.limit && it.read(&it.entry) {
			e := &it.entry
			relation := last.relation(e)
			ordered = ordered && relation != outOfOrder && relation != tied
			last.move(e, relation)
			entries = append(entries, cloneEntry(e))
		}
		// So does a Fill.
		fill := Iterator{r: r, block: b, walk: forward}
		if b.limit > 0 && fill.read(&fill.entry) {
			var batch kv.Batch
			batch.Reset(1<<20, 1<<30, false)
			fill.at = &fill.entry
			require.Equal(t, len(entries), fill.Fill(&batch, &kv.View{At: kv.MaxSeqNum}, nil))
		}
		require.Equal(t, it.err, fill.err)
		// A backward walk meets the same, or finds that no writer made the block.
		back := Iterator{r: r, block: b}
		require.True(t, back.beginBack())
		first := func() bool { return back.readInterval(b.restarts-1) && back.stepBack() }
		requireModest(t, 4*len(contents), func() {
			for ok := first(); ok; ok = back.Prev() {
			}
		})
		if back.err == nil {
			require.NoError(t, it.err)
			met := len(entries)
			for ok := first(); ok; ok = back.Prev() {
				met--
				require.GreaterOrEqual(t, met, 0)
				requireEntry(t, &entries[met], back.Entry())
			}
			require.Zero(t, met)
		}
		var builder blockBuilder
		for i := range entries {
			builder.add(&entries[i])
		}
		if it.err != nil || !ordered || !bytes.Equal(builder.finish(), contents) {
			return // not what a writer makes
		}
		require.NoError(t, back.err)
		for i := range entries {
			found, ok := b.find(entries[i].Key, entries[i].Seq, &h)
			require.True(t, found && ok)
			require.Equal(t, entries[i].Kind, h.kind)
			require.True(t, bytes.Equal(entries[i].Value, b.valueBytes(&h)))
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
	good := goldenParts(f, kindProperties)[0]
	f.Add(good)
	f.Add(append([]byte{good[0] | 0x80, 0}, good[1:]...)) // the first number in a longer form
	f.Add(append(bytes.Clone(good), 2, 5, 1, 9, 7, 2, 3)) // with pointers into two value files
	f.Fuzz(func(t *testing.T, contents []byte) {
		for _, pointers := range []bool{false, true} {
			var m kv.TableMeta
			requireModest(t, len(contents), func() {
				if name, ok := parseProperties(contents, pointers, &m); ok {
					require.Equal(t, pointers, len(m.Values) > 0)
					require.True(t, bytes.Equal(contents, appendProperties(nil, &m, name)))
				}
			})
		}
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
