package daemon

import "golang.org/x/sys/unix"

// machineMemory returns the memory of the machine, 0 if it is not known.
func machineMemory() int64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0
	}
	return int64(uint64(info.Totalram) * uint64(info.Unit))
}
