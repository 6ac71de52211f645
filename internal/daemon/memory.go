package daemon

import (
	"path"
	"strconv"
	"strings"

	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/vfs"
)

const (
	// leastRequests is what requests in progress have at least, if that is no more than three
	// fifths of what there is: three copies of the largest atomic batch. With less, such a
	// batch would hold up all others.
	leastRequests = 24 << 20
	// programBytes is what a process has in memory that the garbage collector does not
	// see: the pages of the program. An idle service has 16 MiB of them.
	programBytes = 16 << 20
	// runtimeBytes is for what no request asks for: stacks, connections, and the runtime
	// itself. Guessed.
	runtimeBytes = 4 << 20

	minMemory       = 64 << 20
	leastAutoMemory = 256 << 20
)

// collectorLimit is what the garbage collector works towards, so that a process stays
// within a budget. A limit that the user has set by GOMEMLIMIT counts if it is smaller.
func collectorLimit(budget, users int64) int64 { return min(budget-programBytes, users) }

// dataMemory is what a budget leaves for memtables, cache and requests.
func dataMemory(budget int64) int64 { return budget - programBytes - runtimeBytes }

// split deals what is there for data out to memtables, cache and requests in progress: a
// quarter each. The last quarter is for what the collector has not found yet.
func split(data int64) (memtables, cache, requests int64) {
	requests = min(max(data/4, leastRequests), data/5*3)
	memtables, cache = engine.Shares(data)
	most := (data - requests) / 5 * 2
	return min(memtables, most), min(cache, most), requests
}

// defaultMemory is a quarter of what the process may have, and at least 256 MiB:
// a service that was given no budget should leave room for others.
func defaultMemory(fsys vfs.FS) int64 {
	limit := machineMemory()
	if cgroup := cgroupMemory(fsys); cgroup > 0 && cgroup < limit {
		limit = cgroup
	}
	return max(limit/4>>20<<20, leastAutoMemory)
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
