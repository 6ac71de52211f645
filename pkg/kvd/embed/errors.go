package embed

import (
	"context"
	"errors"
	"fmt"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// classes says what each error of the engine means to a caller, the first match first: an
// uncertain write is that before anything else it may be. Reasons and texts are those of
// the service where they fit. An empty text is that of the error.
var classes = []struct {
	err     error
	is      error
	reason  string
	message string
}{
	{kv.ErrUncertain, backend.ErrUncertain, kvdpb.ReasonOutcomeUnknown, "the write may or may not have happened"},
	{kv.ErrOverloaded, backend.ErrOverloaded, kvdpb.ReasonOverloaded, "nothing was done, try again later"},
	{kv.ErrCorrupt, backend.ErrCorrupt, kvdpb.ReasonCorruption, ""},
	{kv.ErrReadOnly, backend.ErrReadOnly, kvdpb.ReasonReadOnly, ""},
	{kv.ErrConditionFailed, backend.ErrConflict, kvdpb.ReasonConditionFailed, "a condition did not hold; nothing was done"},
	{kv.ErrConflict, backend.ErrConflict, kvdpb.ReasonConflict, "what the transaction read has been written since; nothing was done, run it again"},
	{kv.ErrTooLarge, backend.ErrTooLarge, kvdpb.ReasonTooLarge, ""},
	{kv.ErrInvalidArgument, backend.ErrInvalid, kvdpb.ReasonInvalidRequest, ""},
	{kv.ErrFailed, backend.ErrUnavailable, kvdpb.ReasonStoreFailed, ""},
	{kv.ErrClosed, backend.ErrClosed, kvdpb.ReasonShuttingDown, "the store was closed; nothing was done"},
	{kv.ErrVersionGone, backend.ErrVersionGone, kvdpb.ReasonVersionGone, "the version is no longer kept; begin anew"},
}

// failure translates an error of the engine; nil stays nil.
func failure(err error) error {
	if err == nil {
		return nil
	}
	for _, c := range classes {
		if errors.Is(err, c.err) {
			f := &backend.Failure{Reason: c.reason, Message: c.message, Attempts: 1, Err: c.is}
			if f.Message == "" {
				f.Message = err.Error()
			}
			explain(f, err)
			return f
		}
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return &backend.Failure{Attempts: 1, Err: context.DeadlineExceeded}
	case errors.Is(err, context.Canceled):
		return &backend.Failure{Attempts: 1, Err: context.Canceled}
	}
	return &backend.Failure{Reason: kvdpb.ReasonInternal, Attempts: 1, Err: fmt.Errorf("%w: %w", backend.ErrInternal, err)}
}

// explain adds what only some errors have.
func explain(f *backend.Failure, err error) {
	if overload, ok := errors.AsType[*kv.OverloadError](err); ok {
		f.RetryAfter = overload.RetryAfter
	}
	if condition, ok := errors.AsType[*kv.ConditionError](err); ok {
		f.Version = uint64(condition.Version)
	}
	if f.Err != backend.ErrUncertain {
		return
	}
	for _, cause := range []error{context.DeadlineExceeded, context.Canceled} {
		if errors.Is(err, cause) {
			f.Err = fmt.Errorf("%w: %w", f.Err, cause)
		}
	}
}

func invalidf(format string, args ...any) error {
	return failure(fmt.Errorf("%w: "+format, append([]any{kv.ErrInvalidArgument}, args...)...))
}

func tooLargef(format string, args ...any) error {
	return failure(fmt.Errorf("%w: "+format, append([]any{kv.ErrTooLarge}, args...)...))
}

// notFound is the answer to a Get of an absent key.
func notFound() error {
	return &backend.Failure{Reason: kvdpb.ReasonKeyNotFound, Message: "key not found", Attempts: 1, Err: backend.ErrNotFound}
}
