package kv

import "encoding/binary"

// ValuePointer locates a separated value in a value file of the same partition.
type ValuePointer struct {
	File   FileNum
	Offset uint64 // of its record in the file
	Length uint32 // bytes of the value; never zero
}

// MaxValuePointerBytes bounds what AppendTo appends.
const MaxValuePointerBytes = 2*binary.MaxVarintLen64 + binary.MaxVarintLen32

// AppendTo appends the stored form: file, offset and length, each an unsigned
// varint in its shortest form.
func (p ValuePointer) AppendTo(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(p.File))
	dst = binary.AppendUvarint(dst, p.Offset)
	return binary.AppendUvarint(dst, uint64(p.Length))
}

// ParseValuePointer reads the stored form, which must be all of b.
func ParseValuePointer(b []byte) (p ValuePointer, ok bool) {
	file, b, ok1 := takeUvarint(b, 1<<64-1)
	offset, b, ok2 := takeUvarint(b, 1<<63-1)
	length, b, ok3 := takeUvarint(b, MaxValueBytes)
	if !ok1 || !ok2 || !ok3 || len(b) > 0 || file == 0 || length == 0 {
		return ValuePointer{}, false
	}
	return ValuePointer{File: FileNum(file), Offset: offset, Length: uint32(length)}, true
}

// takeUvarint is Decoder.Uvarint without a description of the error: merges parse a
// pointer for every entry.
func takeUvarint(b []byte, max uint64) (v uint64, rest []byte, ok bool) {
	v, n := binary.Uvarint(b)
	if n <= 0 || v > max || n > 1 && b[n-1] == 0 {
		return 0, nil, false
	}
	return v, b[n:], true
}

// ValueFileMeta describes one value file: what its writer counted and what the
// manifest records.
type ValueFileMeta struct {
	Num    FileNum
	Size   uint64 // bytes of the file
	Values uint64 // how many values it holds
	Bytes  uint64 // total length of the values
}

// ValueRef is what one sstable references in one value file.
type ValueRef struct {
	File   FileNum
	Values uint64
	Bytes  uint64 // total length of the values
}
