package kv

import (
	"errors"
	"fmt"
	"time"
)

// Sentinel errors, matched with errors.Is.
var (
	// ErrNotFound: the key is absent or deleted.
	ErrNotFound = errors.New("key not found")
	// ErrClosed: the object was closed; nothing was done.
	ErrClosed = errors.New("closed")
	// ErrInvalidArgument: the request can never succeed unchanged.
	ErrInvalidArgument = errors.New("invalid argument")
	// ErrTooLarge: a key, value or batch exceeds a limit.
	ErrTooLarge = errors.New("too large")
	// ErrOverloaded: rejected before anything was done; see OverloadError.
	ErrOverloaded = errors.New("overloaded")
	// ErrConflict: data that a transaction read has been written since; see
	// ConflictError.
	ErrConflict = errors.New("conflict")
	// ErrConditionFailed: the condition of a write did not hold; see ConditionError.
	ErrConditionFailed = errors.New("condition failed")
	// ErrUncertain: the write may or may not have happened.
	ErrUncertain = errors.New("outcome unknown")
	// ErrReadOnly: the store takes no writes (for example, the disk is full).
	ErrReadOnly = errors.New("read-only")
	// ErrFailed: the store stopped for good after a failed write or sync of its
	// log or manifest. Reopen it to go on.
	ErrFailed = errors.New("store failed")
	// ErrUnsupportedVersion: this version does not know the format of a file. That is
	// not corruption: a newer kvd may have written it.
	ErrUnsupportedVersion = errors.New("unsupported format version")
	// ErrVersionGone: a call named a version that the store does not have, mostly one that it no
	// longer keeps.
	ErrVersionGone = errors.New("version no longer available")
	// ErrOtherOpening: the version was read before the store was opened, or in another
	// copy of it. It matches ErrVersionGone. Neither this call nor an earlier attempt
	// at it was applied.
	ErrOtherOpening = fmt.Errorf("%w: it was read before the store was opened", ErrVersionGone)
	// ErrVersionAhead: the call named a version that the store has not come to, as it knows
	// everything that was acknowledged before the call: the version is of another store, or was
	// lost when this one was restored or its cluster recovered. Nothing was done. It matches
	// ErrVersionGone.
	ErrVersionAhead = fmt.Errorf("%w: the store has not come to it", ErrVersionGone)
	// ErrRequestIDReused: another write used the same request id; nothing was done. It
	// matches ErrInvalidArgument. An id is remembered by one partition, the first of those in
	// which the write lies: a write for which that is another one counts as a new write.
	ErrRequestIDReused = fmt.Errorf("%w: the request id was used for another write", ErrInvalidArgument)
	// ErrCorrupt matches every CorruptionError.
	ErrCorrupt = errors.New("corruption")
)

// LateAttemptError refuses an attempt at a write that says of itself that it is the first. A retry of
// the write may have been applied before it came, so long ago that this is forgotten. This attempt did
// nothing, so a caller that has sent no other one knows that nothing was done.
// errors.Is(err, ErrUncertain) holds for it.
type LateAttemptError struct {
	// Known is a version such that a new write is not refused for what was applied before, if it says
	// that its caller had seen this version (RequestID.KnownVersion).
	Known SeqNum
}

func (e *LateAttemptError) Error() string {
	return ErrUncertain.Error() + ": the attempt came so late that a later one may have been applied and forgotten; it did nothing"
}

// Unwrap returns ErrUncertain.
func (e *LateAttemptError) Unwrap() error { return ErrUncertain }

// CorruptionError reports stored bytes that differ from what was written.
// errors.Is(err, ErrCorrupt) holds for it.
type CorruptionError struct {
	File   string // path inside the data directory
	Offset int64  // where the damaged unit starts; -1 if the whole file
	Reason string

	// First and Last bound the keys that cannot be read for it, Last included; both are nil
	// if that is not known. They are immutable.
	First, Last []byte
}

func (e *CorruptionError) Error() string {
	if e.Offset < 0 {
		return fmt.Sprintf("corruption in %s: %s", e.File, e.Reason)
	}
	return fmt.Sprintf("corruption in %s at offset %d: %s", e.File, e.Offset, e.Reason)
}

// Is makes every CorruptionError match ErrCorrupt.
func (e *CorruptionError) Is(target error) bool { return target == ErrCorrupt }

// Corruptf returns a *CorruptionError with a formatted reason.
func Corruptf(file string, offset int64, format string, args ...any) error {
	return &CorruptionError{File: file, Offset: offset, Reason: fmt.Sprintf(format, args...)}
}

// Corruptions returns every CorruptionError in err, also in errors that are joined.
func Corruptions(err error) []*CorruptionError {
	switch e := err.(type) {
	case nil:
		return nil
	case *CorruptionError:
		return []*CorruptionError{e}
	case interface{ Unwrap() []error }:
		var all []*CorruptionError
		for _, err := range e.Unwrap() {
			all = append(all, Corruptions(err)...)
		}
		return all
	}
	return Corruptions(errors.Unwrap(err))
}

// OverloadError says that work was rejected before anything was done, why, and when to
// retry. errors.Is(err, ErrOverloaded) holds for it.
type OverloadError struct {
	Reason     string // a stable word: "inbox_full", "queue_time", ...
	RetryAfter time.Duration
}

func (e *OverloadError) Error() string {
	return fmt.Sprintf("overloaded: %s; retry after %v", e.Reason, e.RetryAfter)
}

// Is makes every OverloadError match ErrOverloaded.
func (e *OverloadError) Is(target error) bool { return target == ErrOverloaded }
