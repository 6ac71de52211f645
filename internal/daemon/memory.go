package daemon

import (
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kvd-db/kvd/internal/vfs"
)

const (
	// bufferShare of the memory budget is for requests in progress: a quarter, of
	// what engine.Shares leaves.
	bufferShare = 4

	minMemory       = 64 << 20
	leastAutoMemory = 256 << 20
)

// defaultMemory is a quarter of what the process may have, and at least 256 MiB:
// a service that was given no budget should leave room for others.
func defaultMemory(fsys vfs.FS) int64 {
	limit := machineMemory()
	if cgroup := cgroupMemory(fsys); cgroup > 0 && cgroup < limit {
		limit = cgroup
	}
	return max(limit/4>>20<<20, leastAutoMemory)
}

func machineMemory() int64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0 // then the least amount is what we take
	}
	return int64(uint64(info.Totalram) * uint64(info.Unit))
}

// cgroupMemory returns the lowest limit of the process's control group and those
// above it, 0 if there is none.
func cgroupMemory(fsys vfs.FS) int64 {
	lowest := int64(0)
	take := func(text string) {
		n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
		if err == nil && n > 0 && (lowest == 0 || n < lowest) {
			lowest = n
		}
	}
	for line := range strings.Lines(readText(fsys, "/proc/self/cgroup")) {
		group, unified := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !unified {
			continue
		}
		for group = path.Clean("/" + group); ; group = path.Dir(group) {
			take(readText(fsys, path.Join("/sys/fs/cgroup", group, "memory.max")))
			if group == "/" {
				break
			}
		}
	}
	take(readText(fsys, "/sys/fs/cgroup/memory/memory.limit_in_bytes")) // version 1
	return lowest
}

// readText returns the beginning of a small file, empty if it cannot be read.
func readText(fsys vfs.FS, name string) string {
	f, err := fsys.Open(name)
	if err != nil {
		return ""
	}
	b := make([]byte, 4096)
	n, _ := f.ReadAt(b, 0) // up to the end of the file, as a rule
	if f.Close() != nil {
		return ""
	}
	return string(b[:n])
}
