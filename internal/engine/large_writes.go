package engine

import "context"

const (
	// smallWrite is the most bytes of a call whose writes count as small: a full frame of
	// small operations.
	smallWrite = 64 << 10
	// largeWriteBytes bounds the bytes of all calls with large writes between their
	// admission and their answer; a call with more is admitted alone. The log and the
	// orchestrators serve records in order, so this bounds how many bytes a small write
	// waits for. The price is that large synced writes share a sync only within the bound.
	// It is the size of the longest value, whose write takes about as long as a sync.
	largeWriteBytes = 4 << 20
)

// isLarge reports whether a call that writes this many bytes counts as large.
func isLarge(bytes int) bool { return bytes > smallWrite }

// admit waits until a call may write this many bytes. The caller calls leave with the same
// size once its writes are decided or it has given them up.
//
// Large writes wait for each other here, before they enter any queue that small writes
// share with them: the inbox of a partition, or the log.
//
// On a disk without space for a flush, deletes do not wait for one, although the memtables may be
// full: they are what makes space. The log bounds them, since it has what it has reserved and no more.
func (e *Engine) admit(ctx context.Context, bytes int) error {
	e.waiters.begin()
	if isLarge(bytes) {
		if err := e.large.take(ctx, int64(bytes)); err != nil {
			e.waiters.end()
			return err
		}
	}
	if e.lastSpace() {
		return nil
	}
	err := e.budget.admit(ctx, bytes)
	if err != nil {
		e.leave(bytes)
	}
	return err
}

// leave ends what admit began.
func (e *Engine) leave(bytes int) {
	e.waiters.end()
	if isLarge(bytes) {
		e.large.release(int64(bytes))
	}
}
