package kv

import "fmt"

// Transaction is the input of an optimistic commit: what was read, at which version,
// and what to write (Kung and Robinson, "On Optimistic Methods for Concurrency
// Control", 1981).
//
// The slices are borrowed until the commit returns.
type Transaction struct {
	// ReadVersion is the version that Keys and Ranges were read at. Zero if both are
	// empty.
	ReadVersion SeqNum
	// Epoch is the Snapshot.Epoch of ReadVersion; 0: not known.
	Epoch uint64
	// Elsewhere: ReadVersion was read on another node of the cluster, which vouches for the Epoch:
	// that of its store. This node may not have come to the version yet.
	Elsewhere bool
	// Keys were read, found or not. The commit fails if one has been written since.
	Keys [][]byte
	// Ranges were scanned. The commit fails if a key in one has been written since,
	// even one that did not exist before (a phantom).
	Ranges []Range
	// Expiring lists keys that were found with an expiry, by a read or in a range. The
	// commit fails if one has expired since. Those that expire first suffice.
	Expiring [][]byte
	// Batch is what to write. Its guards must hold too.
	Batch *WriteBatch
}

// Check reports whether the transaction is valid under the limits. It may read at most
// as many keys and ranges as a batch has operations.
func (t *Transaction) Check(l Limits) error {
	if err := l.CheckReads(len(t.Keys)+len(t.Ranges), len(t.Expiring)); err != nil {
		return err
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

// ConflictError reports a transaction that read what another write has changed since;
// nothing was written. Run the transaction again. errors.Is(err, ErrConflict) holds for
// it.
type ConflictError struct {
	// Key was written since, or lies in a scanned range that was. It may be nil. The
	// conflict may be false: two keys with the same hash are not told apart, and the
	// record of old writes is bounded.
	Key []byte
	// Version is at least that of the conflicting write.
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
