package kv

import (
	"bytes"
	"fmt"
)

// Limits bound what one caller may send. The service checks them before it queues
// anything.
type Limits struct {
	KeyBytes   int // longest key
	ValueBytes int // longest value
	BatchOps   int // most operations in one atomic batch
	BatchBytes int // most bytes (keys and values) in one atomic batch

	// RangeCopies is how often the store keeps a range delete: once in each partition. 0 means 1.
	// It is no choice of the operator; see WriteBatch.Takes.
	RangeCopies int
}

// RangeDeleteBytes is at least what one copy of a range delete occupies besides its start and end: in a
// memtable, which takes more than the record in the log. Package memtable checks it.
const RangeDeleteBytes = 256

// MostTaken returns the most bytes that one atomic batch may take: see WriteBatch.Takes. It is what the
// largest batch takes if all of it are range deletes that are kept once. One range delete with the
// longest keys takes less in a store with 1,024 partitions, and so does the largest batch of other
// writes together with one such range delete in a store with 64.
func (l Limits) MostTaken() int { return l.BatchBytes + l.BatchOps*RangeDeleteBytes }

func (l Limits) rangeCopies() int { return max(l.RangeCopies, 1) }

// DefaultLimits apply unless the operator sets others: keys up to 4 KiB, values up to 4
// MiB, batches up to 4,096 operations and 8 MiB. Guessed from what comparable stores
// allow.
var DefaultLimits = Limits{
	KeyBytes:   4 << 10,
	ValueBytes: 4 << 20,
	BatchOps:   4096,
	BatchBytes: 8 << 20,
}

// Hard caps that no configuration may exceed. Decoders use them to bound a
// length before they allocate for it.
const (
	MaxKeyBytes   = 64 << 10
	MaxValueBytes = 64 << 20
	MaxBatchOps   = 1 << 20
	MaxBatchBytes = 256 << 20
)

// Validate reports whether the limits lie within the hard caps.
func (l Limits) Validate() error {
	check := func(name string, v, max int) error {
		if v < 1 || v > max {
			return fmt.Errorf("%w: limit %s is %d, want 1 to %d", ErrInvalidArgument, name, v, max)
		}
		return nil
	}
	for _, c := range []error{
		check("key bytes", l.KeyBytes, MaxKeyBytes),
		check("value bytes", l.ValueBytes, MaxValueBytes),
		check("batch operations", l.BatchOps, MaxBatchOps),
		check("batch bytes", l.BatchBytes, MaxBatchBytes),
	} {
		if c != nil {
			return c
		}
	}
	return nil
}

// CheckKey reports whether key may be stored: it is not empty and not too long.
func (l Limits) CheckKey(key []byte) error {
	if len(key) == 0 {
		return fmt.Errorf("%w: key is empty; a key has at least one byte", ErrInvalidArgument)
	}
	if len(key) > l.KeyBytes {
		return fmt.Errorf("%w: key has %d bytes, limit is %d", ErrTooLarge, len(key), l.KeyBytes)
	}
	if len(key) == MaxKeyBytes && bytes.Equal(key, l.aboveAllKeys()) {
		return fmt.Errorf("%w: a key of %d bytes that are all 0xff is reserved", ErrInvalidArgument, len(key))
	}
	return nil
}

// aboveAllKeys returns a key that sorts after every legal key and that the formats can
// hold: one byte longer than a key may be, all 0xff. Limits below the defaults do not
// shorten it, since the store may have been written under the defaults. Where keys may
// be as long as the formats allow, CheckKey reserves it.
func (l Limits) aboveAllKeys() []byte {
	n := min(max(l.KeyBytes, DefaultLimits.KeyBytes)+1, MaxKeyBytes)
	return bytes.Repeat([]byte{0xff}, n)
}

// CheckValue reports whether value may be stored. The empty value is legal.
func (l Limits) CheckValue(value []byte) error {
	if len(value) > l.ValueBytes {
		return fmt.Errorf("%w: value has %d bytes, limit is %d", ErrTooLarge, len(value), l.ValueBytes)
	}
	return nil
}

// CheckRange reports whether r is valid: its bounds are no longer than a key may be,
// and it does not end before it starts.
func (l Limits) CheckRange(r Range) error {
	if n := max(len(r.Start), len(r.End)); n > l.KeyBytes {
		return fmt.Errorf("%w: a bound of the range has %d bytes, limit is %d", ErrTooLarge, n, l.KeyBytes)
	}
	if len(r.End) > 0 && bytes.Compare(r.Start, r.End) > 0 {
		return fmt.Errorf("%w: the range ends at %q, before it starts at %q", ErrInvalidArgument, r.End, r.Start)
	}
	return nil
}

// CheckReads reports whether a transaction may have read so many keys and ranges, and name so many
// keys that expire.
func (l Limits) CheckReads(reads, expiring int) error {
	if reads > l.BatchOps {
		return fmt.Errorf("%w: transaction read %d keys and ranges, limit is %d", ErrTooLarge, reads, l.BatchOps)
	}
	if expiring > l.BatchOps {
		return fmt.Errorf("%w: transaction names %d keys that expire, limit is %d", ErrTooLarge, expiring, l.BatchOps)
	}
	return nil
}

// CheckBatch reports whether an atomic batch of this many operations and bytes
// may be committed.
func (l Limits) CheckBatch(ops, bytes int) error {
	if ops > l.BatchOps {
		return fmt.Errorf("%w: batch has %d operations, limit is %d", ErrTooLarge, ops, l.BatchOps)
	}
	if bytes > l.BatchBytes {
		return fmt.Errorf("%w: batch has %d bytes, limit is %d", ErrTooLarge, bytes, l.BatchBytes)
	}
	return nil
}
