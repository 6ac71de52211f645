package embed

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/pkg/kvd"
)

// Store is an open store. All calls are those of the Client. Safe for concurrent use.
type Store struct {
	*kvd.Client
	engine *engine.Engine
}

var _ kvd.Store = (*Store)(nil)

// Open opens the store in a directory. If there is none, it creates the store, the
// directory and the directories above it; see [WithExisting] for a program that would take
// an empty store for lost data, for example because a disk is not mounted. A directory that
// holds other files never becomes a store. Open returns once everything acknowledged before
// is readable. Close the store.
//
// Errors: ErrUnavailable if another process has the store open, or the directory cannot be
// read or written; ErrCorrupt if what is there is not what was written; ErrInvalid for a
// directory that holds other files and no store, for options that make no sense, and for a
// store of a newer version. After an error nothing is left open.
func Open(dir string, opts ...Option) (*Store, error) {
	o := options{memory: 256 << 20}
	return open(dir, opts, o, engine.Options{FS: vfs.OS})
}

// The defaults of a store in memory: it starts in a few milliseconds and takes a few
// mebibytes.
const (
	memoryBytes      = 16 << 20
	memoryPartitions = 4
	memorySegment    = 1 << 20
)

// Memory returns a new store whose files are in memory too. It is for tests: it is the
// real engine, nothing is bounded by a disk, and all is gone once it is closed.
func Memory(opts ...Option) (*Store, error) {
	o := options{memory: memoryBytes, partitions: memoryPartitions}
	return open("data", opts, o, engine.Options{FS: vfs.NewMem(), SegmentBytes: memorySegment})
}

// open opens a store with what opts say beside the defaults in o and e.
func open(dir string, opts []Option, o options, e engine.Options) (*Store, error) {
	o.logger = slog.New(slog.DiscardHandler)
	for i, opt := range opts {
		if opt == nil {
			return nil, &kvd.Error{Op: "open", Err: fmt.Errorf("%w: option %d is nil, so it is not known what it was to choose; leave it out", kvd.ErrInvalid, i+1)}
		}
		opt(&o)
	}
	if err := o.check(); err != nil {
		return nil, &kvd.Error{Op: "open", Err: err}
	}
	if dir == "" { // the engine would take the working directory
		return nil, &kvd.Error{Op: "open", Err: kvd.ErrInvalid, Message: "the name of the directory is empty"}
	}
	if err := o.checkDir(e.FS, dir); err != nil {
		return nil, openFailed(dir, err)
	}
	e.Partitions, e.Durability, e.ReadOnly = o.partitions, kv.Durability(o.durability), o.readOnly
	e.MemtableBytes, e.CacheBytes = o.memory/2, o.memory/2
	e.Events = listener(o.logger)
	opened, err := engine.Open(dir, e)
	if err != nil {
		return nil, openFailed(dir, err)
	}
	return over(opened, o.hook), nil
}

// checkDir refuses a directory without the store that is wanted, and one that would be
// turned into a store although it holds something else.
func (o *options) checkDir(fsys vfs.FS, dir string) error {
	if o.existing {
		_, err := fsys.Stat(descriptor.Path(dir))
		return err
	}
	if o.readOnly {
		return nil // nothing is created
	}
	foreign, err := descriptor.Foreign(fsys, dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if foreign != "" {
		return fmt.Errorf("%w: %s holds no store, but other files, such as %q: name another directory",
			kv.ErrInvalidArgument, dir, foreign)
	}
	return nil
}

// Over returns the store that an open engine is. It is for this module's own commands and
// benchmarks, which set what has no Option; closing the store closes the engine.
func Over(e *engine.Engine) *Store { return over(e, nil) }

func over(e *engine.Engine, hook func(kvd.CallInfo)) *Store {
	return &Store{Client: kvd.Over(newBackend(e), hook), engine: e}
}

// Failed is closed when the store has failed for good, after an error of its disk: every
// call is then ErrUnavailable, and Ping says why. Close it, and open it again.
func (s *Store) Failed() <-chan struct{} { return s.engine.Failed() }

// openFailed is the error of Open.
func openFailed(dir string, err error) error {
	e := &kvd.Error{Op: "open", Err: fmt.Errorf("%w: %w", kvd.ErrUnavailable, err)}
	switch {
	case errors.Is(err, vfs.ErrLocked):
		e.Err, e.Message = kvd.ErrUnavailable, fmt.Sprintf("the store is in use: %v", err)
	case errors.Is(err, kv.ErrCorrupt):
		e.Err, e.Message = kvd.ErrCorrupt, err.Error()
	case errors.Is(err, kv.ErrInvalidArgument), errors.Is(err, kv.ErrUnsupportedVersion):
		e.Err, e.Message = kvd.ErrInvalid, err.Error()
	case errors.Is(err, fs.ErrNotExist):
		e.Err = fmt.Errorf("%w: there is no store in %s: %w", kvd.ErrUnavailable, dir, err)
	}
	return e
}
