// Package reason says what an error of a store means to a caller of its calls, whether the
// caller is in this process or behind a protocol: a word that clients decide by, and a
// sentence.
//
// It does not know how a protocol or a client numbers or names errors; each has a table by
// reason. Errors that only one of them makes are not here.
package reason

import (
	"errors"
	"slices"

	"github.com/kvd-db/kvd/internal/kv"
)

// The reasons of errors. Clients decide by them, so they do not change; the protos list
// what each means.
const (
	KeyNotFound      = "KEY_NOT_FOUND"
	InvalidRequest   = "INVALID_REQUEST"
	RequestIDReused  = "REQUEST_ID_REUSED"
	InvalidPageToken = "INVALID_PAGE_TOKEN"
	TooLarge         = "TOO_LARGE"
	Overloaded       = "OVERLOADED"
	DeadlineExceeded = "DEADLINE_EXCEEDED"
	Cancelled        = "CANCELLED"
	ConditionFailed  = "CONDITION_FAILED"
	Conflict         = "CONFLICT"
	OutcomeUnknown   = "OUTCOME_UNKNOWN"
	ReadOnly         = "READ_ONLY"
	NotLeader        = "NOT_LEADER"
	ShuttingDown     = "SHUTTING_DOWN"
	StoreFailed      = "STORE_FAILED"
	VersionGone      = "VERSION_GONE"
	Corruption       = "CORRUPTION"
	Internal         = "INTERNAL"

	Unauthenticated  = "UNAUTHENTICATED"
	PermissionDenied = "PERMISSION_DENIED"
	ClusterRecovered = "CLUSTER_RECOVERED"
	AttemptTooLate   = "ATTEMPT_TOO_LATE" // in this process such a write is of an unknown outcome
)

// Class is a kind of error that a store returns.
type Class struct {
	Err    error // what errors of the class match
	Reason string
	// Message is a sentence for the caller, without anything that is in the error itself.
	Message string
}

// classes are in the order in which they are looked for: an error may match several. A write
// whose outcome is unknown is that, whatever else its error says.
var classes = []Class{
	{kv.ErrUncertain, OutcomeUnknown, "the write may or may not have happened"},
	{kv.ErrNotLeader, NotLeader, "the server does not lead its cluster, and takes no writes; nothing was done"},
	{kv.ErrOverloaded, Overloaded, "nothing was done, try again later"},
	{kv.ErrCorrupt, Corruption, "stored data failed its checksum"},
	{kv.ErrReadOnly, ReadOnly, "the store takes no writes now: its disk has no space for them; nothing was done"},
	{kv.ErrConditionFailed, ConditionFailed, "a condition did not hold; nothing was done"},
	{kv.ErrConflict, Conflict, "what the transaction read has been written since; nothing was done, run it again"},
	{kv.ErrNotFound, KeyNotFound, "key not found"},
	{kv.ErrTooLarge, TooLarge, "the request exceeds a limit"},
	{kv.ErrRequestIDReused, RequestIDReused, "the request id was used for another write; nothing was done"},
	{kv.ErrInvalidArgument, InvalidRequest, "the request is invalid"},
	{kv.ErrFailed, StoreFailed, "the store stopped after an error of its disk; nothing was done"},
	{kv.ErrClosed, ShuttingDown, "the store was closed; nothing was done"},
	{kv.ErrOtherOpening, VersionGone, "the version was read before the store was opened; nothing was done, begin anew"},
	{kv.ErrVersionAhead, VersionGone, "the store has not come to this version: it is of another store, or was lost when this one was restored or its cluster recovered; nothing was done, begin anew without it"},
	{kv.ErrVersionGone, VersionGone, "the version is no longer kept; begin anew"},
}

// Classes returns every class.
func Classes() []Class { return slices.Clone(classes) }

// Classify returns the class of an error of a store. It reports false for an error that is
// in none: one of the context, or one that no store should return.
func Classify(err error) (Class, bool) {
	for _, c := range classes {
		if errors.Is(err, c.Err) {
			return c, true
		}
	}
	return Class{}, false
}
