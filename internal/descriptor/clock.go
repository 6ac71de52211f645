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

// Clock is the content of the file CLOCK: a time that the store's clock has not
// passed, and how the clock runs until then. If the store is opened in the same
// boot of the machine, the time since the boot tells how far the clock came; otherwise
// it continues from the bound, or from the machine's clock if that is ahead. So no
// expired key reappears.
type Clock struct {
	StoreID uint64
	Bound   uint64 // Unix milliseconds

	// Boot is the boot of the machine, zero if it is unknown; then, and in files of
	// format 1, the remaining fields are zero too.
	Boot  [16]byte
	Since uint64 // nanoseconds since that boot, when the clock said Time and the machine's clock Wall
	Time  uint64 // Unix microseconds
	Wall  uint64 // Unix microseconds
}

const (
	clockMagic     = "kvdclock"
	clockFormat    = 2
	clockSizeBytes = 72
	clockSizeOf1   = 32      // bytes of format 1
	maxClockBound  = 1 << 62 // leaves room to continue counting
)

// Encode returns the content of a CLOCK file, as the package comment shows it.
func (c *Clock) Encode() []byte {
	b := append([]byte(nil), clockMagic...)
	b = binary.LittleEndian.AppendUint32(b, clockFormat)
	b = binary.LittleEndian.AppendUint64(b, c.StoreID)
	b = binary.LittleEndian.AppendUint64(b, c.Bound)
	b = append(b, c.Boot[:]...)
	b = binary.LittleEndian.AppendUint64(b, c.Since)
	b = binary.LittleEndian.AppendUint64(b, c.Time)
	b = binary.LittleEndian.AppendUint64(b, c.Wall)
	return binary.LittleEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// DecodeClock decodes the content of a CLOCK file; name is for its errors.
//
// Errors: a *kv.CorruptionError, or kv.ErrUnsupportedVersion.
func DecodeClock(name string, b []byte) (Clock, error) {
	var c Clock
	v, err := ClockFormatOf(name, b)
	if err != nil {
		return c, err
	}
	size := clockSizeBytes
	switch v {
	case 1:
		size = clockSizeOf1
	case clockFormat:
	default:
		return c, fmt.Errorf("%w: %s has format %d, this version reads up to %d", kv.ErrUnsupportedVersion, name, v, clockFormat)
	}
	if len(b) != size {
		return c, kv.Corruptf(name, -1, "%d bytes, want %d", len(b), size)
	}
	sum := binary.LittleEndian.Uint32(b[size-4:])
	if got := crc32.Checksum(b[:size-4], castagnoli); got != sum {
		return c, kv.Corruptf(name, 0, "checksum is %08x, computed %08x", sum, got)
	}
	c.StoreID = binary.LittleEndian.Uint64(b[12:])
	c.Bound = binary.LittleEndian.Uint64(b[20:])
	if c.Bound == 0 || c.Bound > maxClockBound {
		return c, kv.Corruptf(name, 20, "%d is no time", c.Bound)
	}
	if size == clockSizeOf1 {
		return c, nil
	}
	copy(c.Boot[:], b[28:])
	c.Since = binary.LittleEndian.Uint64(b[44:])
	c.Time = binary.LittleEndian.Uint64(b[52:])
	c.Wall = binary.LittleEndian.Uint64(b[60:])
	switch {
	case c.Boot == [16]byte{} && (c.Since|c.Time|c.Wall) != 0:
		return c, kv.Corruptf(name, 28, "a time since an unknown boot")
	case c.Since > maxClockBound || c.Time > maxClockBound || c.Wall > maxClockBound:
		return c, kv.Corruptf(name, 44, "%d, %d and %d are no times", c.Since, c.Time, c.Wall)
	}
	return c, nil
}

// ReadClock reads CLOCK in the data directory of a store.
//
// Errors: fs.ErrNotExist if there is none, which means that the store never had a
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

// readWhole returns the content of a file of size bytes, or one byte more of a
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
