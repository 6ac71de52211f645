package kv

import "fmt"

// Transaction is what an optimistic transaction brings to its commit: what it
// read, at which version, and what it wants to write (Kung and Robinson, "On
// Optimistic Methods for Concurrency Control", 1981).
//
// The slices are borrowed until the commit returns.
type Transaction struct {
	// ReadVersion is what Keys and Ranges were read at. Zero if both are empty.
	ReadVersion SeqNum
	// Epoch is the Snapshot.Epoch of ReadVersion; 0: not known.
	Epoch uint64
	// Keys were read, found or not. The commit fails if one was written since.
	Keys [][]byte
	// Ranges were scanned. The commit fails if a key in one was written since,
	// also one that was not there before (a phantom).
	Ranges []Range
	// Expiring are keys that were found, by themselves or in a range, with an expiry.
	// The commit fails if one has expired since. Of many, those that expire first will
	// do.
	Expiring [][]byte
	// Batch is what to write. Its guards are conditions too.
	Batch *WriteBatch
}

// Check reports whether the transaction may be committed under the limits. A
// transaction has as many reads, at most, as a batch has operations.
func (t *Transaction) Check(l Limits) error {
	if n := len(t.Keys) + len(t.Ranges); n > l.BatchOps {
		return fmt.Errorf("%w: transaction read %d keys and ranges, limit is %d", ErrTooLarge, n, l.BatchOps)
	}
	for i, key := range t.Keys {
		if err := l.CheckKey(key); err != nil {
			return fmt.Errorf("key %d that the transaction read: %w", i, err)
		}
	}
	for i, r := range t.Ranges {
		if err := l.CheckRange(r); err != nil {
			return fmt.Errorf("range %d that the transaction read: %w", i, err)
		}
	}
	if n := len(t.Expiring); n > l.BatchOps {
		return fmt.Errorf("%w: transaction names %d keys that expire, limit is %d", ErrTooLarge, n, l.BatchOps)
	}
	for i, key := range t.Expiring {
		if err := l.CheckKey(key); err != nil {
			return fmt.Errorf("expiring key %d that the transaction read: %w", i, err)
		}
	}
	if t.ReadVersion == 0 && len(t.Keys)+len(t.Ranges)+len(t.Expiring) > 0 {
		return fmt.Errorf("%w: the transaction read something at no version", ErrInvalidArgument)
	}
	return t.Batch.Check(l)
}

// ConflictError reports a transaction that read what another write changed since;
// nothing was written. Run it again. errors.Is(err, ErrConflict) holds for it.
type ConflictError struct {
	// Key was written since, or is in a scanned range that was. It may be nil, and
	// the report may be false: two keys may be taken for one, and memory of old
	// writes is bounded.
	Key []byte
	// Version is not less than that of the write that stands in the way.
	Version SeqNum
}

func (e *ConflictError) Error() string {
	if e.Key == nil {
		return "conflict: something that the transaction read has been written since; run it again"
	}
	return fmt.Sprintf("conflict: key %q has been written since the transaction read it; run it again", e.Key)
}

// Is makes every ConflictError match ErrConflict.
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }
