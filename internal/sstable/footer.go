package sstable

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/kvd-db/kvd/internal/kv"
)

const (
	magic = "kvd-sst\n"
	// envelopeBytes is the end of the footer in every format version: length of the
	// footer, version, checksum, magic. It distinguishes a newer file from a damaged one.
	envelopeBytes  = 4 + 4 + 4 + 8
	footerBytes    = 4 + 8 + 5*8 + envelopeBytes
	maxFooterBytes = 1024 // in any version, by promise
)

// footer identifies the file and says how long its parts are. The parts are adjacent,
// in the order of the fields.
type footer struct {
	id                                      kv.FileID
	data, filter, index, ranges, properties uint64 // bytes, trailers included
	version                                 uint32
}

// fileSize returns the length of the whole file.
func (f *footer) fileSize() uint64 { return f.data + f.tailSize() + footerBytes }

// tailSize returns the length of what Open loads, without the footer.
func (f *footer) tailSize() uint64 { return f.filter + f.index + f.ranges + f.properties }

// appendTo appends the footer.
func (f *footer) appendTo(dst []byte) []byte {
	start := len(dst)
	dst = binary.LittleEndian.AppendUint32(dst, f.id.Partition)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(f.id.Num))
	for _, n := range [...]uint64{f.data, f.filter, f.index, f.ranges, f.properties} {
		dst = binary.LittleEndian.AppendUint64(dst, n)
	}
	return appendEnvelope(dst, start, f.version)
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
		return nil, 0, "no sstable footer at the end; the file is cut short, or not an sstable"
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

// parseFooter decodes the footer at the end of tail, the last bytes of a file of
// the given size. It returns, without the file's name, the reason of a corruption or
// kv.ErrUnsupportedVersion.
func parseFooter(tail []byte, size uint64) (f footer, reason string, err error) {
	b, version, reason := openEnvelope(tail)
	if reason != "" {
		return f, reason, nil
	}
	if f.version = version; version < formatWithout || version > formatVersion {
		return f, "", fmt.Errorf("%w: sstable format %d, this kvd knows %d to %d", kv.ErrUnsupportedVersion, f.version, formatWithout, formatVersion)
	}
	if len(b) != footerBytes {
		return f, "footer has the wrong length", nil
	}
	f.id.Partition = binary.LittleEndian.Uint32(b)
	f.id.Num = kv.FileNum(binary.LittleEndian.Uint64(b[4:]))
	left := size - footerBytes
	for i, part := range [...]*uint64{&f.data, &f.filter, &f.index, &f.ranges, &f.properties} {
		*part = binary.LittleEndian.Uint64(b[12+8*i:])
		if *part > left {
			return f, "footer names more bytes than the file has", nil
		}
		left -= *part
	}
	if left != 0 {
		return f, fmt.Sprintf("footer names %d bytes, the file has %d", size-left, size), nil
	}
	if f.tailSize() > maxTailBytes {
		return f, "filter and index are out of bounds", nil
	}
	return f, "", nil
}
