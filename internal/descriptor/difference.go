package descriptor

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// ErrDiffers says that the state of a node differs from that of the majority of its cluster.
var ErrDiffers = errors.New("the state of this node differs from that of the majority of the cluster")

// DiffersName is the name of the file that says, for people, why a node of a cluster must not
// serve any more: its state differed from that of the majority. Any file of that name counts.
const DiffersName = "DIFFERS"

const maxDiffersBytes = 4 << 10

// NoteDifference writes DIFFERS, durably: CheckSame then refuses the store.
func NoteDifference(fsys vfs.FS, dir, why string) error {
	return vfs.WriteAtomic(fsys, path.Join(dir, DiffersName), []byte(why+"\n"))
}

// CheckSame returns an error if the store in dir has a file DIFFERS.
//
// Errors: ErrDiffers, which is also kv.ErrCorrupt; those of the file system.
func CheckSame(fsys vfs.FS, dir string) error {
	name := path.Join(dir, DiffersName)
	why, err := readWhole(fsys, name, maxDiffersBytes)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("%w: %w, says %s: %s; it must not serve again", kv.ErrCorrupt, ErrDiffers, name, strings.TrimSpace(string(why)))
}
