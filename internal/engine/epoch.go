package engine

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"

	"github.com/kvd-db/kvd/internal/kv"
)

// newEpoch returns a random id for an opening of the store; it is not 0.
func newEpoch() (uint64, error) {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return 0, fmt.Errorf("choose an epoch: %w", err)
	}
	return binary.LittleEndian.Uint64(b[:]) | 1, nil
}

// Epoch returns the random id of this opening of the store.
func (e *Engine) Epoch() uint64 { return e.epoch }

// checkReadVersion returns kv.ErrOtherOpening unless the transaction read at a version of
// this opening of the store and, on a member of a cluster, of the tenure in which it is to
// commit.
//
// A write that was read before this opening may be lost: buffered writes are visible before
// they are on disk, and a power cut can take them. Such a read version is below the number
// that this opening began with, since the log skips numbers after an unclean stop. (If the
// two are equal, the log was closed in order and nothing is lost.) A store restored from an
// older copy gives the same numbers out again. The epoch detects that; for a client that
// sends no epoch, a version that the store has not reached yet does.
//
// A version that was read on another node of the cluster was committed, and has the same number
// here. The store has reached it: see reach.
//
// Between two tenures of a member another node may have led, and refused an attempt at the
// transaction because of its epoch, after an attempt that is still on its way to this one. The
// client was told that nothing will be applied, so this member refuses what was read before its
// tenure.
func (e *Engine) checkReadVersion(to *writers, t *kv.Transaction) error {
	switch opened := e.recovery.NextSeq - 1; {
	case t.Epoch != 0 && t.Epoch != e.epoch && !t.Elsewhere:
		return fmt.Errorf("%w: version %d is from another epoch of the store: begin a new transaction", kv.ErrOtherOpening, t.ReadVersion)
	case t.ReadVersion < opened:
		return fmt.Errorf("%w: version %d, and the store was opened at version %d: begin a new transaction", kv.ErrOtherOpening, t.ReadVersion, opened)
	case to.tenure != nil && t.ReadVersion < to.tenure.since:
		return fmt.Errorf("%w: version %d, and this node leads its cluster since version %d: begin a new transaction", kv.ErrOtherOpening, t.ReadVersion, to.tenure.since)
	case t.ReadVersion > e.sequencer.Visible() && t.ReadVersion > e.acknowledged():
		return fmt.Errorf("%w: the store has not reached version %d: begin a new transaction", kv.ErrOtherOpening, t.ReadVersion)
	}
	return nil
}

// reach returns once the store shows a version that was read on another node of the cluster. What
// that node shows is committed, so this one has applied it after a round. An attempt at the
// transaction that is still on its way commits if the cluster comes to the version before, so it is
// not refused with kv.ErrOtherOpening.
//
// Errors: kv.ErrVersionAhead if the cluster does not have the version; those of confirm.
func (e *Engine) reach(ctx context.Context, to *writers, version kv.SeqNum) error {
	if e.sequencer.Visible() >= version {
		return nil
	}
	if err := e.confirm(ctx, to); err != nil {
		return err
	}
	if e.sequencer.Visible() < version {
		return versionAhead(version)
	}
	return nil
}

// acknowledged returns a number that no write acknowledged so far exceeds.
func (e *Engine) acknowledged() kv.SeqNum {
	var newest kv.SeqNum
	for _, p := range e.partitions {
		newest = max(newest, p.Published())
	}
	return newest
}
