package kvd

import (
	"time"

	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
)

// Sentinels for errors.Is. Every error of a call is an *Error that matches one of them, or
// context.Canceled or context.DeadlineExceeded.
var (
	// ErrNotFound: the key is absent.
	ErrNotFound = backend.ErrNotFound
	// ErrConflict: the condition of a write did not hold, or data that a transaction read
	// was written since. Error.Reason tells which. Nothing was written.
	ErrConflict = backend.ErrConflict
	// ErrUncertain: the write may have been applied, or may be applied a little later.
	ErrUncertain = backend.ErrUncertain
	// ErrOverloaded: the server refused the call before it did anything. Error.RetryAfter
	// says when to retry.
	ErrOverloaded = backend.ErrOverloaded
	// ErrUnavailable: no server can be reached, or the server is stopping or has failed.
	ErrUnavailable = backend.ErrUnavailable
	// ErrReadOnly: the server accepts no writes, for example because its disk is full, or
	// because it does not lead its cluster and cannot reach the node that does (Reason
	// "NOT_LEADER").
	ErrReadOnly = backend.ErrReadOnly
	// ErrTooLarge: a key, value, batch, transaction or answer exceeds a limit.
	ErrTooLarge = backend.ErrTooLarge
	// ErrInvalid: an argument or option is invalid, such as one that is nil; the same call always fails.
	ErrInvalid = backend.ErrInvalid
	// ErrVersionGone: the server no longer keeps the version, because the lease of a
	// snapshot has ended, the server has restarted, or a scan took too long; or it never had
	// the version: see MinVersion.
	ErrVersionGone = backend.ErrVersionGone
	// ErrCorrupt: stored data failed its checksum on the server.
	ErrCorrupt = backend.ErrCorrupt
	// ErrClosed: the client or the snapshot was closed, or the transaction has ended.
	ErrClosed = backend.ErrClosed
	// ErrUnauthenticated: the server does not know the client, or its token or certificate was
	// revoked or has expired. Nothing was done.
	ErrUnauthenticated = backend.ErrUnauthenticated
	// ErrPermission: the client may not read or write a key or range of the call, or may not
	// make the call at all. Nothing was done. It does not tell whether a key exists.
	ErrPermission = backend.ErrPermission
	// ErrRecovered: the server is of another incarnation of its cluster than the first one that this
	// client has talked to. The cluster was recovered from a lost majority of its nodes since, so that
	// acknowledged writes may be missing; or the server was recovered apart from the others, and is
	// another cluster with the same id. The call was refused, unless the error is also ErrUncertain.
	// Compare the incarnations that the nodes tell (Client.Cluster, kvd cluster status), then open
	// another client, which takes that of the first server that answers.
	ErrRecovered = backend.ErrRecovered
	// ErrInternal: the server or the client has a bug.
	ErrInternal = backend.ErrInternal
)

// Error is what every failed call returns. Calls may share one, so it must not be changed.
type Error struct {
	// Op is the call, for example "get", "put" or "scan".
	Op string
	// Reason is the server's stable word for the error, such as "READ_ONLY", and empty if
	// the error did not come from the server. ErrConflict always has one:
	// "CONDITION_FAILED" or "CONFLICT".
	Reason string
	// Message is the server's explanation for people.
	Message string
	// Version is the version of the key for which a condition failed: 0 if the key was
	// absent, or written by the transaction itself.
	Version uint64
	// Attempts is the number of times that the call was tried or the transaction was run.
	Attempts int
	// RetryAfter is the wait that the server asked for before the next try; 0 if none.
	RetryAfter time.Duration
	// Err matches a sentinel and, if the context ended the call, the error of the context.
	Err error
}

func (e *Error) Error() string { return (*backend.Failure)(e).Error() }

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }
