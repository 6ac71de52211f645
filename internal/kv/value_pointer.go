package kv

import "encoding/binary"

// ValuePointer says where a value lies that is kept apart from its key, in a value
// file of the same partition.
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
	d := Decoder{Rest: b}
	p.File = FileNum(d.Uvarint(1<<64 - 1))
	p.Offset = d.Uvarint(1<<63 - 1)
	p.Length = uint32(d.Uvarint(MaxValueBytes))
	return p, d.Err == nil && len(d.Rest) == 0 && p.File != 0 && p.Length != 0
}

// ValueFileMeta describes one value file: what its writer counted and what the
// manifest records.
type ValueFileMeta struct {
	Num    FileNum
	Size   uint64 // bytes of the file
	Values uint64 // in it
	Bytes  uint64 // of these values
}

// ValueRef is what one sstable needs of one value file.
type ValueRef struct {
	File   FileNum
	Values uint64
	Bytes  uint64 // of these values
}
