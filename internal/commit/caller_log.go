package commit

import (
	"context"
	"errors"
	"fmt"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/wal"
)

// CallerLog is a [Log] for which callers can wait: one whose record found no room, one whose
// write was sent again, and a flush (see partition.Log). A node's own log implements it, and
// a replicated one can.
type CallerLog interface {
	Log
	// AwaitRoom returns when an Append that returned wal.ErrNoRoomYet may succeed, or with
	// the cause of ctx when that ends.
	AwaitRoom(ctx context.Context) error
	// End returns the position after everything appended so far.
	End() wal.Pos
	// WaitSynced returns once Reached(kv.DurabilitySync) is at least pos, which Append or
	// End returned. Errors: that of Err, and the cause of ctx, which ends only the wait.
	WaitSynced(ctx context.Context, pos wal.Pos) error
}

var _ CallerLog = (*wal.Log)(nil)

// AppendEmpty appends a record without operations, which takes one number, as soon as the
// log has room. It does not wait for the record to become durable.
//
// Errors: those of Log.Append, except for wal.ErrNoRoomYet, and the cause of ctx.
func AppendEmpty(ctx context.Context, log CallerLog) (kv.SeqNum, error) {
	for {
		seq, _, err := log.Append(nil, 1, kv.DurabilityMemory, silentWaker{}, nil)
		if !errors.Is(err, wal.ErrNoRoomYet) {
			return seq, err
		}
		if err := log.AwaitRoom(ctx); err != nil {
			return 0, err
		}
	}
}

// silentWaker is the Waker of a record that no caller waits for.
type silentWaker struct{}

func (silentWaker) Wake()     {}
func (silentWaker) RunReady() {}

// AwaitDurable returns once everything appended to the log has the durability given, and so
// has the first attempt at a write that was sent again: that attempt may have asked for less,
// and its durability is not remembered. The error is kv.ErrUncertain.
//
// Cost: commonly nothing, since the log has that durability already; otherwise at most the
// sync in progress and one more.
func AwaitDurable(ctx context.Context, log CallerLog, level kv.Durability) error {
	if level == kv.DurabilityMemory {
		return nil
	}
	end := log.End()
	if level == kv.DurabilityBuffered {
		log.Flush()
		if log.Reached(level) >= end {
			return nil
		}
	}
	if err := log.WaitSynced(ctx, end); err != nil {
		return fmt.Errorf("%w: %w", kv.ErrUncertain, err)
	}
	return nil
}
