package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/kvd-db/kvd/internal/descriptor"
)

// checkData refuses to create a store where the operator probably does not want one: if the
// disk is not mounted, or in a directory that holds other files, perhaps since its name is
// misspelt. An empty store would look as if all data were lost.
func (c *Config) checkData() error {
	if c.Create {
		return nil
	}
	names, err := c.FS.List(c.Data)
	if errors.Is(err, fs.ErrNotExist) {
		parent := path.Dir(path.Clean(c.Data))
		if _, err := c.FS.Stat(parent + "/."); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: --data %s: the directory %s does not exist: is its disk mounted? Create the directory, or pass --create",
				ErrUsage, c.Data, parent)
		}
		return nil
	}
	if err != nil {
		return nil // opening the store returns the error
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
		return fmt.Errorf("%w: --data %s holds no store, but other files, such as %q: give another directory, or pass --create to create a store there",
			ErrUsage, c.Data, foreign)
	}
	return nil
}

// ours reports whether a file of that name may exist in a new file system, or in a directory
// in which the creation of a store was interrupted.
func ours(name string) bool {
	switch strings.TrimSuffix(name, ".tmp") {
	case descriptor.Name, descriptor.ClockName, descriptor.LockName, descriptor.LogName, descriptor.BallastName, "lost+found":
		return true
	}
	_, ok := descriptor.ParsePartition(name)
	return ok
}
