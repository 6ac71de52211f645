package descriptor

import (
	"encoding/binary"

	"github.com/kvd-db/kvd/internal/kv"
)

// Versions of the formats of STORE, CLOCK and NODE that this package reads. It writes the newest, and
// NODE of a cluster that was never recovered in the oldest.
const (
	OldestFormat      = format
	NewestFormat      = format
	OldestClockFormat = 1
	NewestClockFormat = clockFormat
	OldestNodeFormat  = 1
	NewestNodeFormat  = 2
)

// HeadBytes is how much of STORE, CLOCK and NODE their FormatOf functions need, in any version.
const HeadBytes = preambleBytes

// FormatOf returns the format version of a STORE file, which may be one that this package
// does not know. head is the beginning of the file; name is for errors.
//
// Errors: a *kv.CorruptionError if the file is no STORE.
func FormatOf(name string, head []byte) (uint32, error) { return formatOf(name, head, magic) }

// ClockFormatOf is FormatOf for CLOCK.
func ClockFormatOf(name string, head []byte) (uint32, error) { return formatOf(name, head, clockMagic) }

func formatOf(name string, head []byte, magic string) (uint32, error) {
	if len(head) < preambleBytes || string(head[:len(magic)]) != magic {
		return 0, kv.Corruptf(name, 0, "it does not begin with %q", magic)
	}
	v := binary.LittleEndian.Uint32(head[len(magic):])
	if v == 0 {
		return 0, kv.Corruptf(name, int64(len(magic)), "format 0 does not exist")
	}
	return v, nil
}
