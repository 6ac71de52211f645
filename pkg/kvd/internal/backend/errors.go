package backend

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// The sentinels of package kvd, which says what they mean.
var (
	ErrNotFound    = errors.New("key not found")
	ErrConflict    = errors.New("conflict")
	ErrUncertain   = errors.New("outcome unknown")
	ErrOverloaded  = errors.New("server overloaded")
	ErrUnavailable = errors.New("server unavailable")
	ErrReadOnly    = errors.New("server is read-only")
	ErrTooLarge    = errors.New("too large")
	ErrInvalid     = errors.New("invalid argument")
	ErrVersionGone = errors.New("version no longer available")
	ErrCorrupt     = errors.New("corruption on the server")
	ErrClosed      = errors.New("closed")
	ErrInternal    = errors.New("internal error")

	ErrUnauthenticated = errors.New("not signed in")
	ErrPermission      = errors.New("permission denied")
	ErrRecovered       = errors.New("the cluster was recovered")
)

// Failure is kvd.Error. A backend leaves Op empty, except in a failure that calls share.
type Failure struct {
	Op         string
	Reason     string
	Message    string
	Version    uint64
	Attempts   int
	RetryAfter time.Duration
	Err        error
}

// Error is the text of a kvd.Error.
func (e *Failure) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "kvd %s: %s", e.Op, explained(e.Err.Error(), e.Message))
	if e.Attempts > 1 {
		fmt.Fprintf(&b, " (%d attempts)", e.Attempts)
	}
	return b.String()
}

// Unwrap returns Err.
func (e *Failure) Unwrap() error { return e.Err }

// explained joins the text of an error with a message about it. Messages often begin
// with the last part of that text; it is not said twice.
func explained(text, message string) string {
	last := text[strings.LastIndex(": "+text, ": "):]
	switch {
	case message == "" || strings.HasSuffix(text, message):
		return text
	case last == context.DeadlineExceeded.Error() && strings.HasPrefix(message, context.Canceled.Error()):
		// The client cancels a stream when its time is over.
		return text + strings.TrimPrefix(message, context.Canceled.Error())
	case strings.HasPrefix(message, last):
		return strings.TrimSuffix(text, last) + message
	}
	return text + ": " + message
}
