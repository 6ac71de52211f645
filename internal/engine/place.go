package engine

import (
	"errors"
	"fmt"
	"os"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/vfs"
)

// places are what has to stay where the store opened it. If it is removed, renamed or
// replaced, say by an operator who restores a backup under a running server, what the
// store goes on to write is lost with the process, or lands among another's files.
type places []opened

type opened struct {
	name string
	info os.FileInfo
}

// findPlaces notes the directories and STORE as they are now.
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

// checkPlaces stops the store for good if one of its directories, STORE or the log is
// not in its place. It does nothing by name from then on.
func (e *Engine) checkPlaces() {
	err := e.log.CheckPlace()
	for i := 0; err == nil && i < len(e.places); i++ {
		err = vfs.CheckPlace(e.opts.FS, e.places[i].name, e.places[i].info)
	}
	switch {
	case err == nil:
	case errors.Is(err, vfs.ErrMisplaced):
		e.misplaced.Store(true)
		e.scheduler.halt()
		e.log.Fail(fmt.Errorf("%w; leave the files of a running store alone", err))
	default:
		e.backgroundError(fmt.Errorf("look whether the store is in its place: %w", err))
	}
}
