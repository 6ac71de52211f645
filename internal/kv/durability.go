package kv

import "fmt"

// Durability says what the acknowledgement of a write means. A stronger level has a
// larger number.
//
// A write does not wait for another caller's stronger write that precedes it in the
// log. There are two exceptions: an atomic batch over several partitions does wait; and
// any write waits if the stronger one is a batch or a transaction that reads or writes
// the same key, or that reads or deletes a range.
type Durability uint8

const (
	// DurabilityDefault leaves the choice to the store.
	DurabilityDefault Durability = 0
	// DurabilityMemory acknowledges once the write is visible; a crash of the
	// process may lose it.
	DurabilityMemory Durability = 1
	// DurabilityBuffered acknowledges once the kernel has the write: it survives kill
	// -9, but a power cut may lose it.
	DurabilityBuffered Durability = 2
	// DurabilitySync acknowledges after the fsync that covers the write has returned
	// without error: the write survives a power cut.
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

// ParseDurability parses the name of a level, as flags and files spell it.
func ParseDurability(s string) (Durability, error) {
	for i, name := range durabilityNames {
		if s == name {
			return Durability(i), nil
		}
	}
	return 0, fmt.Errorf("%w: durability %q; want memory, buffered or sync", ErrInvalidArgument, s)
}
