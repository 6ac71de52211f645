package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/kvd-db/kvd/internal/descriptor"
)

// checkData refuses to make a new store where an operator has hardly meant to: on a disk
// that is not mounted, or among files of something else, such as a misspelt directory.
// An empty store would look as if all data were lost.
func (c *Config) checkData() error {
	if c.Create {
		return nil
	}
	names, err := c.FS.List(c.Data)
	if errors.Is(err, fs.ErrNotExist) {
		parent := path.Dir(path.Clean(c.Data))
		if _, err := c.FS.Stat(parent + "/."); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: --data %s: there is no directory %s: is its disk mounted? Make the directory, or pass --create",
				ErrUsage, c.Data, parent)
		}
		return nil
	}
	if err != nil {
		return nil // opening the store says so
	}
	foreign := ""
	for _, name := range names {
		switch {
		case name == descriptor.Name:
			return nil
		case foreign == "" && !ours(name):
			foreign = name
		}
	}
	if foreign != "" {
		return fmt.Errorf("%w: --data %s holds no store, but other files, such as %q: name another directory, or pass --create to make a store there",
			ErrUsage, c.Data, foreign)
	}
	return nil
}

// ours reports whether a directory in which the making of a store was cut short, or a
// new file system, may hold a file of that name.
func ours(name string) bool {
	switch strings.TrimSuffix(name, ".tmp") {
	case descriptor.Name, descriptor.ClockName, descriptor.LockName, descriptor.LogName, descriptor.BallastName, "lost+found":
		return true
	}
	_, ok := descriptor.ParsePartition(name)
	return ok
}
