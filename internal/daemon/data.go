package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/vfs"
)

// checkData refuses to create a store where the operator probably does not want one: if the
// disk is not mounted, or in a directory that holds other files, perhaps since its name is
// misspelt. An empty store would look as if all data were lost.
func (c *Config) checkData() error {
	if err := descriptor.CheckFilled(c.FS, c.Data); err != nil {
		return fmt.Errorf("%w: --data: %w", ErrUsage, err)
	}
	if c.Create {
		return nil
	}
	foreign, err := descriptor.Foreign(c.FS, c.Data)
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
	if foreign != "" {
		return fmt.Errorf("%w: --data %s holds no store, but other files, such as %q: give another directory, or pass --create to create a store there",
			ErrUsage, c.Data, foreign)
	}
	return nil
}

// checkArchive refuses to create an archive in a directory whose parent is missing: probably
// its disk is not mounted.
func (c *Config) checkArchive() error {
	if c.Archive == "" || c.Create {
		return nil
	}
	parent := path.Dir(path.Clean(c.Archive))
	if _, err := vfs.OS.Stat(parent + "/."); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: --archive %s: the directory %s does not exist: is its disk mounted? Create the directory, or pass --create",
			ErrUsage, c.Archive, parent)
	}
	return nil
}
