package embed

import (
	"context"
	"errors"
	"fmt"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/reason"
	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
)

// meaning is what a reason means to a caller in this process.
type meaning struct {
	err error
	// detailed: the caller gets the text of the error, which a server keeps for its log.
	detailed bool
}

var meanings = map[string]meaning{
	reason.OutcomeUnknown:  {backend.ErrUncertain, false},
	reason.Overloaded:      {backend.ErrOverloaded, false},
	reason.Corruption:      {backend.ErrCorrupt, true},
	reason.ReadOnly:        {backend.ErrReadOnly, true},
	reason.NotLeader:       {backend.ErrReadOnly, true},
	reason.ConditionFailed: {backend.ErrConflict, false},
	reason.Conflict:        {backend.ErrConflict, false},
	reason.KeyNotFound:     {backend.ErrNotFound, false},
	reason.TooLarge:        {backend.ErrTooLarge, true},
	reason.RequestIDReused: {backend.ErrInvalid, false},
	reason.InvalidRequest:  {backend.ErrInvalid, true},
	reason.StoreFailed:     {backend.ErrUnavailable, true},
	reason.ShuttingDown:    {backend.ErrClosed, false},
	reason.VersionGone:     {backend.ErrVersionGone, false},
}

// failure translates an error of the engine; nil stays nil.
func failure(err error) error {
	if err == nil {
		return nil
	}
	if class, ok := reason.Classify(err); ok {
		m := meanings[class.Reason]
		f := &backend.Failure{Reason: class.Reason, Message: class.Message, Attempts: 1, Err: m.err}
		if m.detailed {
			f.Message = err.Error()
		}
		explain(f, err)
		return f
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return &backend.Failure{Attempts: 1, Err: context.DeadlineExceeded}
	case errors.Is(err, context.Canceled):
		return &backend.Failure{Attempts: 1, Err: context.Canceled}
	}
	return &backend.Failure{Reason: reason.Internal, Attempts: 1, Err: fmt.Errorf("%w: %w", backend.ErrInternal, err)}
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

// absent is the answer to every Get of an absent key.
var absent = func() error {
	f := failure(kv.ErrNotFound).(*backend.Failure)
	f.Op = "get"
	return f
}()
