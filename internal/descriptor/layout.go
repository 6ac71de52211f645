package descriptor

import (
	"fmt"
	"path"
	"strconv"
	"strings"
)

// Names in a data directory.
const (
	Name        = "STORE"
	ClockName   = "CLOCK"
	LockName    = "LOCK"
	BallastName = "BALLAST"
	LogName     = "wal"
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

// PartitionDir returns the directory of a partition in a data directory.
func PartitionDir(dir string, id int) string { return path.Join(dir, partitionName(id)) }

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
