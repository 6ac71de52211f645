package main

import (
	"context"
	"errors"
	"io/fs"

	"github.com/kvd-db/kvd/internal/daemon"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/pkg/kvd"
)

// Exit codes of client commands, beside those of package daemon.
const (
	exitNotFound    = 3
	exitUnavailable = 5
)

func exitCode(err error) int {
	for _, class := range []struct {
		err  error
		code int
	}{
		{kvd.ErrUncertain, daemon.ExitError}, // before the deadline that it wraps
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

// explain adds to an error what the user can do about it.
func explain(err error) string {
	for _, hint := range []struct {
		err  error
		text string
	}{
		{kvd.ErrUncertain, "read the key to see whether it happened; writing the same again does no harm"},
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

// named makes it an error of usage that a file or directory which the user named
// is not there.
func named(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return usagef("%w", err)
	}
	return err
}
