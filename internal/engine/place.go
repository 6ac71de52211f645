package engine

import (
	"errors"
	"fmt"
	"os"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// places are the files and directories that must stay where the store opened them. If one
// is removed, renamed or replaced, for instance by a backup restored under a running
// server, later writes are lost when the process ends, or go to the files of another store.
type places []opened

type opened struct {
	name string
	info os.FileInfo
}

// findPlaces records the present identity of the directories and of STORE.
func findPlaces(fsys vfs.FS, dir string, partitions int) (places, error) {
	names := []string{dir, descriptor.Path(dir), descriptor.LogDir(dir)}
	for id := range partitions {
		names = append(names, descriptor.PartitionDir(dir, id))
	}
	var all places
	for _, name := range names {
		info, err := fsys.Stat(name)
		if err != nil {
			return nil, err
		}
		all = append(all, opened{name, info})
	}
	return all, nil
}

// checkPlaces stops the store for good if one of its directories, STORE or the log is not
// in its place. From then on the store opens, creates and removes nothing by name.
func (e *Engine) checkPlaces() {
	var err error
	if e.log != nil {
		err = e.log.CheckPlace()
	}
	for i := 0; err == nil && i < len(e.places); i++ {
		err = vfs.CheckPlace(e.opts.FS, e.places[i].name, e.places[i].info)
	}
	switch {
	case err == nil:
	case errors.Is(err, vfs.ErrMisplaced):
		e.misplaced.Store(true)
		e.scheduler.halt()
		err = fmt.Errorf("%w; do not change the files of a running store", err)
		if e.log == nil {
			e.fail(fmt.Errorf("%w: %w", kv.ErrFailed, err))
			return
		}
		e.log.Fail(err)
	default:
		e.backgroundError(fmt.Errorf("check the place of the store's files: %w", err))
	}
}
