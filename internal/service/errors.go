package service

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/kv"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// failure is an error as the caller sees it. Its message never has a key, a
// value, a file name or a Go type in it.
type failure struct {
	code    codes.Code
	reason  string
	message string

	retryAfter time.Duration     // 0: not known
	version    kv.SeqNum         // of KEY_NOT_FOUND and CONDITION_FAILED
	key        []byte            // of CONDITION_FAILED and CONFLICT; nil: not known
	metadata   map[string]string // of the ErrorInfo, beside version and key
}

func (f *failure) Error() string { return f.message }

// GRPCStatus makes gRPC send the failure with its details.
func (f *failure) GRPCStatus() *status.Status {
	info := &errdetails.ErrorInfo{Reason: f.reason, Domain: kvdpb.ErrorDomain, Metadata: f.allMetadata()}
	details := []protoadapt.MessageV1{info}
	if f.retryAfter > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(f.retryAfter)})
	}
	plain := status.New(f.code, f.message)
	detailed, err := plain.WithDetails(details...)
	if err != nil {
		return plain
	}
	return detailed
}

// keyMetadata is the longest key, in quotes, that an error names. Details travel
// in a trailer, and a client whose bound of headers they exceed, 8 KiB being a
// common one, gets no reason at all.
const keyMetadata = 1 << 10

func (f *failure) allMetadata() map[string]string {
	all := maps.Clone(f.metadata)
	set := func(name, value string) {
		if all == nil {
			all = make(map[string]string, 2)
		}
		all[name] = value
	}
	if f.version != 0 || f.reason == kvdpb.ReasonConditionFailed {
		set(kvdpb.MetadataVersion, strconv.FormatUint(uint64(f.version), 10))
	}
	if quoted := strconv.Quote(string(f.key)); f.key != nil && len(quoted) <= keyMetadata {
		set(kvdpb.MetadataKey, quoted)
	}
	return all
}

// status returns the failure as one operation's among several.
func (f *failure) status() *kvdpb.Status {
	return &kvdpb.Status{
		Code:         int32(f.code),
		Reason:       f.reason,
		Message:      f.message,
		RetryAfterMs: f.retryAfterMillis(),
		Version:      uint64(f.version),
	}
}

// result returns the failure as an answer in a frame.
func (f *failure) result(tag uint64) frame.Result {
	return frame.Result{
		Tag:              tag,
		Code:             int32(f.code),
		Reason:           f.reason,
		Message:          f.message,
		RetryAfterMillis: f.retryAfterMillis(),
		Version:          uint64(f.version),
	}
}

func (f *failure) retryAfterMillis() uint32 {
	return uint32(min(f.retryAfter, time.Hour) / time.Millisecond)
}

// requestError is an error of the server's own checks: its text may go to the
// caller as it stands.
type requestError struct{ error }

func (e requestError) Unwrap() error { return e.error }

// invalid marks an error of package kv's limits, or of this package, as safe to
// show.
func invalid(err error) error { return requestError{err} }

func invalidf(format string, args ...any) error {
	return requestError{fmt.Errorf("%w: "+format, append([]any{kv.ErrInvalidArgument}, args...)...)}
}

// malformed is the end of a pipeline whose client sent what is no frame.
func malformed(err error) *failure {
	f := &failure{code: codes.InvalidArgument, reason: kvdpb.ReasonInvalidRequest, message: err.Error()}
	if errors.Is(err, frame.ErrTooLarge) {
		f.reason = kvdpb.ReasonTooLarge
	}
	return f
}

// messageTooLarge refuses a message by its length.
func messageTooLarge(n int64, limit int) *failure {
	return &failure{
		code: codes.InvalidArgument, reason: kvdpb.ReasonTooLarge,
		message:  fmt.Sprintf("the request has %d bytes, limit is %d; nothing of it was done", n, limit),
		metadata: map[string]string{kvdpb.MetadataSize: fmt.Sprint(n), kvdpb.MetadataLimit: fmt.Sprint(limit)},
	}
}

var errPageToken = errors.New("page token is damaged or belongs to another range")

// notFound is the answer to a read that found nothing at a version.
func notFound(at kv.SeqNum) *failure {
	return &failure{code: codes.NotFound, reason: kvdpb.ReasonKeyNotFound, message: "key not found", version: at}
}

// shuttingDown refuses an operation of which nothing was done.
var shuttingDown = &failure{
	code: codes.Unavailable, reason: kvdpb.ReasonShuttingDown,
	message: "the server is shutting down; nothing was done",
}

// evicted ends a connection that idled. It is not told as overloaded, since what its client
// has sent meanwhile may have been done.
var evicted = &failure{
	code: codes.Unavailable, reason: kvdpb.ReasonShuttingDown,
	message: "the connection idled and was closed to make room for another one; connect again",
}

// refusedConnection is for a client for which there is no place. Nothing was done.
func refusedConnection(reason int) *failure {
	f := shedFailure(reason)
	f.message = "the server has as many connections as it may have (--max-connections), and all are in use; nothing was done, try again later"
	if reason == shedByPeer {
		f.message = "this address has as many connections as it may have (--max-peer-connections), and all are in use; nothing was done, try again later"
	}
	return f
}

// shedFailure refuses work of which nothing was done, for a reason of the counters.
func shedFailure(reason int) *failure { return overloaded(shedNames[reason], retryAfterShed) }

// overloaded refuses work of which nothing was done.
func overloaded(cause string, retryAfter time.Duration) *failure {
	return &failure{
		code: codes.ResourceExhausted, reason: kvdpb.ReasonOverloaded,
		message:    "the server is overloaded; nothing was done, try again later",
		retryAfter: retryAfter,
		metadata:   map[string]string{kvdpb.MetadataCause: cause},
	}
}

// readOnlyFailure refuses a write with the figures of the server's disk, or says that its
// file system is read-only.
func readOnlyFailure(why *kv.ReadOnlyError) *failure {
	what := "puts"
	if why.Resume == 0 {
		what = "writes"
	}
	return &failure{code: codes.Unavailable, reason: kvdpb.ReasonReadOnly, message: "the server takes no " + what + ": " + why.Message()}
}

// classes says how each error of package kv looks from outside, first match
// first: an uncertain write is that before anything else it may be.
var classes = []struct {
	err     error
	code    codes.Code
	reason  string
	message string
}{
	{kv.ErrUncertain, codes.DeadlineExceeded, kvdpb.ReasonOutcomeUnknown, "the write may or may not have happened"},
	{kv.ErrConditionFailed, codes.FailedPrecondition, kvdpb.ReasonConditionFailed, "a condition did not hold; nothing was done"},
	{kv.ErrConflict, codes.Aborted, kvdpb.ReasonConflict, "what the transaction read has been written since; nothing was done, run it again"},
	{kv.ErrNotFound, codes.NotFound, kvdpb.ReasonKeyNotFound, "key not found"},
	{kv.ErrTooLarge, codes.InvalidArgument, kvdpb.ReasonTooLarge, "the request exceeds a limit"},
	{kv.ErrRequestIDReused, codes.InvalidArgument, kvdpb.ReasonRequestIDReused, "the request id was used for another write; nothing was done"},
	{errPageToken, codes.InvalidArgument, kvdpb.ReasonInvalidPageToken, errPageToken.Error()},
	{kv.ErrInvalidArgument, codes.InvalidArgument, kvdpb.ReasonInvalidRequest, "the request is invalid"},
	{kv.ErrReadOnly, codes.Unavailable, kvdpb.ReasonReadOnly, "the server takes no writes now: its disk has no space for them; nothing was done"},
	{kv.ErrFailed, codes.Unavailable, kvdpb.ReasonStoreFailed, "the store stopped after an error of its disk; nothing was done"},
	{kv.ErrClosed, codes.Unavailable, kvdpb.ReasonShuttingDown, shuttingDown.message},
	{kv.ErrOtherOpening, codes.OutOfRange, kvdpb.ReasonVersionGone, "the version was read before the server opened the store; nothing was done, begin anew"},
	{kv.ErrVersionGone, codes.OutOfRange, kvdpb.ReasonVersionGone, "the version is no longer kept; begin anew"},
	{context.DeadlineExceeded, codes.DeadlineExceeded, kvdpb.ReasonDeadlineExceeded, "time ran out; nothing was done"},
	{context.Canceled, codes.Canceled, kvdpb.ReasonCancelled, "the call was cancelled; nothing was done"},
}

// failure translates an error for the caller of a method. What the caller must
// not see, or cannot use, is reported under a request id.
func (s *Server) failure(m method, err error) *failure {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	if overload, ok := errors.AsType[*kv.OverloadError](err); ok {
		s.counters.shed(shedByStore)
		return overloaded(overload.Reason, overload.RetryAfter)
	}
	if errors.Is(err, kv.ErrOverloaded) {
		s.counters.shed(shedByStore)
		return overloaded("store", 0)
	}
	if errors.Is(err, kv.ErrCorrupt) && !errors.Is(err, kv.ErrUncertain) {
		return s.hidden(m, err, codes.DataLoss, kvdpb.ReasonCorruption, "stored data failed its checksum; the server's log says where")
	}
	if why, ok := errors.AsType[*kv.ReadOnlyError](err); ok && !errors.Is(err, kv.ErrUncertain) {
		return readOnlyFailure(why)
	}
	// The contexts that a shutdown ends are not those of the callers.
	cut := s.working.Err() != nil && errors.Is(err, context.Canceled)
	if cut && !errors.Is(err, kv.ErrUncertain) {
		return shuttingDown
	}
	for _, c := range classes {
		if !errors.Is(err, c.err) {
			continue
		}
		f := &failure{code: c.code, reason: c.reason, message: c.message}
		if safe, ok := errors.AsType[requestError](err); ok {
			f.message = safe.Error()
		}
		switch c.err {
		case kv.ErrUncertain:
			f.explainDoubt(err, cut)
		case kv.ErrConditionFailed:
			if condition, ok := errors.AsType[*kv.ConditionError](err); ok {
				f.key, f.version = condition.Key, condition.Version
			}
		case kv.ErrOtherOpening:
			f.metadata = map[string]string{kvdpb.MetadataCause: kvdpb.CauseOpening}
		case kv.ErrConflict:
			if conflict, ok := errors.AsType[*kv.ConflictError](err); ok {
				f.key = conflict.Key
			}
		}
		return f
	}
	return s.hidden(m, err, codes.Internal, kvdpb.ReasonInternal, "internal error; the server's log has the request id")
}

// explainDoubt says why the outcome of a write is unknown, as far as err tells. cut: a
// shutdown ended the call.
func (f *failure) explainDoubt(err error, cut bool) {
	switch {
	case cut:
		f.code, f.message = codes.Unavailable, "the server is shutting down; "+f.message
	case errors.Is(err, kv.ErrFailed) || errors.Is(err, kv.ErrClosed):
		f.code, f.message = codes.Unavailable, "the store stopped; "+f.message
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled):
		f.message = "time ran out; " + f.message
	}
}

// hidden reports err and returns a failure that names only the report.
func (s *Server) hidden(m method, err error, code codes.Code, reason, message string) *failure {
	id := fmt.Sprintf("%016x", rand.Uint64())
	s.options.ReportError(id, m.String(), err)
	return &failure{
		code: code, reason: reason,
		message:  fmt.Sprintf("%s (request %s)", message, id),
		metadata: map[string]string{kvdpb.MetadataRequestID: id},
	}
}
