package valuefile

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/kvd-db/kvd/internal/kv"
)

const (
	formatVersion = 1
	magic         = "kvd-val\n"

	lengthBytes   = 4
	checksumBytes = 4
	recordBytes   = lengthBytes + checksumBytes // besides the value

	// envelopeBytes is the end of the footer in every format version: its length, the
	// version, the checksum, the magic.
	envelopeBytes  = 4 + 4 + 4 + 8
	footerBytes    = 4 + 8 + 3*8 + envelopeBytes
	maxFooterBytes = 1024 // in any version, by promise
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// identity binds checksums to one file: it is the CRC state after the file's
// partition and number.
type identity uint32

func newIdentity(id kv.FileID) identity {
	state := crcUint(^uint32(0), uint64(id.Partition), 4)
	return identity(crcUint(state, uint64(id.Num), 8))
}

// checksum returns the CRC32C of a record at offset.
func (id identity) checksum(offset uint64, value []byte) uint32 {
	state := crcUint(uint32(id), offset, 8)
	state = crcUint(state, uint64(len(value)), lengthBytes)
	return crc32.Update(^state, castagnoli, value)
}

// crcUint adds the low n bytes of v, little-endian, to a raw CRC state. crc32.Update
// would move so few bytes to the heap.
func crcUint(state uint32, v uint64, n int) uint32 {
	for range n {
		state = castagnoli[byte(state)^byte(v)] ^ state>>8
		v >>= 8
	}
	return state
}

// appendRecord appends the record of a value at offset.
func (id identity) appendRecord(dst []byte, offset uint64, value []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(value)))
	dst = append(dst, value...)
	return binary.LittleEndian.AppendUint32(dst, id.checksum(offset, value))
}

// unseal verifies the bytes after the length of the record at offset, value and
// checksum, and returns the value, borrowed.
func (id identity) unseal(offset uint64, sealed []byte) (value []byte, ok bool) {
	n := len(sealed) - checksumBytes
	value = sealed[:n:n]
	return value, binary.LittleEndian.Uint32(sealed[n:]) == id.checksum(offset, value)
}

// footer identifies the file and describes its contents.
type footer struct {
	id      kv.FileID
	values  uint64
	bytes   uint64 // of all values
	records uint64 // bytes of all records
}

func (f *footer) meta() kv.ValueFileMeta {
	return kv.ValueFileMeta{Num: f.id.Num, Size: f.records + footerBytes, Values: f.values, Bytes: f.bytes}
}

func (f *footer) appendTo(dst []byte) []byte {
	start := len(dst)
	dst = binary.LittleEndian.AppendUint32(dst, f.id.Partition)
	for _, n := range [...]uint64{uint64(f.id.Num), f.values, f.bytes, f.records} {
		dst = binary.LittleEndian.AppendUint64(dst, n)
	}
	return appendEnvelope(dst, start, formatVersion)
}

// appendEnvelope completes the footer that begins at start.
func appendEnvelope(dst []byte, start int, version uint32) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(dst)-start+envelopeBytes))
	dst = binary.LittleEndian.AppendUint32(dst, version)
	dst = binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
	return append(dst, magic...)
}

// openEnvelope returns the footer at the end of tail, whose checksum is right, and its format
// version. Otherwise it returns the reason of a corruption.
func openEnvelope(tail []byte) (b []byte, version uint32, reason string) {
	n := len(tail)
	if n < envelopeBytes || string(tail[n-len(magic):]) != magic {
		return nil, 0, "no footer of a value file at the end; the file is cut short, or of another kind"
	}
	length := uint64(binary.LittleEndian.Uint32(tail[n-envelopeBytes:]))
	if length < envelopeBytes || length > uint64(n) {
		return nil, 0, "footer length is out of bounds"
	}
	b = tail[uint64(n)-length:]
	sealed := len(b) - len(magic) - 4
	if binary.LittleEndian.Uint32(b[sealed:]) != crc32.Checksum(b[:sealed], castagnoli) {
		return nil, 0, "footer checksum mismatch"
	}
	if version = binary.LittleEndian.Uint32(b[sealed-4:]); version == 0 {
		return nil, 0, "format 0 does not exist"
	}
	return b, version, ""
}

// decodeFooter decodes a footer of this format version, whose length and checksum are right.
func decodeFooter(b []byte) (f footer) {
	f.id.Partition = binary.LittleEndian.Uint32(b)
	f.id.Num = kv.FileNum(binary.LittleEndian.Uint64(b[4:]))
	f.values = binary.LittleEndian.Uint64(b[12:])
	f.bytes = binary.LittleEndian.Uint64(b[20:])
	f.records = binary.LittleEndian.Uint64(b[28:])
	return f
}

// parseFooter decodes the footer at the end of tail, the last bytes of a file of the
// given size. It returns, without the file's name, the reason of a corruption or
// kv.ErrUnsupportedVersion.
func parseFooter(tail []byte, size uint64) (f footer, reason string, err error) {
	b, version, reason := openEnvelope(tail)
	if reason != "" {
		return f, reason, nil
	}
	if version != formatVersion {
		return f, "", fmt.Errorf("%w: value file format %d, this kvd knows %d", kv.ErrUnsupportedVersion, version, formatVersion)
	}
	if len(b) != footerBytes {
		return f, "footer has the wrong length", nil
	}
	f = decodeFooter(b)
	switch {
	case f.records != size-footerBytes:
		return f, fmt.Sprintf("footer names %d bytes of records, the file has %d", f.records, size-footerBytes), nil
	case f.values == 0 || f.values > f.records/recordBytes || f.records-f.values*recordBytes != f.bytes || f.bytes < f.values:
		return f, "footer names values that do not add up", nil
	}
	return f, "", nil
}
