package daemon

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/raftlog"
	"github.com/kvd-db/kvd/internal/vfs"
)

const (
	// leastRequests is the least memory of requests in progress, unless it is more than
	// three fifths of the total: three copies of the largest atomic batch. With less, such a
	// batch would block all other requests.
	leastRequests = 24 << 20
	// programBytes is memory that the garbage collector does not count: the pages of the
	// program. An idle service has 16 MiB of them, a busy one 20.
	programBytes = 20 << 20
	// runtimeBytes is for stacks, connections, and the runtime itself. Guessed.
	runtimeBytes = 4 << 20

	minMemory       = 64 << 20
	leastAutoMemory = 256 << 20
)

// collectorLimit returns the memory limit of the garbage collector with which the process
// stays within a budget. A smaller limit that the user has set by GOMEMLIMIT takes precedence.
func collectorLimit(budget, users int64) int64 { return min(budget-programBytes, users) }

// dataMemory returns what a budget leaves for memtables, cache and requests.
func dataMemory(budget int64) int64 { return budget - programBytes - runtimeBytes }

// split divides the memory for data between memtables, cache and requests in progress: a
// quarter each. The last quarter is for garbage that is not collected yet.
func split(data int64) (memtables, cache, requests int64) {
	requests = min(max(data/4, leastRequests), data/5*3)
	memtables, cache = engine.Shares(data)
	most := (data - requests) / 5 * 2
	return min(memtables, most), min(cache, most), requests
}

// entryBytes returns what a node of a cluster takes of the memory for its cache, for the newest
// entries of its log: a quarter, and no more than a log keeps by default. Guessed.
func entryBytes(cache int64) int64 { return min(cache/4, raftlog.DefaultCacheBytes) }

// defaultMemory returns the budget of a service without a setting: see autoMemory.
func defaultMemory(fsys vfs.FS) int64 {
	limit := machineMemory()
	if cgroup := cgroupMemory(fsys); cgroup > 0 && cgroup < limit {
		limit = cgroup
	}
	return autoMemory(limit)
}

// autoMemory returns a quarter of the memory that the process may use: a service without a
// budget should leave memory to other processes. Of little memory it takes up to 256 MiB, but
// no more than half: the process may exceed its budget by a quarter, and a control group also
// counts the page cache and what the kernel needs for connections.
func autoMemory(limit int64) int64 {
	budget := max(limit/4, min(limit/2, leastAutoMemory))
	return max(budget>>20<<20, minMemory)
}

// cgroupMemory returns the lowest limit of the process's control group and those above it, 0 if
// there is none. It knows both versions of control groups.
func cgroupMemory(fsys vfs.FS) int64 {
	lowest := int64(0)
	take := func(text string) {
		n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
		if err == nil && n > 0 && (lowest == 0 || n < lowest) {
			lowest = n
		}
	}
	climb := func(root, group, file string) {
		for group = path.Clean("/" + group); ; group = path.Dir(group) {
			take(readText(fsys, path.Join(root, group, file)))
			if group == "/" {
				break
			}
		}
	}
	for line := range strings.Lines(readText(fsys, "/proc/self/cgroup")) {
		words := strings.SplitN(strings.TrimSpace(line), ":", 3) // number, controllers, group
		switch {
		case len(words) < 3:
		case words[0] == "0" && words[1] == "":
			climb("/sys/fs/cgroup", words[2], "memory.max")
		case slices.Contains(strings.Split(words[1], ","), "memory"):
			climb("/sys/fs/cgroup/memory", words[2], "memory.limit_in_bytes")
		}
	}
	// In a container the path of its group is that of the host, and its own group the root.
	take(readText(fsys, "/sys/fs/cgroup/memory/memory.limit_in_bytes"))
	return lowest
}

// readText returns the beginning of a small file, empty if it cannot be read.
func readText(fsys vfs.FS, name string) string {
	f, err := fsys.Open(name)
	if err != nil {
		return ""
	}
	b := make([]byte, 4096)
	n, _ := f.ReadAt(b, 0) // usually up to the end of the file
	if f.Close() != nil {
		return ""
	}
	return string(b[:n])
}
