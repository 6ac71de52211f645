package kv

import "fmt"

// Durability says what the acknowledgement of a write means. A stronger level
// has a larger number.
//
// A write does not wait for a stronger one of another caller, even if that is before it
// in the log, unless it is an atomic batch over several partitions, or the stronger one is
// a batch or a transaction that reads or writes its key, or reads or deletes a range.
type Durability uint8

const (
	// DurabilityDefault leaves the choice to the store.
	DurabilityDefault Durability = 0
	// DurabilityMemory acknowledges once the write is visible; a crash of the
	// process may lose it.
	DurabilityMemory Durability = 1
	// DurabilityBuffered acknowledges once the kernel has the write: it survives
	// kill -9, a power cut may take it.
	DurabilityBuffered Durability = 2
	// DurabilitySync acknowledges after the fsync that covers the write returned
	// without error: it survives a power cut.
	DurabilitySync Durability = 3
)

var durabilityNames = [...]string{"default", "memory", "buffered", "sync"}

func (d Durability) String() string {
	if int(d) < len(durabilityNames) {
		return durabilityNames[d]
	}
	return fmt.Sprintf("durability(%d)", uint8(d))
}

// Valid reports whether d is one of the levels above.
func (d Durability) Valid() bool { return int(d) < len(durabilityNames) }

// ParseDurability reads the name of a level, as flags and files spell it.
func ParseDurability(s string) (Durability, error) {
	for i, name := range durabilityNames {
		if s == name {
			return Durability(i), nil
		}
	}
	return 0, fmt.Errorf("%w: durability %q; want memory, buffered or sync", ErrInvalidArgument, s)
}
