package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// stores are the directories that this process has made for stores and has not removed yet.
var stores storeDirectories

type storeDirectories struct {
	mu   sync.Mutex
	dirs map[string]struct{} // absolute paths
}

// make makes a directory for a new store, below the current one.
func (s *storeDirectories) make() (dir string, err error) {
	if dir, err = os.MkdirTemp(".", "kvbench-data-"); err != nil {
		return "", err
	}
	path, err := filepath.Abs(dir)
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dirs == nil {
		s.dirs = make(map[string]struct{})
	}
	s.dirs[path] = struct{}{}
	return dir, nil
}

// remove removes a directory that make returned.
func (s *storeDirectories) remove(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	path, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.dirs, path)
	return nil
}

// abandonTries is how often abandon removes a directory in which a store still makes files.
const abandonTries = 3

// abandon removes all directories of a process that is about to end, though their stores are open,
// and says which are left.
func (s *storeDirectories) abandon(out io.Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, dir := range slices.Sorted(maps.Keys(s.dirs)) {
		err := os.RemoveAll(dir)
		for n := 1; err != nil && n < abandonTries; n++ {
			err = os.RemoveAll(dir)
		}
		if err != nil {
			_, _ = fmt.Fprintf(out, "kvbench: remove the store in %s, which is left: %v\n", dir, err) // an error of stderr cannot be reported
		}
	}
}
