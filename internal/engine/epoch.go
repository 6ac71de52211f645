package engine

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"

	"github.com/kvd-db/kvd/internal/kv"
)

// newEpoch returns the id of an opening of a store.
func newEpoch() (uint64, error) {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return 0, fmt.Errorf("name an opening of the store: %w", err)
	}
	return binary.LittleEndian.Uint64(b[:]) | 1, nil
}

// Epoch returns the random id of this opening of the store.
func (e *Engine) Epoch() uint64 { return e.epoch }

// checkReadVersion returns kv.ErrOtherOpening unless a transaction read at a version
// of this opening of the store.
//
// What was read before this opening may be gone: buffered writes are visible before
// they are on disk, and a power cut takes them. Such a version is below the number
// that the opening began with, since the log skips numbers after an unclean stop. (At
// that very number the log was closed in order, and everything is there.) A store that
// was restored from an older copy gives the same numbers out again; there the epoch
// tells, and, of a client that does not know it, a version that is still to come.
func (e *Engine) checkReadVersion(t *kv.Transaction) error {
	switch opened := e.recovery.NextSeq - 1; {
	case t.Epoch != 0 && t.Epoch != e.epoch:
		return fmt.Errorf("%w: version %d is of another epoch of the store: begin a new transaction", kv.ErrOtherOpening, t.ReadVersion)
	case t.ReadVersion < opened:
		return fmt.Errorf("%w: version %d, and the store was opened at version %d: begin a new transaction", kv.ErrOtherOpening, t.ReadVersion, opened)
	case t.ReadVersion > e.sequencer.Visible() && t.ReadVersion > e.acknowledged():
		return fmt.Errorf("%w: version %d is still to come: begin a new transaction", kv.ErrOtherOpening, t.ReadVersion)
	}
	return nil
}

// acknowledged returns a number at or above that of every write acknowledged so far.
func (e *Engine) acknowledged() kv.SeqNum {
	var newest kv.SeqNum
	for _, p := range e.partitions {
		newest = max(newest, p.Published())
	}
	return newest
}
