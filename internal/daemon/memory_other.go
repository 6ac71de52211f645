//go:build !linux

package daemon

// machineMemory is not known here: the default budget is the least one.
func machineMemory() int64 { return 0 }
