package main

import (
	"os"

	"github.com/kvd-db/kvd/bench/process"
)

// memoryUse is the resident memory of the process, including files it maps. It is zero
// where the kernel does not report it.
type memoryUse struct {
	BeforeBytes int64 `json:"beforeBytes"`
	PeakBytes   int64 `json:"peakBytes"`
}

// grown is how far the peak rose above the value at the start.
func (m memoryUse) grown() int64 { return m.PeakBytes - m.BeforeBytes }

// memoryNow begins to watch the process. It resets the kernel's peak: see
// proc_pid_clear_refs(5).
func memoryNow() memoryUse {
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		return memoryUse{}
	}
	return memoryUse{BeforeBytes: process.StatusBytes(process.Self, "VmRSS:")}
}

// watched ends the watch.
func (m memoryUse) watched() memoryUse {
	if m.BeforeBytes > 0 {
		m.PeakBytes = process.StatusBytes(process.Self, "VmHWM:")
	}
	return m
}
