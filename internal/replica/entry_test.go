package replica

import (
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
)

func TestGoldenEntry(t *testing.T) {
	text, err := os.ReadFile("testdata/v1/entry.hex")
	require.NoError(t, err)
	golden, err := hex.DecodeString(strings.TrimSpace(string(text)))
	require.NoError(t, err)
	require.Equal(t, golden, encodeEntry(0x0102030405060708, []byte("record")))
	term, record, err := decodeEntry(golden)
	require.NoError(t, err)
	require.Equal(t, uint64(0x0102030405060708), term)
	require.Equal(t, "record", string(record))
}

func TestBadEntries(t *testing.T) {
	_, _, err := decodeEntry([]byte{2, 1, 2, 3})
	require.ErrorIs(t, err, kv.ErrUnsupportedVersion)
	for _, b := range [][]byte{nil, {1}, encodeEntry(5, nil)} {
		_, _, err := decodeEntry(b)
		require.ErrorIs(t, err, kv.ErrCorrupt)
	}
}

func FuzzDecodeEntry(f *testing.F) {
	f.Add(encodeEntry(7, []byte("record")))
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{2})
	f.Fuzz(func(t *testing.T, b []byte) {
		if term, record, err := decodeEntry(b); err == nil {
			require.Equal(t, b, encodeEntry(term, record))
		}
	})
}

func FuzzDecodeReadContext(f *testing.F) {
	f.Add(readContext{1, 2, 3}.encode())
	f.Add([]byte{1})
	f.Fuzz(func(t *testing.T, b []byte) {
		if c, ok := decodeReadContext(b); ok {
			require.Equal(t, b, c.encode())
		}
	})
}
