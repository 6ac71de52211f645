package service

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/reason"
)

// Code is the class of an error. The numbers are those of gRPC, which compact frames have
// too.
type Code uint32

// The codes that the server gives. A protocol may count others.
const (
	OK                 Code = 0
	Canceled           Code = 1
	InvalidArgument    Code = 3
	DeadlineExceeded   Code = 4
	NotFound           Code = 5
	PermissionDenied   Code = 7
	ResourceExhausted  Code = 8
	FailedPrecondition Code = 9
	Aborted            Code = 10
	OutOfRange         Code = 11
	Internal           Code = 13
	Unavailable        Code = 14
	DataLoss           Code = 15
	Unauthenticated    Code = 16
)

const unknownCode Code = 2

var codeNames = [...]string{
	"OK", "Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists", "PermissionDenied",
	"ResourceExhausted", "FailedPrecondition", "Aborted", "OutOfRange", "Unimplemented", "Internal", "Unavailable", "DataLoss", "Unauthenticated",
}

func (c Code) String() string {
	if int(c) < len(codeNames) {
		return codeNames[c]
	}
	return "Code(" + strconv.FormatUint(uint64(c), 10) + ")"
}

// Error is an error as a client sees it, in whatever form its protocol has for errors. Its
// message never has a key, a value, a file name or a Go type in it.
type Error struct {
	Code    Code
	Reason  string // of package reason
	Message string

	RetryAfter  time.Duration // 0: not known
	Version     kv.SeqNum     // of reason.KeyNotFound, reason.ConditionFailed and reason.AttemptTooLate
	Key         []byte        // of reason.ConditionFailed and reason.Conflict; nil: not known
	RequestID   string        // the error is reported under; empty: it is not
	Size, Limit int64         // of a request that is too long, in bytes; 0: not known
	// Cause tells apart errors of one Reason: which limit, of reason.Overloaded, CauseOpening and
	// CauseElsewhere.
	Cause string
}

// CauseOpening of reason.VersionGone: the store was opened since.
const CauseOpening = "opening"

// CauseElsewhere of reason.NotLeader: it is known which other node leads.
const CauseElsewhere = "elsewhere"

func (e *Error) Error() string { return e.Message }

// RetryAfterMillis is RetryAfter for an answer, an hour at most.
func (e *Error) RetryAfterMillis() uint32 {
	return uint32(min(e.RetryAfter, time.Hour) / time.Millisecond)
}

// CodeOf returns the code of an error that a method of the Server returned.
func CodeOf(err error) Code {
	if err == nil {
		return OK
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return unknownCode
}

// requestError is an error of the server's own checks: its text may go to the
// caller as it stands.
type requestError struct{ error }

func (e requestError) Unwrap() error { return e.error }

// Invalid marks an error of package kv's limits, or of this package, as safe to
// show.
func Invalid(err error) error { return requestError{err} }

// Invalidf returns an error of a request that is invalid. Its text goes to the client.
func Invalidf(format string, args ...any) error {
	return requestError{fmt.Errorf("%w: "+format, append([]any{kv.ErrInvalidArgument}, args...)...)}
}

// TooLarge returns an error of a request that exceeds a limit. Its text goes to the client.
func TooLarge(format string, args ...any) error {
	return Invalid(fmt.Errorf("%w: "+format, append([]any{kv.ErrTooLarge}, args...)...))
}

var errPageToken = errors.New("page token is damaged or belongs to another range")

// KeyNotFound is the answer to a read that found nothing at a version.
func KeyNotFound(at kv.SeqNum) *Error {
	return &Error{Code: NotFound, Reason: reason.KeyNotFound, Message: "key not found", Version: at}
}

// ShuttingDown refuses an operation of which nothing was done.
var ShuttingDown = &Error{
	Code: Unavailable, Reason: reason.ShuttingDown,
	Message: "the server is shutting down; nothing was done",
}

// Evicted ends a connection that idled. Its reason is not OVERLOADED, since what its client
// has sent meanwhile may have been done.
var Evicted = &Error{
	Code: Unavailable, Reason: reason.ShuttingDown,
	Message: "the connection idled and was closed to make room for another one; connect again",
}

// refusedConnection is the error of a connection for which there is no place.
func refusedConnection(why Shed) *Error {
	f := ShedError(why)
	f.Message = "the server has as many connections as it may have (--max-connections), and all are in use; nothing was done, try again later"
	if why == shedByPeer {
		f.Message = "this address has as many connections as it may have (--max-peer-connections), and all are in use; nothing was done, try again later"
	}
	return f
}

// ShedError refuses work of which nothing was done, for a reason of the counters.
func ShedError(why Shed) *Error { return overloaded(shedNames[why], retryAfterShed) }

// retryAfterShed is the advice to a client whose request was refused on arrival. Guessed:
// long compared with a call, short compared with a deadline.
const retryAfterShed = 50 * time.Millisecond

// overloaded refuses work of which nothing was done. Its message begins with the text of
// kvd.ErrOverloaded, which the client then does not say twice.
func overloaded(cause string, retryAfter time.Duration) *Error {
	return &Error{
		Code: ResourceExhausted, Reason: reason.Overloaded,
		Message:    "server overloaded; nothing was done, try again later",
		RetryAfter: retryAfter,
		Cause:      cause,
	}
}

// readOnlyFailure refuses a write. Its message has the figures of the disk, or says that the
// file system is read-only.
func readOnlyFailure(why *kv.ReadOnlyError) *Error {
	what := "puts"
	if why.Resume == 0 {
		what = "writes"
	}
	return &Error{Code: Unavailable, Reason: reason.ReadOnly, Message: "the server takes no " + what + ": " + why.Message()}
}

// codes gives the code of each reason.
var codes = map[string]Code{
	reason.KeyNotFound:      NotFound,
	reason.InvalidRequest:   InvalidArgument,
	reason.RequestIDReused:  InvalidArgument,
	reason.InvalidPageToken: InvalidArgument,
	reason.TooLarge:         InvalidArgument,
	reason.Overloaded:       ResourceExhausted,
	reason.DeadlineExceeded: DeadlineExceeded,
	reason.Cancelled:        Canceled,
	reason.ConditionFailed:  FailedPrecondition,
	reason.Conflict:         Aborted,
	reason.OutcomeUnknown:   DeadlineExceeded,
	reason.ReadOnly:         Unavailable,
	reason.NotLeader:        FailedPrecondition,
	reason.ShuttingDown:     Unavailable,
	reason.StoreFailed:      Unavailable,
	reason.VersionGone:      OutOfRange,
	reason.Corruption:       DataLoss,
	reason.Internal:         Internal,
	reason.AttemptTooLate:   Aborted,
}

// ownClasses are those of errors that are not the store's.
var ownClasses = []reason.Class{
	{Err: errPageToken, Reason: reason.InvalidPageToken, Message: errPageToken.Error()},
	{Err: context.DeadlineExceeded, Reason: reason.DeadlineExceeded, Message: "time ran out; nothing was done"},
	{Err: context.Canceled, Reason: reason.Cancelled, Message: "the call was cancelled; nothing was done"},
}

// classify returns the class of an error of the store or of the server's own checks.
func classify(err error) (reason.Class, bool) {
	if c, ok := reason.Classify(err); ok {
		return c, true
	}
	for _, c := range ownClasses {
		if errors.Is(err, c.Err) {
			return c, true
		}
	}
	return reason.Class{}, false
}

// Failure translates an error for the caller of a method. What the caller must
// not see, or cannot use, is reported under a request id.
func (s *Server) Failure(m *Method, err error) *Error {
	if f, ok := errors.AsType[*Error](err); ok {
		return f
	}
	class, known := classify(err)
	// A shutdown ends contexts that their callers have not cancelled.
	cut := s.working.Err() != nil && errors.Is(err, context.Canceled)
	f := &Error{Code: codes[class.Reason], Reason: class.Reason, Message: class.Message}
	if safe, ok := errors.AsType[requestError](err); ok {
		f.Message = safe.Error()
	}
	switch class.Reason {
	case reason.OutcomeUnknown:
		if late, ok := errors.AsType[*kv.LateAttemptError](err); ok {
			return attemptTooLate(late)
		}
		f.explainDoubt(err, cut)
		return f
	case reason.Overloaded:
		s.counters.shed(shedByStore)
		if overload, ok := errors.AsType[*kv.OverloadError](err); ok {
			return overloaded(overload.Reason, overload.RetryAfter)
		}
		return overloaded("store", 0)
	case reason.Corruption:
		return s.hidden(m, err, f.Code, f.Reason, f.Message+"; the server's log says where")
	case reason.NotLeader:
		if why, ok := errors.AsType[*kv.NotLeaderError](err); ok {
			f.Message = why.Error() + "; nothing was done"
			if why.Leader != 0 {
				f.Cause = CauseElsewhere
			}
		}
		return f
	case reason.ReadOnly:
		if why, ok := errors.AsType[*kv.ReadOnlyError](err); ok {
			return readOnlyFailure(why)
		}
	}
	if cut {
		return ShuttingDown
	}
	if !known {
		return s.hidden(m, err, Internal, reason.Internal, "internal error; the server's log has the request id")
	}
	switch class.Reason {
	case reason.ShuttingDown:
		return ShuttingDown
	case reason.ConditionFailed:
		if condition, ok := errors.AsType[*kv.ConditionError](err); ok {
			f.Key, f.Version = condition.Key, condition.Version
		}
	case reason.Conflict:
		if conflict, ok := errors.AsType[*kv.ConflictError](err); ok {
			f.Key = conflict.Key
		}
	}
	if errors.Is(err, kv.ErrOtherOpening) {
		f.Cause = CauseOpening
	}
	return f
}

// attemptTooLate refuses an attempt at a write of which nothing was done. Whether another one was
// applied, the client may know.
func attemptTooLate(why *kv.LateAttemptError) *Error {
	return &Error{
		Code: codes[reason.AttemptTooLate], Reason: reason.AttemptTooLate, Version: why.Known,
		Message: "the attempt came so late that a later one may have been applied and forgotten; this one did nothing",
	}
}

// explainDoubt says why the outcome of a write is unknown, as far as err tells. cut: a
// shutdown ended the call.
func (f *Error) explainDoubt(err error, cut bool) {
	switch {
	case cut:
		f.Code, f.Message = Unavailable, "the server is shutting down; "+f.Message
	case errors.Is(err, kv.ErrFailed) || errors.Is(err, kv.ErrClosed):
		f.Code, f.Message = Unavailable, "the store stopped; "+f.Message
	case errors.Is(err, kv.ErrNotLeader):
		f.Code, f.Message = Unavailable, "this node leads its cluster no more; "+f.Message
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled):
		f.Message = "time ran out; " + f.Message
	}
}

// hidden reports err to the operator and returns an Error that has only the request id.
func (s *Server) hidden(m *Method, err error, code Code, why, message string) *Error {
	id := fmt.Sprintf("%016x", rand.Uint64())
	s.options.ReportError(id, m.String(), err)
	return &Error{
		Code: code, Reason: why,
		Message:   fmt.Sprintf("%s (request %s)", message, id),
		RequestID: id,
	}
}
