package wal

import (
	"context"
	"fmt"

	"github.com/kvd-db/kvd/internal/kv"
)

// WaitSynced syncs the log up to pos, which Append returned, and returns when that is
// done.
//
// Errors: Err after a failure, kv.ErrClosed if the log was closed first (Close syncs all
// the same), and the cause of ctx, which ends only the wait.
func (l *Log) WaitSynced(ctx context.Context, pos Pos) error {
	if l.suspended.Load() {
		return l.suspendedError(l.Suspended())
	}
	if l.Synced() >= pos {
		return nil
	}
	l.mu.Lock()
	if err := l.askSyncLocked(pos); err != nil {
		l.mu.Unlock()
		return err
	}
	l.mu.Unlock()
	l.Flush()
	return l.await(ctx, func() bool { return l.Synced() >= pos })
}

// askSyncLocked asks for a sync up to pos.
func (l *Log) askSyncLocked(pos Pos) error {
	if pos > l.mu.end {
		return fmt.Errorf("%w: wait for position %d of the commit log, which ends at %d", kv.ErrInvalidArgument, pos, l.mu.end)
	}
	l.mu.syncTo = max(l.mu.syncTo, pos)
	return nil
}

// signal is a Waker for a goroutine that receives from it.
type signal chan struct{}

// Wake implements Waker.
func (s signal) Wake() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// RunReady implements Waker.
func (s signal) RunReady() { s.Wake() }

// await returns once doneLocked holds. It looks again after each sync.
func (l *Log) await(ctx context.Context, doneLocked func() bool) error {
	woken := make(signal, 1)
	for {
		l.mu.Lock()
		done, err := doneLocked(), l.Err()
		if err == nil && l.mu.stopped {
			err = kv.ErrClosed
		}
		if !done && err == nil {
			l.mu.awaiting = append(l.mu.awaiting, woken)
			if !l.mu.syncing && l.workLeftLocked() {
				l.pokeSyncer()
			}
		}
		l.mu.Unlock()
		if done {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-woken:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
