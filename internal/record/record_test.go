package record

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"testing"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// sourceDeleteMarker is the value that the LSM articles used to mark a delete (W3).
var sourceDeleteMarker = []byte{83, 76, 69, 7, 95, 21, 81, 27, 2, 104, 8, 100, 45, 109, 110, 1}

func exampleRecord() []byte {
	var e Encoder
	e.Section(3, 2)
	e.Op(0, kv.RequestID{}, &kv.Op{Kind: kv.KindPut, Key: []byte("a"), Value: []byte("1")})
	e.Op(1, kv.RequestID{ClientID: 7, Sequence: 300}, &kv.Op{Kind: kv.KindDelete, Key: []byte("b")})
	e.Section(9, 2)
	e.Op(0, kv.RequestID{}, &kv.Op{Kind: kv.KindPut, Key: []byte("c"), Value: []byte{}, Expiry: 1 << 40})
	e.Op(0, kv.RequestID{}, &kv.Op{Kind: kv.KindRangeDelete, Key: []byte("d"), Value: []byte("f")})
	return bytes.Clone(e.Bytes())
}

func decodeAll(record []byte) ([]Op, error) {
	var ops []Op
	err := Decode(record, func(op *Op) error {
		ops = append(ops, *op)
		return nil
	})
	return ops, err
}

func TestRecordRoundTrip(t *testing.T) {
	ops, err := decodeAll(exampleRecord())
	require.NoError(t, err)
	require.Equal(t, []Op{
		{Partition: 3, Op: kv.Op{Kind: kv.KindPut, Key: []byte("a"), Value: []byte("1")}},
		{Partition: 3, Unit: 1, RequestID: kv.RequestID{ClientID: 7, Sequence: 300}, Op: kv.Op{Kind: kv.KindDelete, Key: []byte("b")}},
		{Partition: 9, Op: kv.Op{Kind: kv.KindPut, Key: []byte("c"), Value: []byte{}, Expiry: 1 << 40}},
		{Partition: 9, Op: kv.Op{Kind: kv.KindRangeDelete, Key: []byte("d"), Value: []byte("f")}},
	}, ops)
}

func TestRecordKeepsAnyValueW3(t *testing.T) {
	for _, value := range [][]byte{{}, {0}, sourceDeleteMarker, bytes.Repeat([]byte{0xff}, 70_000)} {
		var e Encoder
		e.Section(0, 1)
		e.Op(0, kv.RequestID{}, &kv.Op{Kind: kv.KindPut, Key: []byte("k"), Value: value})
		ops, err := decodeAll(e.Bytes())
		require.NoError(t, err)
		require.Len(t, ops, 1)
		assert.Equal(t, kv.KindPut, ops[0].Kind)
		assert.Equal(t, value, ops[0].Value)
	}
}

// The layout of each version of the log. Version 2 left the encoding of version 1 as it
// was.
func TestRecordGolden(t *testing.T) {
	for version, record := range map[string][]byte{"v1": exampleRecord(), "v2": exampleOfContent()} {
		want, err := os.ReadFile("testdata/" + version + "/record.hex")
		require.NoError(t, err)
		assert.Equal(t, string(bytes.TrimSpace(want)), hex.EncodeToString(record),
			"the record layout changed: that needs a new format version of the log")
	}
}

// exampleOfContent uses the fields that version 2 of the log added.
func exampleOfContent() []byte {
	var e Encoder
	e.Section(3, 2)
	e.Op(0, kv.RequestID{ClientID: 7, Sequence: 300, Content: 0x0102_0304_0506_0708}, &kv.Op{Kind: kv.KindPut, Key: []byte("a"), Value: []byte("1"), Expiry: 1 << 40})
	e.Op(0, kv.RequestID{ClientID: 7, Sequence: 300}, &kv.Op{Kind: kv.KindDelete, Key: []byte("b")})
	return bytes.Clone(e.Bytes())
}

func TestRecordKeepsTheContentHash(t *testing.T) {
	ops, err := decodeAll(exampleOfContent())
	require.NoError(t, err)
	require.Equal(t, []Op{
		{
			Partition: 3, RequestID: kv.RequestID{ClientID: 7, Sequence: 300, Content: 0x0102_0304_0506_0708},
			Op: kv.Op{Kind: kv.KindPut, Key: []byte("a"), Value: []byte("1"), Expiry: 1 << 40},
		},
		{Partition: 3, RequestID: kv.RequestID{ClientID: 7, Sequence: 300}, Op: kv.Op{Kind: kv.KindDelete, Key: []byte("b")}},
	}, ops)
}

func TestDecodeRecordRefusesEveryTruncation(t *testing.T) {
	record := exampleRecord()
	const firstSection = 22 // a prefix of this length is a record by itself: see the golden file
	for n := range record {
		_, err := decodeAll(record[:n])
		if n == 0 || n == firstSection {
			assert.NoError(t, err, "whole sections")
			continue
		}
		assert.Error(t, err, "cut to %d bytes", n)
	}
	stop := errors.New("stop")
	assert.ErrorIs(t, Decode(record, func(*Op) error { return stop }), stop)
}

func TestDecodeRecordSaysWhatIsMalformed(t *testing.T) {
	for record, reason := range map[string]string{
		"\x00\x00":              "section header: no operations",
		"\x00\x81\x00":          "section header: number is not in its shortest form",
		"\x81\x80\x04\x01":      "section header: number 65537, want at most 65536",
		"\x00\x01":              "operation with 0 bytes left: 1 bytes, but 0 are left",
		"\x00\x01\x0f\x00\x01k": "operation with 3 bytes left: unknown tag 0x0f",
		"\x00\x01\x41\x00\x01k": "operation with 3 bytes left: unknown tag 0x41",
		"\x00\x01\x42\x00\x01k": "operation with 3 bytes left: unknown tag 0x42",
		"\x00\x01\x62\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01k": "content hash of nothing",
		"\x00\x01\x62\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00":                              "3 bytes left",
		"\x00\x01\x02\x00\x00":      "operation with 0 bytes left: empty key",
		"\x00\x01\x02\x00\x03k":     "operation with 1 bytes left: 3 bytes, but 1 are left",
		"\x00\x01\x01\x00\x01k\x80": "operation with 1 bytes left: number is cut or too long",
	} {
		_, err := decodeAll([]byte(record))
		assert.ErrorIs(t, err, errMalformed, "%x", record)
		assert.ErrorContains(t, err, reason, "%x", record)
	}
}

func FuzzDecodeRecord(f *testing.F) {
	f.Add(exampleRecord())
	f.Add(exampleOfContent())
	f.Add([]byte{0, 1, 1, 0, 1, 'k', 0})
	f.Add([]byte{0, 0xff, 0xff, 0xff, 0x7f})
	f.Fuzz(func(t *testing.T, record []byte) {
		ops, err := decodeAll(record)
		if err != nil {
			return
		}
		// What was accepted encodes to something that decodes to the same operations.
		var e Encoder
		for i := range ops {
			e.Section(ops[i].Partition, 1)
			e.Op(ops[i].Unit, ops[i].RequestID, &ops[i].Op)
		}
		again, err := decodeAll(e.Bytes())
		require.NoError(t, err)
		require.Equal(t, ops, again)
	})
}

// A record may have more operations than one batch: it holds those of several calls.
func TestRecordOfMoreOperationsThanABatch(t *testing.T) {
	const ops = 2*kv.MaxBatchOps + 1
	var e Encoder
	e.Section(3, ops)
	for range ops {
		e.Op(0, kv.RequestID{}, &kv.Op{Kind: kv.KindDelete, Key: []byte("k")})
	}
	n := 0
	require.NoError(t, Decode(e.Bytes(), func(*Op) error { n++; return nil }))
	require.Equal(t, ops, n)
	require.Error(t, Decode(e.Bytes()[:len(e.Bytes())-1], func(*Op) error { return nil }))
}
