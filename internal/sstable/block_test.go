package sstable

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
)

// buildBlock returns the block of entries, with fingerprints from hash.
func buildBlock(t testing.TB, entries []kv.Entry, hash func(key []byte) uint64) block {
	t.Helper()
	var builder blockBuilder
	for i := range entries {
		with := builder.sizeWith(&entries[i])
		builder.add(&entries[i], hash(entries[i].Key))
		require.Equal(t, with, builder.size())
	}
	contents := builder.appendTo(nil, 0)
	require.Len(t, contents, builder.size())
	b, ok := parseBlock(contents)
	require.True(t, ok)
	return b
}

// Keys with equal fingerprints are distinguished, even if all fingerprints are equal.
func TestEqualFingerprintsHideNothing(t *testing.T) {
	same := func([]byte) uint64 { return 0x77 << 24 }
	for _, n := range []int{1, together - 1, together, together + 1, 50} {
		entries := numbered(n, 5)
		b := buildBlock(t, entries, same)
		var h header
		for i := range entries {
			found, ok := b.find(entries[i].Key, same(nil), kv.MaxSeqNum, &h)
			require.True(t, found && ok)
			require.Equal(t, entries[i].Seq, h.seq)
			found, ok = b.find(append(bytes.Clone(entries[i].Key), 'x'), same(nil), kv.MaxSeqNum, &h)
			require.True(t, ok)
			require.False(t, found)
		}
	}
}

// The bytes after the fingerprints, offsets and entries, are compared with them and may
// match.
func TestBytesBehindTheFingerprintsAreNotTakenForOnes(t *testing.T) {
	for print := range 256 {
		for n := 1; n <= together+1; n++ {
			other := func([]byte) uint64 { return uint64(print+1) << 24 }
			b := buildBlock(t, numbered(n, 5), other)
			var h header
			found, ok := b.find([]byte("key00000"), uint64(print)<<24, kv.MaxSeqNum, &h)
			require.True(t, ok)
			require.False(t, found)
			b.touchEntry(uint64(print) << 24)
		}
	}
}

func TestBlocksAroundTheWidthOfOffsetsRoundTrip(t *testing.T) {
	const least = 1<<16 - 80
	for more := range 100 {
		entries := append(numbered(2, least/2), put("z", string(make([]byte, more)), 9))
		b := buildBlock(t, entries, keyhash.Sum)
		require.Equal(t, len(b.data) > 1<<16, offsetBytes(len(b.data)) == 4)
		var h header
		for i := range entries {
			found, ok := b.find(entries[i].Key, keyhash.Sum(entries[i].Key), kv.MaxSeqNum, &h)
			require.True(t, found && ok)
			require.True(t, bytes.Equal(entries[i].Value, b.value(&h)))
		}
	}
	requireTable(t, numbered(700, 300), WriterOptions{BlockBytes: maxBlockBytes})
}

// The common prefix has the largest length that its field can store, and the key is longer.
func TestVersionsOfTheLongestKeyRoundTrip(t *testing.T) {
	key := string(bytes.Repeat([]byte("k"), kv.MaxKeyBytes))
	for _, blockBytes := range []int{0, maxBlockBytes} {
		requireTable(t, []kv.Entry{put(key[:10], "", 1), put(key, "new", 3), put(key, "old", 2)}, WriterOptions{BlockBytes: blockBytes})
		requireTable(t, []kv.Entry{put(key, "new", 3), put(key, "old", 2)}, WriterOptions{BlockBytes: blockBytes})
	}
}

// A block, with its trailer, is no longer than the option says, and the next entry would
// not have fitted into the page.
func TestBlocksAreFilled(t *testing.T) {
	for _, valueBytes := range []int{0, 10, 100, 300} {
		entries := numbered(3_000, valueBytes)
		f, _ := build(t, entries, WriterOptions{})
		r := open(t, f, nil)
		for i := range r.index.blocks() - 1 {
			b, err := r.fetchBlock(i)
			require.NoError(t, err)
			offset, length := r.index.span(i, i)
			require.LessOrEqual(t, length, defaultBlockBytes)
			if offset/pageBytes != (offset+int64(length)-1)/pageBytes {
				require.Equal(t, 1, b.entries)
				continue
			}
			// A prefix that is shorter by one byte makes every entry one byte longer.
			slack := valueBytes + 30 + b.entries
			used := offset%pageBytes + int64(length-len(b.padding()))
			require.Greater(t, used, int64(pageBytes-slack), "block %d", i)
		}
	}
}

// Blocks that no writer makes are damage to walks in both directions, and to a point read
// that reaches the bad bytes.
func TestMalformedBlocksAreDamage(t *testing.T) {
	entries := append(numbered(19, 20), del("key00037", 900))
	good := buildBlock(t, entries, keyhash.Sum)
	offset := func(i int) int { return good.offsets + 2*i }
	u16 := binary.LittleEndian.Uint16
	for name, spoil := range map[string]func(data []byte){
		"no entries":                       func(data []byte) { clear(data[:4]) },
		"one entry more":                   func(data []byte) { data[0]++ },
		"one entry less":                   func(data []byte) { data[0]-- },
		"more entries than bytes":          func(data []byte) { data[3] = 0xff },
		"a longer prefix":                  func(data []byte) { data[4]++ },
		"a prefix longer than the block":   func(data []byte) { data[5] = 0xff },
		"the first offset is in the front": func(data []byte) { data[offset(0)]-- },
		"the first offset is in an entry":  func(data []byte) { data[offset(0)]++ },
		"an offset is after the block":     func(data []byte) { data[offset(7)+1] = 0xff },
		"an offset is zero":                func(data []byte) { copy(data[offset(7):], []byte{0, 0}) },
		"two offsets are the same":         func(data []byte) { copy(data[offset(7):], data[offset(8):][:2]) },
		"an entry too short for its front": func(data []byte) {
			copy(data[offset(7):], binary.LittleEndian.AppendUint16(nil, u16(data[offset(8):])-8))
		},
		"a suffix longer than its entry":    func(data []byte) { data[u16(data[offset(7):])+8] = 0x7f },
		"a length that goes on":             func(data []byte) { data[u16(data[offset(7):])+8] = 0x80 },
		"an unknown kind":                   func(data []byte) { data[u16(data[offset(7):])] = byte(kv.KindMax) },
		"no kind":                           func(data []byte) { data[u16(data[offset(7):])] = 0 },
		"number zero":                       func(data []byte) { clear(data[u16(data[offset(7):])+1:][:7]) },
		"an expiry in a longer form":        func(data []byte) { data[u16(data[offset(7):])] |= flagExpiry; data[u16(data[offset(7):])+9] = 0 },
		"a delete with a value":             func(data []byte) { data[u16(data[offset(7):])] = byte(kv.KindDelete) },
		"a gap before the first entry":      func(data []byte) { copy(data[offset(0):], data[offset(1):][:2]) },
		"the suffix of a delete is shorter": func(data []byte) { data[u16(data[offset(19):])+8]-- },
	} {
		data := bytes.Clone(good.data)
		spoil(data)
		b, ok := parseBlock(data)
		if !ok {
			continue
		}
		it := blockIterator(b)
		for it.at+1 < b.entries && it.step() {
		}
		require.ErrorIs(t, it.err, kv.ErrCorrupt, name)
		require.ErrorContains(t, it.err, "data block is malformed", name)
		back := blockIterator(b)
		back.at = b.entries
		for back.stepBack() {
		}
		require.ErrorIs(t, back.err, kv.ErrCorrupt, name)
		if int(data[0]) == len(entries) && data[4] == good.data[4] {
			r := &Reader{file: &bytesFile{}, index: it.r.index}
			damaged := 0
			for i := range entries {
				q := query(entries[i].Key, kv.MaxSeqNum)
				r.search(&q, 0, &b, 0)
				if q.Err != nil {
					require.ErrorIs(t, q.Err, kv.ErrCorrupt)
					damaged++
				}
			}
			require.Positive(t, damaged, name)
			require.LessOrEqual(t, damaged, 2, fmt.Sprintf("%s: other entries are read", name))
		}
	}
}
