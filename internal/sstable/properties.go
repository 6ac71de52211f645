package sstable

import (
	"bytes"
	"encoding/binary"

	"github.com/kvd-db/kvd/internal/kv"
)

// appendProperties appends the contents of the properties block: the writer's counts
// and the name of the hash that the filter was built with. Number and size of the file
// are in the footer. appendStats and appendPadding append what later versions add.
func appendProperties(dst []byte, m *kv.TableMeta, hashName string) []byte {
	for _, n := range [...]uint64{m.Entries, m.Deletes, uint64(m.MinSeq), uint64(m.MaxSeq)} {
		dst = binary.AppendUvarint(dst, n)
	}
	dst = appendBytes(dst, m.Smallest)
	dst = appendBytes(dst, m.Largest)
	dst = appendBytes(dst, []byte(hashName))
	dst = binary.AppendUvarint(dst, uint64(len(m.Values)))
	for _, ref := range m.Values {
		dst = binary.AppendUvarint(dst, uint64(ref.File))
		dst = binary.AppendUvarint(dst, ref.Values)
		dst = binary.AppendUvarint(dst, ref.Bytes)
	}
	return dst
}

// appendPadding appends what version 5 adds to the properties of version 4.
func appendPadding(dst []byte, bytes uint64) []byte { return binary.AppendUvarint(dst, bytes) }

// parseProperties decodes a properties block of a format version into m and s, and returns
// the bytes of padding. The keys of m are borrowed from contents.
func parseProperties(contents []byte, version uint32, m *kv.TableMeta, s *kv.TableStats) (hashName string, padding uint64, ok bool) {
	d := kv.Decoder{Rest: contents}
	m.Entries = d.Uvarint(1<<56 - 1)
	m.Deletes = d.Uvarint(m.Entries)
	m.MinSeq = kv.SeqNum(d.Uvarint(uint64(kv.MaxSeqNum)))
	m.MaxSeq = kv.SeqNum(d.Uvarint(uint64(kv.MaxSeqNum)))
	m.Smallest = d.Bytes(kv.MaxKeyBytes)
	m.Largest = d.Bytes(kv.MaxKeyBytes)
	hashName = string(d.Bytes(64))
	if !parseValueRefs(&d, m) {
		return hashName, 0, false
	}
	if version >= formatStats && !parseStats(&d, m.Entries, s, version) {
		return hashName, 0, false
	}
	if version >= formatVersion {
		if padding = d.Uvarint(1<<56 - 1); padding == 0 { // or it would be of an older version
			return hashName, 0, false
		}
	}
	ok = d.Err == nil && len(d.Rest) == 0 && m.Entries > 0 && m.MinSeq > 0 && m.MinSeq <= m.MaxSeq &&
		len(m.Smallest) > 0 && bytes.Compare(m.Smallest, m.Largest) <= 0
	return hashName, padding, ok
}

// parseValueRefs decodes what a table needs of value files.
func parseValueRefs(d *kv.Decoder, m *kv.TableMeta) (ok bool) {
	const minBytes = 3 // three numbers
	n := d.Uvarint(uint64(len(d.Rest) / minBytes))
	if n == 0 {
		return true // or the number is malformed, which d reports
	}
	m.Values = make([]kv.ValueRef, n)
	var last kv.FileNum
	for i := range m.Values {
		ref := &m.Values[i]
		ref.File = kv.FileNum(d.Uvarint(1<<64 - 1))
		ref.Values = d.Uvarint(m.Entries)
		ref.Bytes = d.Uvarint(1<<56 - 1)
		if ref.File <= last || ref.Values == 0 || ref.Bytes < ref.Values {
			return false // or a number is malformed
		}
		last = ref.File
	}
	return true
}
