package kvd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kvd-db/kvd/pkg/kvdpb/frame"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// Sentinels for errors.Is.
var (
	// ErrNotFound: the key is not there.
	ErrNotFound = errors.New("key not found")
	// ErrUncertain: the write may or may not have happened.
	ErrUncertain = errors.New("outcome unknown")
	// ErrOverloaded: the server refused before doing anything; see Error.RetryAfter.
	ErrOverloaded = errors.New("server overloaded")
	// ErrUnavailable: no server was reached, or it is stopping or has failed.
	ErrUnavailable = errors.New("server unavailable")
	// ErrReadOnly: the server takes no writes, for example because its disk is full.
	ErrReadOnly = errors.New("server is read-only")
	// ErrTooLarge: a key, value, batch or answer exceeds a limit of the server.
	ErrTooLarge = errors.New("too large")
	// ErrInvalid: the call can never succeed as it stands.
	ErrInvalid = errors.New("invalid argument")
	// ErrVersionGone: the scan lasted longer than the server keeps its version.
	ErrVersionGone = errors.New("version no longer available")
	// ErrCorrupt: what the server has stored failed its checksum.
	ErrCorrupt = errors.New("corruption on the server")
	// ErrClosed: Close was called.
	ErrClosed = errors.New("client closed")
	// ErrInternal: the server or the client has a bug.
	ErrInternal = errors.New("internal error")
)

// Error is what every failed call returns.
type Error struct {
	// Op is the call: "get", "put", "scan" and so on.
	Op string
	// Reason is the stable word that the server sent, such as "READ_ONLY"; empty if
	// the error did not come from the server.
	Reason string
	// Message is what the server said, for people.
	Message string
	// Attempts is how often the call was tried.
	Attempts int
	// RetryAfter is when the server asked to be called again; 0 if it did not.
	RetryAfter time.Duration
	// Err matches a sentinel, and the error of the context where that ended the
	// call.
	Err error
}

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "kvd %s: %v", e.Op, e.Err)
	if e.Message != "" && e.Message != e.Err.Error() {
		fmt.Fprintf(&b, ": %s", e.Message)
	}
	if e.Attempts > 1 {
		fmt.Fprintf(&b, " (%d attempts)", e.Attempts)
	}
	return b.String()
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// fault is why one attempt at an operation failed.
type fault struct {
	err        error // as in Error
	reason     string
	message    string
	retryAfter time.Duration
	// undone says that nothing happened at the server, even if it was a write.
	undone bool
	// transient says that another attempt may succeed.
	transient bool
}

// reasons says what each reason of the protocol means to a caller.
var reasons = map[string]fault{
	kvdpb.ReasonKeyNotFound:      {err: ErrNotFound, undone: true},
	kvdpb.ReasonInvalidRequest:   {err: ErrInvalid, undone: true},
	kvdpb.ReasonInvalidPageToken: {err: ErrInvalid, undone: true},
	kvdpb.ReasonTooLarge:         {err: ErrTooLarge, undone: true},
	kvdpb.ReasonOverloaded:       {err: ErrOverloaded, undone: true, transient: true},
	kvdpb.ReasonDeadlineExceeded: {err: context.DeadlineExceeded, undone: true},
	kvdpb.ReasonCancelled:        {err: context.Canceled, undone: true},
	kvdpb.ReasonOutcomeUnknown:   {err: ErrUncertain},
	kvdpb.ReasonReadOnly:         {err: ErrReadOnly, undone: true},
	kvdpb.ReasonShuttingDown:     {err: ErrUnavailable, undone: true, transient: true},
	kvdpb.ReasonStoreFailed:      {err: ErrUnavailable, undone: true},
	kvdpb.ReasonVersionGone:      {err: ErrVersionGone, undone: true},
	kvdpb.ReasonCorruption:       {err: ErrCorrupt, undone: true},
	kvdpb.ReasonInternal:         {err: ErrInternal},
}

// faultOfReason translates what the server said about one operation. An unknown
// reason, of a newer server, is judged by its code.
func faultOfReason(reason, message string, code codes.Code, retryAfter time.Duration) *fault {
	f, known := reasons[reason]
	if !known {
		f = faultOfCode(code)
	}
	f.reason, f.message, f.retryAfter = reason, message, retryAfter
	return &f
}

// faultOfCode judges an error that gRPC itself made, or one without a reason.
func faultOfCode(code codes.Code) fault {
	switch code {
	case codes.Unavailable:
		return fault{err: ErrUnavailable, transient: true}
	case codes.DeadlineExceeded:
		return fault{err: context.DeadlineExceeded}
	case codes.Canceled:
		return fault{err: context.Canceled}
	case codes.ResourceExhausted: // a message over the limits of either side
		return fault{err: ErrTooLarge}
	case codes.InvalidArgument, codes.Unimplemented, codes.FailedPrecondition, codes.OutOfRange:
		return fault{err: ErrInvalid, undone: true}
	}
	return fault{err: ErrInternal}
}

// faultOfResult translates the answer to an operation in a frame.
func faultOfResult(r *frame.Result) *fault {
	return faultOfReason(r.Reason, r.Message, codes.Code(r.Code), time.Duration(r.RetryAfterMillis)*time.Millisecond)
}

// faultOfStatus translates the error of a gRPC call or stream.
func faultOfStatus(err error) *fault {
	s := status.Convert(err)
	var reason string
	var retryAfter time.Duration
	for _, d := range s.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			if d.Domain == kvdpb.ErrorDomain {
				reason = d.Reason
			}
		case *errdetails.RetryInfo:
			retryAfter = d.RetryDelay.AsDuration()
		}
	}
	return faultOfReason(reason, s.Message(), s.Code(), retryAfter)
}

// faultOfStream judges the end of a stream for the operations under way on it.
// Only a stream that was refused at the door did nothing for sure.
func faultOfStream(err error) *fault {
	if errors.Is(err, io.EOF) {
		return &fault{err: ErrUnavailable, transient: true, message: "the server ended the stream"}
	}
	f := faultOfStatus(err)
	f.undone = f.reason == kvdpb.ReasonOverloaded
	if f.err != ErrInvalid && f.err != ErrTooLarge {
		f.transient = true
	}
	if errors.Is(f.err, context.Canceled) || errors.Is(f.err, context.DeadlineExceeded) {
		f.err = ErrUnavailable // it was the stream's context that ended, not the caller's
	}
	return f
}

// error makes the fault of the last attempt the error of the call.
func (f *fault) error(op string, write bool, attempts int) error {
	e := &Error{Op: op, Reason: f.reason, Message: f.message, Attempts: attempts, RetryAfter: f.retryAfter, Err: f.err}
	if write && !f.undone && !errors.Is(f.err, ErrUncertain) {
		e.Err = fmt.Errorf("%w: %w", ErrUncertain, f.err)
	}
	return e
}
