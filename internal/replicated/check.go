package replicated

import (
	"fmt"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/inspect"
	"github.com/kvd-db/kvd/internal/raftlog"
	"github.com/kvd-db/kvd/internal/vfs"
)

var _ inspect.LogCheck = CheckLog

// CheckLog reads the log of a stopped node as its start does, and says what it holds: it is an
// inspect.LogCheck.
//
// Errors: a *kv.CorruptionError of each damaged segment, kv.ErrUnsupportedVersion, those of the
// file system; joined if there are several.
func CheckLog(fsys vfs.FS, dir string, node *descriptor.Node) (note string, err error) {
	found, err := raftlog.Check(fsys, dir, node.LogID())
	if err != nil {
		return "", raftlog.Damages(fsys, dir, node.LogID(), err)
	}
	note = fmt.Sprintf("the log ends at entry %d, and says that %d is committed", found.Last, found.Committed)
	if found.DroppedBytes > 0 {
		note += fmt.Sprintf("; %d bytes at its end are no whole write, and were not acknowledged; the next start drops them", found.DroppedBytes)
	}
	return note, nil
}
