package loadgen

import "strconv"

// DiskReadBytes returns how many bytes this process has caused to be read from disks, the
// read-ahead of the kernel included; false if the system does not tell.
func DiskReadBytes() (int64, bool) {
	n, err := strconv.ParseInt(field(readProc("/proc/self/io"), "read_bytes"), 10, 64)
	return n, err == nil
}
