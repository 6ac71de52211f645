package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/kvd-db/kvd/internal/daemon"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/pkg/kvd"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// Exit codes of client commands, beside those of package daemon.
const (
	exitNotFound    = 3
	exitCondition   = 4
	exitUnavailable = 5
	exitConflict    = 6
)

func exitCode(err error) int {
	if conditionFailed(err) {
		return exitCondition
	}
	if _, ok := errors.AsType[*adminAddressError](err); ok {
		return exitUnavailable
	}
	for _, class := range []struct {
		err  error
		code int
	}{
		{kvd.ErrUncertain, daemon.ExitError}, // before the deadline that it wraps
		{kvd.ErrConflict, exitConflict},
		{kvd.ErrNotFound, exitNotFound},
		{kvd.ErrInvalid, daemon.ExitUsage},
		{kvd.ErrTooLarge, daemon.ExitUsage},
		{kvd.ErrUnavailable, exitUnavailable},
		{kvd.ErrOverloaded, exitUnavailable},
		{kvd.ErrReadOnly, exitUnavailable},
		{context.DeadlineExceeded, exitUnavailable},
	} {
		if errors.Is(err, class.err) {
			return class.code
		}
	}
	return daemon.ExitCode(err)
}

// conditionFailed reports whether err says that a condition of a write or an
// assertion of a script did not hold, and that nothing was written. The client's
// sentinel is the same for transactions that met.
func conditionFailed(err error) bool {
	e, ok := errors.AsType[*kvd.Error](err)
	return ok && e.Reason == kvdpb.ReasonConditionFailed && !errors.Is(err, kvd.ErrUncertain)
}

// explain adds to an error what the user can do about it.
func explain(err error) string {
	if conditionFailed(err) {
		return err.Error() + "\n" + instead(err)
	}
	if _, ok := errors.AsType[*adminAddressError](err); ok {
		return err.Error()
	}
	for _, hint := range []struct {
		err  error
		text string
	}{
		{kvd.ErrUncertain, "read the keys to see whether it happened; writing the same again does no harm if no other client writes them"},
		{kvd.ErrConflict, "nothing was written; others write the same keys, so try again"},
		{kvd.ErrVersionGone, "it took longer than the server keeps an old version; read less at once"},
		{kvd.ErrReadOnly, "look at /readyz?verbose of the server for the reason"},
		{kvd.ErrUnavailable, "is the server running? Start one with kvd serve, or name its address with --addr or KVD_ADDR"},
		{kvd.ErrOverloaded, "try again later, or with fewer requests at once"},
		{context.DeadlineExceeded, "the server did not answer in time; a longer --timeout may help"},
		{vfs.ErrLocked, "stop the process that has the store open, or name another directory"},
		{kv.ErrUnsupportedVersion, "a newer kvd wrote this; use that one"},
		{kv.ErrCorrupt, "kvd check DIR lists every damaged file; nothing was changed"},
	} {
		if errors.Is(err, hint.err) {
			return err.Error() + "\n" + hint.text
		}
	}
	return err.Error()
}

// instead says what a failed condition found.
func instead(err error) string {
	e, _ := errors.AsType[*kvd.Error](err)
	switch {
	case e.Op == opAssert: // its message says it
		return "nothing was written"
	case e.Version == 0:
		return "the key is not there"
	}
	return fmt.Sprintf("the key is there with version %d; kvd get --version prints both", e.Version)
}

// named makes it an error of usage that a file or directory which the user named
// is not there.
func named(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return usagef("%w", err)
	case errors.Is(err, syscall.ENOTDIR):
		return usagef("%w: it, or what it lies in, is a file, not a directory", err)
	}
	return err
}
