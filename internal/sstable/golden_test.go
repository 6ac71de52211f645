package sstable

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
)

var update = flag.Bool("update", false, "write the golden file of the current format version anew")

// The golden file of each version that was ever released must be read for ever,
// and the writer must go on making the current one byte for byte.
func TestGoldenFile(t *testing.T) {
	path := filepath.Join("testdata", "v1", "000013.sst")
	entries := sweepEntries()
	f, _ := build(t, entries, WriterOptions{BlockBytes: 160})
	if *update {
		require.NoError(t, os.WriteFile(path, f.data, 0o644))
	}
	golden, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, bytes.Equal(golden, f.data), "the writer no longer makes format version %d", formatVersion)

	r := open(t, &bytesFile{data: golden}, nil)
	require.Equal(t, kv.TableMeta{
		Num: 13, Size: uint64(len(golden)), Entries: 40, Deletes: 3,
		Smallest: []byte("key00000"), Largest: []byte("y"), MinSeq: 1, MaxSeq: 124,
	}, r.Meta())
	requireAnswers(t, r, entries)
	it := r.NewIterator(IterOptions{})
	got, err := collect(it, it.First())
	require.NoError(t, err)
	requireSameEntries(t, entries, got)
	require.NoError(t, r.Verify(t.Context(), nil))
}

// The layout that doc.go draws, spelled out byte by byte for the smallest file.
func TestSmallestFileIsAsDocumented(t *testing.T) {
	f, _ := build(t, []kv.Entry{{Key: []byte("k"), Value: []byte("v"), Seq: 7, Kind: kv.KindPut, Expiry: 9}}, WriterOptions{})
	id := newIdentity(testID)
	seal := func(kind blockKind, offset int, contents string) string {
		return string(id.appendTrailer([]byte(contents), kind, int64(offset)))
	}
	data := seal(kindData, 0, ""+
		"\x00\x01\x01"+ // shared, unshared, value length
		"\x81\x07\x00\x00\x00\x00\x00\x00"+ // put with expiry, number 7
		"\x09"+"k"+"v"+
		"\x00\x00\x00\x00"+"\x01\x00\x00\x00") // one restart point, at 0
	require.Equal(t, data, string(f.data[:len(data)]))
	filter := len(data) + filterLineBytes + 8 + trailerBytes
	require.Equal(t, "\x01\x06\x00\x00\x01\x00\x00\x00", string(f.data[filter-trailerBytes-8:filter-trailerBytes]))
	index := seal(kindIndex, filter, "\x01k"+"\x01"+ // common prefix, blocks
		"\x00"+"\x00"+string(rune(len(data)))+"\x01") // suffix, number, length, entries
	properties := seal(kindProperties, filter+len(index), "\x01\x00\x07\x07"+"\x01k"+"\x01k"+"\x0exxhash64-seed0")
	require.Equal(t, index+properties, string(f.data[filter:len(f.data)-footerBytes]))
	footer := string(f.data[len(f.data)-footerBytes:])
	u64 := func(n int) string { return string([]byte{byte(n), 0, 0, 0, 0, 0, 0, 0}) }
	require.Equal(t, "\x03\x00\x00\x00"+u64(13)+u64(len(data))+u64(filter-len(data))+u64(len(index))+u64(0)+u64(len(properties))+
		string([]byte{footerBytes, 0, 0, 0})+"\x01\x00\x00\x00", footer[:footerBytes-12])
	require.Equal(t, "kvd-sst\n", footer[footerBytes-8:])
}
