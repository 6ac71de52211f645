package main

import (
	"os"
	"strconv"
	"strings"
)

// memoryUse is the resident memory of the process, files it maps included. It is
// zero where the kernel does not tell.
type memoryUse struct {
	BeforeBytes int64 `json:"beforeBytes"`
	PeakBytes   int64 `json:"peakBytes"`
}

// grown is how far the peak rose above what was there.
func (m memoryUse) grown() int64 { return m.PeakBytes - m.BeforeBytes }

// memoryNow begins to watch the process. See proc_pid_clear_refs(5): the peak is
// that since now.
func memoryNow() memoryUse {
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		return memoryUse{}
	}
	return memoryUse{BeforeBytes: status("VmRSS:")}
}

// watched ends the watch.
func (m memoryUse) watched() memoryUse {
	if m.BeforeBytes > 0 {
		m.PeakBytes = status("VmHWM:")
	}
	return m
}

// status returns a field of /proc/self/status, zero if there is none.
func status(name string) int64 {
	text, err := os.ReadFile("/proc/self/status")
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
