package sstable

import (
	"bytes"
	"encoding/binary"

	"github.com/kvd-db/kvd/internal/kv"
)

// appendProperties appends the contents of the properties block: what the
// writer counted, and the hash that the filter was built with. Number and size
// of the file are in the footer.
func appendProperties(dst []byte, m *kv.TableMeta, hashName string) []byte {
	for _, n := range [...]uint64{m.Entries, m.Deletes, uint64(m.MinSeq), uint64(m.MaxSeq)} {
		dst = binary.AppendUvarint(dst, n)
	}
	dst = appendBytes(dst, m.Smallest)
	dst = appendBytes(dst, m.Largest)
	return appendBytes(dst, []byte(hashName))
}

// parseProperties reads the contents of a properties block into m. Its keys and
// the name are borrowed from contents.
func parseProperties(contents []byte, m *kv.TableMeta) (hashName string, ok bool) {
	d := kv.Decoder{Rest: contents}
	m.Entries = d.Uvarint(1<<56 - 1)
	m.Deletes = d.Uvarint(m.Entries)
	m.MinSeq = kv.SeqNum(d.Uvarint(uint64(kv.MaxSeqNum)))
	m.MaxSeq = kv.SeqNum(d.Uvarint(uint64(kv.MaxSeqNum)))
	m.Smallest = d.Bytes(kv.MaxKeyBytes)
	m.Largest = d.Bytes(kv.MaxKeyBytes)
	hashName = string(d.Bytes(64))
	ok = d.Err == nil && len(d.Rest) == 0 && m.Entries > 0 && m.MinSeq > 0 && m.MinSeq <= m.MaxSeq &&
		len(m.Smallest) > 0 && bytes.Compare(m.Smallest, m.Largest) <= 0
	return hashName, ok
}
