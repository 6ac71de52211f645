package main

import (
	"os"
	"strconv"
	"strings"
)

// writtenBytes is what a process has written to files, or a difference of two such
// figures; zero where the kernel does not report it. See proc_pid_io(5).
//
// Neither figure is what the disk received. Calls omits writes through mapped files
// (Badger). Dirtied includes them, but counts a whole folio of the page cache, of up to
// 2 MiB, each time a byte of it is written after a sync. That is a hundred times too
// much for a log that is synced often in a file that was written in large pieces.
type writtenBytes struct {
	Calls   int64 `json:"calls"`   // passed to write calls
	Dirtied int64 `json:"dirtied"` // of the page cache
}

func writtenNow() writtenBytes {
	io := processIO()
	return writtenBytes{Calls: io["wchar"], Dirtied: io["write_bytes"]}
}

// processIO returns the counters of proc_pid_io(5), none where there are none.
func processIO() map[string]int64 {
	text, err := os.ReadFile("/proc/self/io")
	if err != nil {
		return nil
	}
	counters := make(map[string]int64)
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
		if err != nil {
			return nil
		}
		counters[name] = n
	}
	return counters
}

// since returns what was written after earlier.
func (w writtenBytes) since(earlier writtenBytes) writtenBytes {
	return writtenBytes{w.Calls - earlier.Calls, w.Dirtied - earlier.Dirtied}
}
