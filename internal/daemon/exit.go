package daemon

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// Exit codes of the service and of commands on a data directory. Most are from
// sysexits.h.
const (
	ExitOK       = 0
	ExitError    = 1  // anything else: a bug, unless the message says otherwise
	ExitUsage    = 64 // wrong flags or settings
	ExitDamaged  = 65 // stored data is damaged, of a newer version, or not that of the cluster; refused
	ExitBind     = 69 // an address cannot be listened on
	ExitBug      = 70 // the engine panicked, which is a bug
	ExitIO       = 74 // the disk failed or did not answer in time
	ExitLocked   = 75 // another process has the store open
	ExitExpelled = 77 // the node must not take part in its cluster; to start it again is of no use

	// A second signal ended the process at once: 128 and the number of the signal.
	ExitInterrupted = 130
	ExitTerminated  = 143
)

// ErrListen: an address could not be listened on.
var ErrListen = errors.New("cannot listen")

// ErrDiskStuck: an operation on the disk did not return in time.
var ErrDiskStuck = errors.New("the disk does not answer")

// ErrGraceEnded: the store was not closed within the grace period. Nothing acknowledged is
// lost; the next start recovers it.
var ErrGraceEnded = errors.New("the store was not closed within the grace period")

// ExitCode returns the exit code for err.
func ExitCode(err error) int {
	switch {
	case err == nil:
		return ExitOK
	case errors.Is(err, ErrUsage), errors.Is(err, kv.ErrInvalidArgument):
		return ExitUsage
	case errors.Is(err, ErrListen):
		return ExitBind
	case errors.Is(err, ErrExpelled):
		return ExitExpelled
	case errors.Is(err, vfs.ErrLocked):
		return ExitLocked
	case errors.Is(err, engine.ErrDiffers):
		return ExitDamaged
	case errors.Is(err, kv.ErrFailed), errors.Is(err, ErrDiskStuck), errors.Is(err, ErrGraceEnded):
		return ExitIO
	case errors.Is(err, kv.ErrCorrupt), errors.Is(err, kv.ErrUnsupportedVersion):
		return ExitDamaged
	case isFileError(err):
		return ExitIO
	}
	return ExitError
}

func isFileError(err error) bool {
	var path *fs.PathError
	var link *os.LinkError
	var number syscall.Errno
	return errors.As(err, &path) || errors.As(err, &link) || errors.As(err, &number)
}
