package descriptor

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// Descriptor is the content of the file STORE: the properties of a store that are
// fixed when it is created, because the place of every key depends on them.
type Descriptor struct {
	StoreID    uint64
	Partitions int
	Hash       string // name of the key hash; Encode writes keyhash.Name
}

// MaxPartitions is the largest partition count. With more, a partition's share of a
// usual memory budget is too small to be useful.
const MaxPartitions = 1024

const (
	magic         = "kvdstore"
	format        = 1
	sizeBytes     = 44
	preambleBytes = 12 // of every format version
	hashNameBytes = 16
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Encode returns the content of a STORE file, as the package comment shows it.
func (d *Descriptor) Encode() []byte {
	b := append([]byte(nil), magic...)
	b = binary.LittleEndian.AppendUint32(b, format)
	b = binary.LittleEndian.AppendUint64(b, d.StoreID)
	b = binary.LittleEndian.AppendUint32(b, uint32(d.Partitions))
	var hash [hashNameBytes]byte
	copy(hash[:], keyhash.Name)
	b = append(b, hash[:]...)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// Decode decodes the content of a STORE file; name is for its errors.
//
// Errors: a *kv.CorruptionError, or kv.ErrUnsupportedVersion.
func Decode(name string, b []byte) (Descriptor, error) {
	var d Descriptor
	v, err := FormatOf(name, b)
	if err != nil {
		return d, err
	}
	if v != format {
		// A newer format may have another length and another place for its checksum.
		return d, fmt.Errorf("%w: %s has format %d, this version reads %d", kv.ErrUnsupportedVersion, name, v, format)
	}
	if len(b) != sizeBytes {
		return d, kv.Corruptf(name, -1, "%d bytes, want %d", len(b), sizeBytes)
	}
	sum := binary.LittleEndian.Uint32(b[sizeBytes-4:])
	if got := crc32.Checksum(b[:sizeBytes-4], castagnoli); got != sum {
		return d, kv.Corruptf(name, 0, "checksum is %08x, computed %08x", sum, got)
	}
	d.StoreID = binary.LittleEndian.Uint64(b[12:])
	d.Partitions = int(binary.LittleEndian.Uint32(b[20:]))
	d.Hash = string(bytes.TrimRight(b[24:24+hashNameBytes], "\x00"))
	if d.Partitions < 1 || d.Partitions > MaxPartitions {
		return d, kv.Corruptf(name, 20, "%d partitions", d.Partitions)
	}
	if d.Hash != keyhash.Name {
		return d, fmt.Errorf("%w: %s places keys by %q, this version by %q", kv.ErrUnsupportedVersion, name, d.Hash, keyhash.Name)
	}
	return d, nil
}

// Read reads STORE in a data directory.
//
// Errors: fs.ErrNotExist if there is none, and those of Decode.
func Read(fsys vfs.FS, dir string) (Descriptor, error) {
	name := Path(dir)
	b, err := readWhole(fsys, name, sizeBytes)
	if err != nil {
		return Descriptor{}, err
	}
	return Decode(name, b)
}

// ErrTooFew returns the error for a store that has a partition beyond the number in
// STORE: with too few partitions most keys would be searched in the wrong one.
func ErrTooFew(dir string, partitions, has int) error {
	return kv.Corruptf(Path(dir), 20, "says %d partitions, but there is %s", partitions, partitionName(has))
}
