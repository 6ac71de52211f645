package descriptor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// Clock is what the file CLOCK says: a time that the store's clock has not
// passed. Whoever opens the store goes on from there, or from the machine's
// clock if that is ahead, and so no expired key comes back.
type Clock struct {
	StoreID uint64
	Bound   uint64 // Unix milliseconds
}

const (
	clockMagic     = "kvdclock"
	clockFormat    = 1
	clockSizeBytes = 32
	maxClockBound  = 1 << 62 // leaves room to count on from
)

// Encode returns the content of a CLOCK file, as the package comment shows it.
func (c *Clock) Encode() []byte {
	b := append([]byte(nil), clockMagic...)
	b = binary.LittleEndian.AppendUint32(b, clockFormat)
	b = binary.LittleEndian.AppendUint64(b, c.StoreID)
	b = binary.LittleEndian.AppendUint64(b, c.Bound)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// DecodeClock reads the content of a CLOCK file; name is for its errors.
//
// Errors: a *kv.CorruptionError, or kv.ErrUnsupportedVersion.
func DecodeClock(name string, b []byte) (Clock, error) {
	var c Clock
	if len(b) < preambleBytes || string(b[:len(clockMagic)]) != clockMagic {
		return c, kv.Corruptf(name, 0, "not the clock of a store")
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != clockFormat {
		return c, fmt.Errorf("%w: %s has format %d, this version reads %d", kv.ErrUnsupportedVersion, name, v, clockFormat)
	}
	if len(b) != clockSizeBytes {
		return c, kv.Corruptf(name, -1, "%d bytes, want %d", len(b), clockSizeBytes)
	}
	sum := binary.LittleEndian.Uint32(b[clockSizeBytes-4:])
	if got := crc32.Checksum(b[:clockSizeBytes-4], castagnoli); got != sum {
		return c, kv.Corruptf(name, 0, "checksum is %08x, computed %08x", sum, got)
	}
	c.StoreID = binary.LittleEndian.Uint64(b[12:])
	c.Bound = binary.LittleEndian.Uint64(b[20:])
	if c.Bound == 0 || c.Bound > maxClockBound {
		return c, kv.Corruptf(name, 20, "%d is no time", c.Bound)
	}
	return c, nil
}

// ReadClock reads CLOCK in the data directory of a store.
//
// Errors: fs.ErrNotExist if there is none, which says that the store never had a
// key that expires; those of DecodeClock; a *kv.CorruptionError if the file
// belongs to another store.
func ReadClock(fsys vfs.FS, dir string, storeID uint64) (Clock, error) {
	name := ClockPath(dir)
	b, err := readWhole(fsys, name, clockSizeBytes)
	if err != nil {
		return Clock{}, err
	}
	c, err := DecodeClock(name, b)
	if err == nil && c.StoreID != storeID {
		err = kv.Corruptf(name, 12, "belongs to store %016x, not to %016x", c.StoreID, storeID)
	}
	return c, err
}

// readWhole returns the content of a file of so many bytes, or one byte more of a
// longer one.
func readWhole(fsys vfs.FS, name string, size int) (b []byte, err error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	b = make([]byte, size+1)
	n, err := f.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return b[:n], nil
}
