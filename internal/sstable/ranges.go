package sstable

import (
	"bytes"
	"encoding/binary"

	"github.com/kvd-db/kvd/internal/kv"
)

// appendRanges appends the contents of the range tombstone block.
func appendRanges(dst []byte, tombstones []kv.Entry) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(tombstones)))
	for i := range tombstones {
		dst = appendBytes(dst, tombstones[i].Key)
		dst = appendBytes(dst, tombstones[i].Value)
		dst = binary.AppendUvarint(dst, uint64(tombstones[i].Seq))
	}
	return dst
}

// parseRanges decodes a range tombstone block, whose contents the result borrows.
func parseRanges(contents []byte) (r *kv.RangeTombstones, ok bool) {
	const minBytes = 5 // two strings of at least one byte and a number
	d := kv.Decoder{Rest: contents}
	n := d.Uvarint(uint64(len(contents)) / minBytes)
	if d.Err != nil || n == 0 {
		return nil, false
	}
	tombstones := make([]kv.Entry, 0, n)
	for i := range n {
		e := kv.Entry{Kind: kv.KindRangeDelete}
		e.Key = d.Bytes(kv.MaxKeyBytes)
		e.Value = d.Bytes(kv.MaxKeyBytes)
		e.Seq = kv.SeqNum(d.Uvarint(uint64(kv.MaxSeqNum)))
		if d.Err != nil || e.Seq == 0 || len(e.Key) == 0 || bytes.Compare(e.Key, e.Value) >= 0 {
			return nil, false
		}
		if i > 0 && kv.Compare(tombstones[i-1].Key, tombstones[i-1].Seq, e.Key, e.Seq) > 0 {
			return nil, false
		}
		tombstones = append(tombstones, e)
	}
	return kv.NewRangeTombstones(tombstones), len(d.Rest) == 0
}
