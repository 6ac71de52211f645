package sstable

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
)

var update = flag.Bool("update", false, "write the golden files that the writer makes anew")

// golden returns the golden file of a format version with this name. The writer must
// still produce it byte for byte, as f.
func golden(t *testing.T, version int, name string, f *bytesFile) *bytesFile {
	t.Helper()
	path := filepath.Join("testdata", fmt.Sprintf("v%d", version), name)
	if *update {
		require.NoError(t, os.WriteFile(path, f.data, 0o644))
	}
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, bytes.Equal(data, f.data), "the writer no longer makes format version %d", version)
	return &bytesFile{data: data}
}

// Versions 1 and 2 were never released, and are refused as unsupported.
func TestOlderVersionsAreRefused(t *testing.T) {
	for _, version := range []string{"v1", "v2"} {
		data, err := os.ReadFile(filepath.Join("testdata", version, "000013.sst"))
		require.NoError(t, err)
		_, err = Open(&bytesFile{data: data}, testID, nil)
		require.ErrorIs(t, err, kv.ErrUnsupportedVersion)
	}
}

// Files of version 3 are read, with empty stats.
func TestVersion3IsRead(t *testing.T) {
	for _, name := range []string{"000013.sst", "pointers.sst"} {
		data, err := os.ReadFile(filepath.Join("testdata", "v3", name))
		require.NoError(t, err)
		r := open(t, &bytesFile{data: data}, nil)
		require.NoError(t, r.Verify(t.Context(), nil))
		require.True(t, r.stats.None())
		if name == "000013.sst" {
			requireAnswers(t, r, sweepEntries())
		}
	}
}

// A file without stats is written as version 3, which older releases can read.
func TestVersion3IsWrittenWithoutStats(t *testing.T) {
	f, _ := build(t, numbered(3, 5), WriterOptions{})
	r := open(t, f, nil)
	require.EqualValues(t, formatWithout, r.footer.version)
	require.True(t, r.stats.None())
}

func TestStatsSayWhatAMergeWouldDrop(t *testing.T) {
	var entries []kv.Entry
	for i := range 2000 {
		e := put(fmt.Sprintf("key%06d", i), "v", kv.SeqNum(i+10))
		if i%2 == 0 {
			e.Expiry = uint64(1000 + i)
		}
		entries = append(entries, e)
		if i < 100 {
			entries = append(entries, put(string(e.Key), "older", 2), del(string(e.Key), 1))
		}
	}
	entries = append(entries, rangeDel("key000000", "key000003", 10), rangeDel("key000000", "key000004", 3))
	sortEntries(entries)
	f, _ := build(t, entries, WriterOptions{})
	r := open(t, f, nil)
	require.EqualValues(t, formatVersion, r.footer.version, "blocks are padded")
	require.Positive(t, r.Padding())
	s := r.Stats()
	require.EqualValues(t, 200, s.Shadowed)
	require.EqualValues(t, 1000, s.Expiring)
	require.Len(t, s.Expiries, kv.MaxExpiries)
	require.EqualValues(t, 1000, s.Expiries[0])
	require.EqualValues(t, 2998, s.Expiries[8])
	require.InDelta(t, 500, s.Expired(2000), 20)
	require.NoError(t, r.Verify(t.Context(), nil))
}

func TestGoldenFile(t *testing.T) {
	entries := sweepEntries()
	f, _ := build(t, entries, WriterOptions{BlockBytes: 160})
	r := open(t, golden(t, formatStats, "000013.sst", f), nil)
	require.Equal(t, kv.TableMeta{
		Num: 13, Size: uint64(len(f.data)), Entries: 40, Deletes: 3,
		Smallest: []byte("key00000"), Largest: []byte("y"), MinSeq: 1, MaxSeq: 124,
	}, r.Meta())
	requireAnswers(t, r, entries)
	it := r.NewIterator(IterOptions{})
	got, err := collect(it, it.First())
	require.NoError(t, err)
	requireSameEntries(t, entries, got)
	require.NoError(t, r.Verify(t.Context(), nil))
}

func TestGoldenFileWithPadding(t *testing.T) {
	entries := paddedEntries()
	f, meta := build(t, entries, WriterOptions{})
	r := open(t, golden(t, formatVersion, "000013.sst", f), nil)
	require.Equal(t, meta, r.Meta())
	require.Positive(t, r.Padding())
	requireAnswers(t, r, entries)
	it := r.NewIterator(IterOptions{})
	got, err := collect(it, it.First())
	require.NoError(t, err)
	requireSameEntries(t, entries, got)
	require.NoError(t, r.Verify(t.Context(), nil))
}

// The layout of doc.go, byte by byte, for the smallest file.
func TestSmallestFileIsAsDocumented(t *testing.T) {
	f, _ := build(t, []kv.Entry{{Key: []byte("k"), Value: []byte("v"), Seq: 7, Kind: kv.KindPut, Expiry: 9}}, WriterOptions{})
	id := newIdentity(testID)
	seal := func(kind blockKind, offset int, contents string) string {
		return string(id.appendTrailer([]byte(contents), kind, int64(offset)))
	}
	data := seal(kindData, 0, ""+
		"\x01\x00\x00\x00"+"\x01\x00"+"k"+ // entries, length of the prefix, prefix
		string([]byte{fingerprint(keyhash.Sum([]byte("k")))})+
		"\x0a\x00"+ // offset
		"\x81\x07\x00\x00\x00\x00\x00\x00"+ // put with expiry, number 7
		"\x00"+"\x09"+"v") // length of the suffix, expiry, no suffix, value
	filter := len(data) + filterLineBytes + 8 + trailerBytes
	require.Equal(t, "\x01\x06\x00\x00\x01\x00\x00\x00", string(f.data[filter-trailerBytes-8:filter-trailerBytes]))
	index := seal(kindIndex, filter, "\x01k"+"\x01"+ // common prefix, blocks
		"\x00"+"\x00"+string(rune(len(data)))+"\x01") // suffix, number, length, entries
	properties := seal(kindProperties, filter+len(index), "\x01\x00\x07\x07"+"\x01k"+"\x01k"+"\x0exxhash64-seed0"+"\x00"+
		"\x00"+"\x01"+"\x01"+"\x09") // shadowed, expiring, one expiry
	require.Equal(t, index+properties, string(f.data[filter:len(f.data)-footerBytes]))
	footer := string(f.data[len(f.data)-footerBytes:])
	u64 := func(n int) string { return string([]byte{byte(n), 0, 0, 0, 0, 0, 0, 0}) }
	require.Equal(t, "\x03\x00\x00\x00"+u64(13)+u64(len(data))+u64(filter-len(data))+u64(len(index))+u64(0)+u64(len(properties))+
		string([]byte{footerBytes, 0, 0, 0})+"\x04\x00\x00\x00", footer[:footerBytes-12])
	require.Equal(t, "kvd-sst\n", footer[footerBytes-8:])
}
