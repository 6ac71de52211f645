package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// fault is why one attempt at an operation failed.
type fault struct {
	err        error // as in Error
	reason     string
	message    string
	retryAfter time.Duration
	version    uint64 // found by a failed condition, or with ReasonAttemptTooLate
	// undone says that the attempt was not applied and will not be.
	undone bool
	// never says that no other attempt at the same write was applied or will be.
	never bool
	// transient says that another attempt may succeed.
	transient bool
	// elsewhere says that another node of the cluster leads, as far as the one that refused knows.
	elsewhere bool
}

// reasons has the meaning of each reason of the protocol.
var reasons = map[string]fault{
	kvdpb.ReasonKeyNotFound:      {err: backend.ErrNotFound, undone: true},
	kvdpb.ReasonInvalidRequest:   {err: backend.ErrInvalid, undone: true},
	kvdpb.ReasonRequestIDReused:  {err: backend.ErrInvalid, undone: true},
	kvdpb.ReasonInvalidPageToken: {err: backend.ErrInvalid, undone: true},
	kvdpb.ReasonTooLarge:         {err: backend.ErrTooLarge, undone: true},
	kvdpb.ReasonOverloaded:       {err: backend.ErrOverloaded, undone: true, transient: true},
	kvdpb.ReasonDeadlineExceeded: {err: context.DeadlineExceeded, undone: true},
	kvdpb.ReasonCancelled:        {err: backend.ErrUnavailable, undone: true, transient: true}, // by the server: after its own cancellation a caller does not wait
	kvdpb.ReasonConditionFailed:  {err: backend.ErrConflict, undone: true},
	kvdpb.ReasonConflict:         {err: backend.ErrConflict, undone: true, never: true}, // the conflicting write stays
	kvdpb.ReasonOutcomeUnknown:   {err: backend.ErrUncertain},
	kvdpb.ReasonReadOnly:         {err: backend.ErrReadOnly, undone: true},
	kvdpb.ReasonNotLeader:        {err: backend.ErrReadOnly, undone: true},
	kvdpb.ReasonShuttingDown:     {err: backend.ErrUnavailable, undone: true, transient: true},
	kvdpb.ReasonStoreFailed:      {err: backend.ErrUnavailable, undone: true},
	kvdpb.ReasonVersionGone:      {err: backend.ErrVersionGone, undone: true},
	kvdpb.ReasonCorruption:       {err: backend.ErrCorrupt, undone: true},
	kvdpb.ReasonInternal:         {err: backend.ErrInternal},
	kvdpb.ReasonUnauthenticated:  {err: backend.ErrUnauthenticated, undone: true},
	kvdpb.ReasonPermissionDenied: {err: backend.ErrPermission, undone: true},
	kvdpb.ReasonClusterRecovered: {err: backend.ErrRecovered, undone: true},
	kvdpb.ReasonAttemptTooLate:   {err: backend.ErrUncertain, undone: true, transient: true}, // under a new request id: see attempts.renew
}

// faultOfReason translates the server's answer to one operation. If the reason is unknown, because
// the server is newer, the code decides.
func faultOfReason(reason, message string, code codes.Code) *fault {
	f, known := reasons[reason]
	if !known {
		f = faultOfCode(code)
	}
	if reason == kvdpb.ReasonOutcomeUnknown && code == codes.DeadlineExceeded {
		f.err = context.DeadlineExceeded // as if the client had seen first that the time ran out
	}
	f.reason, f.message = reason, message
	// A store that stopped may run again soon, and a cluster may have another leader. They know
	// what was written.
	f.transient = f.transient || reason == kvdpb.ReasonOutcomeUnknown && code == codes.Unavailable
	return &f
}

// faultOfCode translates an error of gRPC itself, or another error without a reason.
func faultOfCode(code codes.Code) fault {
	switch code {
	case codes.Unavailable:
		return fault{err: backend.ErrUnavailable, transient: true}
	case codes.DeadlineExceeded:
		return fault{err: context.DeadlineExceeded}
	case codes.Canceled: // by the server or a proxy; Network.call handles the caller's own
		return fault{err: backend.ErrUnavailable, transient: true}
	case codes.ResourceExhausted: // a message over the limits of either side
		return fault{err: backend.ErrTooLarge}
	case codes.Unauthenticated: // the client itself has no token
		return fault{err: backend.ErrUnauthenticated, undone: true}
	case codes.InvalidArgument, codes.Unimplemented, codes.FailedPrecondition, codes.OutOfRange:
		return fault{err: backend.ErrInvalid, undone: true}
	}
	return fault{err: backend.ErrInternal}
}

// faultOfResult translates the answer to an operation in a frame.
func faultOfResult(r *frame.Result) *fault {
	f := faultOfReason(r.Reason, r.Message, codes.Code(r.Code))
	f.retryAfter = time.Duration(r.RetryAfterMillis) * time.Millisecond
	f.version = r.Version
	for _, d := range r.Details {
		if d.Name == kvdpb.MetadataCause {
			f.because(d.Value)
		}
	}
	return f
}

// faultOfStatus translates the error of a gRPC call or stream.
func faultOfStatus(err error) *fault {
	s := status.Convert(err)
	var info *errdetails.ErrorInfo
	var retryAfter time.Duration
	for _, d := range s.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			if d.Domain == kvdpb.ErrorDomain {
				info = d
			}
		case *errdetails.RetryInfo:
			retryAfter = d.RetryDelay.AsDuration()
		}
	}
	f := faultOfReason(info.GetReason(), s.Message(), s.Code())
	f.retryAfter = retryAfter
	if _, answered := errors.AsType[*otherIncarnation](err); answered {
		f.undone = false // the client has learned it by the answer
	}
	// A server that refuses a request for its length gives no reason. Answers cannot be too
	// long: the client accepts more than any server sends.
	f.undone = f.undone || info == nil && s.Code() == codes.ResourceExhausted && strings.Contains(s.Message(), "received message")
	f.because(info.GetMetadata()[kvdpb.MetadataCause])
	if v, err := strconv.ParseUint(info.GetMetadata()[kvdpb.MetadataVersion], 10, 64); err == nil {
		f.version = v
	}
	return f
}

// because adds the cause that the server gave. If the transaction read before the server opened its
// store, no attempt at the commit was applied: the server would know its request id. Nor will one be:
// an earlier opening of the store is over; and of a cluster the leader says it, which has confirmed that
// it leads, and no node that leads later commits what was read before.
func (f *fault) because(cause string) {
	f.never = f.never || f.reason == kvdpb.ReasonVersionGone && cause == kvdpb.CauseOpening
	f.elsewhere = f.elsewhere || f.reason == kvdpb.ReasonNotLeader && cause == kvdpb.CauseElsewhere
}

// refusal is the answer of a server that refuses a connection for raw frames.
type refusal struct{ response *frame.Response }

func (r *refusal) Error() string {
	result := &r.response.Results[0]
	return fmt.Sprintf("the server refused the connection: %s: %s", result.Reason, result.Message)
}

// faultOfStream returns the fault of the operations in flight when a frameConn ends with err, or
// cannot be opened. It is undone only if the server refused the connection because of overload, or a frame
// because it is too large: a server says that after it has answered every frame that came before, and
// reads none that comes after, so what it has not answered it has not performed.
func faultOfStream(err error) *fault {
	if errors.Is(err, io.EOF) {
		return &fault{err: backend.ErrUnavailable, transient: true, message: "the server ended the stream"}
	}
	var f *fault
	if refused, ok := errors.AsType[*refusal](err); ok {
		f = faultOfResult(&refused.response.Results[0])
	} else {
		f = faultOfStatus(err)
	}
	switch f.err {
	case backend.ErrUnauthenticated, backend.ErrPermission: // only at the door
		f.undone = true
		return f
	case backend.ErrRecovered: // likewise, unless the first answer has told it
		_, answered := errors.AsType[*otherIncarnation](err)
		f.undone = !answered
		return f
	}
	f.undone = f.reason == kvdpb.ReasonOverloaded || f.reason == kvdpb.ReasonTooLarge
	if f.reason == kvdpb.ReasonTooLarge {
		f.message += "; WithBatching makes smaller frames"
	}
	if f.err != backend.ErrInvalid && f.err != backend.ErrTooLarge {
		f.transient = true
	}
	if errors.Is(f.err, context.DeadlineExceeded) {
		f.err = backend.ErrUnavailable // the context of the stream ended, not the caller's
	}
	return f
}

// error returns the error of a call whose last attempt had this fault. With doubt the call is a write
// that may have been applied.
func (f *fault) error(doubt bool, attempts int) error {
	e := &backend.Failure{Reason: f.reason, Message: f.message, Attempts: attempts, RetryAfter: f.retryAfter, Err: f.err}
	if f.reason == kvdpb.ReasonConditionFailed {
		e.Version = f.version
	}
	if doubt && !errors.Is(f.err, backend.ErrUncertain) {
		e.Err = fmt.Errorf("%w: %w", backend.ErrUncertain, f.err)
	}
	return e
}
