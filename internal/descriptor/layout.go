package descriptor

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// Names in a data directory.
const (
	Name        = "STORE"
	ClockName   = "CLOCK"
	LockName    = "LOCK"
	BallastName = "BALLAST"
	LogName     = "wal"

	// IncomingName is the directory for the files of a version of the store that another
	// node sends.
	IncomingName = "incoming"
)

// Names of files that mark a directory which is being filled, and is no store yet.
const (
	RestoringName = "RESTORING" // by kvd restore
	RepairingName = "REPAIRING" // by kvd repair
)

// Path returns the path of STORE in a data directory.
func Path(dir string) string { return path.Join(dir, Name) }

// ClockPath returns the path of CLOCK in a data directory.
func ClockPath(dir string) string { return path.Join(dir, ClockName) }

// LockPath returns the path of the lock file in a data directory.
func LockPath(dir string) string { return path.Join(dir, LockName) }

// BallastPath returns the path of the file that reserves space in a data directory.
func BallastPath(dir string) string { return path.Join(dir, BallastName) }

// LogDir returns the directory of the commit log in a data directory.
func LogDir(dir string) string { return path.Join(dir, LogName) }

// IsReplicatedSegment reports whether a name in the directory of the commit log is that of a
// segment of the log of a cluster.
func IsReplicatedSegment(name string) bool { return path.Ext(name) == ".raft" }

// IsOwnSegment reports whether a name in the directory of the commit log is that of a segment of
// the log of a single node.
func IsOwnSegment(name string) bool { return path.Ext(name) == ".wal" }

// HasOwnLog reports whether the store in dir has the log of a single node, perhaps from the time
// before it became a node of a cluster. What is wrong with the directory of the log is left to what
// opens it.
func HasOwnLog(fsys vfs.FS, dir string) bool {
	names, _ := fsys.List(LogDir(dir))
	return slices.ContainsFunc(names, IsOwnSegment)
}

// HasReplicatedLog reports whether the store in dir has the log of a cluster in place of one of
// its own. If it has both, it was becoming a node of a cluster: with NODE it is one, without NODE
// it is the store of a single node. What is wrong with the directory of the log is left to what
// opens it.
func HasReplicatedLog(fsys vfs.FS, dir string) bool {
	names, _ := fsys.List(LogDir(dir))
	if !slices.ContainsFunc(names, IsReplicatedSegment) {
		return false
	}
	if !slices.ContainsFunc(names, IsOwnSegment) {
		return true
	}
	_, err := fsys.Stat(NodePath(dir))
	return !errors.Is(err, fs.ErrNotExist)
}

// PartitionDir returns the directory of a partition in a data directory.
func PartitionDir(dir string, id int) string { return path.Join(dir, partitionName(id)) }

// Inside returns a path below a data directory relative to that directory.
func Inside(dir, name string) string {
	if dir == "." {
		return name
	}
	return strings.TrimPrefix(strings.TrimPrefix(name, dir), "/")
}

func partitionName(id int) string { return fmt.Sprintf("p-%04d", id) }

// ParsePartition returns the number of the partition whose directory has this
// name. It accepts only the spelling of PartitionDir.
func ParsePartition(name string) (id int, ok bool) {
	digits, ok := strings.CutPrefix(name, "p-")
	if !ok {
		return 0, false
	}
	id, err := strconv.Atoi(digits)
	return id, err == nil && id >= 0 && partitionName(id) == name
}

// Foreign returns the name of a file that does not belong to a store, if dir holds such a
// file and no STORE: to create a store there is hardly meant. It returns "" for a store,
// for a directory in which the creation of a store was cut short, for the root of a new
// file system, and for a directory that is empty. Errors: those of List, among them
// fs.ErrNotExist.
func Foreign(fsys vfs.FS, dir string) (string, error) {
	names, err := fsys.List(dir)
	if err != nil {
		return "", err
	}
	foreign := ""
	for _, name := range names {
		switch {
		case name == Name:
			return "", nil
		case foreign == "" && !known(name):
			foreign = name
		}
	}
	return foreign, nil
}

// CheckFilled returns an error if dir is being filled by a restore or a repair, or was when
// that was interrupted: no store may be created there. It returns nil if dir cannot be listed.
//
// Errors: kv.ErrInvalidArgument.
func CheckFilled(fsys vfs.FS, dir string) error {
	names, err := fsys.List(dir)
	if err != nil || slices.Contains(names, Name) {
		return nil
	}
	for _, name := range names {
		if name == RestoringName || name == RepairingName {
			return fmt.Errorf("%w: %s holds no store, but %s: a restore or repair into it has not ended, or was interrupted; wait for it, or remove the directory and repeat it",
				kv.ErrInvalidArgument, dir, name)
		}
	}
	return nil
}

// known reports whether a directory without STORE in which a store may be created can hold
// a file of that name.
func known(name string) bool {
	switch strings.TrimSuffix(name, ".tmp") {
	case Name, ClockName, NodeName, DiffersName, LockName, LogName, BallastName, IncomingName, "lost+found":
		return true
	}
	_, ok := ParsePartition(name)
	return ok
}
