package kvd

import (
	"time"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
)

// Sentinels for errors.Is.
var (
	// ErrNotFound: the key is not there.
	ErrNotFound = backend.ErrNotFound
	// ErrConflict: the condition of a write did not hold, or a transaction read what
	// was written since; Error.Reason says which. Nothing was written.
	ErrConflict = backend.ErrConflict
	// ErrUncertain: the write may or may not have happened, now or a little later.
	ErrUncertain = backend.ErrUncertain
	// ErrOverloaded: the server refused before doing anything; see Error.RetryAfter.
	ErrOverloaded = backend.ErrOverloaded
	// ErrUnavailable: no server was reached, or it is stopping or has failed.
	ErrUnavailable = backend.ErrUnavailable
	// ErrReadOnly: the server takes no writes, for example because its disk is full.
	ErrReadOnly = backend.ErrReadOnly
	// ErrTooLarge: a key, value, batch, transaction or answer exceeds a limit.
	ErrTooLarge = backend.ErrTooLarge
	// ErrInvalid: the call can never succeed as it stands.
	ErrInvalid = backend.ErrInvalid
	// ErrVersionGone: the server does not keep the version any more: the lease of a
	// snapshot has ended, or a scan took too long.
	ErrVersionGone = backend.ErrVersionGone
	// ErrCorrupt: what the server has stored failed its checksum.
	ErrCorrupt = backend.ErrCorrupt
	// ErrClosed: the client or snapshot was closed, or the transaction is over.
	ErrClosed = backend.ErrClosed
	// ErrInternal: the server or the client has a bug.
	ErrInternal = backend.ErrInternal
)

// Error is what every failed call returns.
type Error struct {
	// Op is the call: "get", "put", "scan" and so on.
	Op string
	// Reason is the stable word that the server sent, such as "READ_ONLY"; empty if
	// the error did not come from the server. An ErrConflict has "CONDITION_FAILED"
	// or "CONFLICT", also where the client itself found it.
	Reason string
	// Message is what the server said, for people.
	Message string
	// Version is what the key had in place of what a failed condition asked for: 0 if
	// it was absent, or not yet committed.
	Version uint64
	// Attempts is how often the call was tried, or the transaction run.
	Attempts int
	// RetryAfter is when the server asked to be called again; 0 if it did not.
	RetryAfter time.Duration
	// Err matches a sentinel, and the error of the context where that ended the
	// call.
	Err error
}

func (e *Error) Error() string { return (*backend.Failure)(e).Error() }

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }
