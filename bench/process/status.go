package process

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Self stands for the process that asks.
const Self = "self"

// StatusBytes returns a field of /proc/PID/status, zero if there is none. pid may be
// Self.
func StatusBytes(pid, name string) int64 {
	text, err := os.ReadFile(filepath.Join("/proc", pid, "status"))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			if err != nil {
				return 0
			}
			return kib << 10
		}
	}
	return 0
}
