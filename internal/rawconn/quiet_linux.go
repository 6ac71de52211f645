//go:build linux && !race

package rawconn

import (
	"syscall"
	"unsafe"
)

// quietRead is syscall.Read without telling the runtime.
func quietRead(fd int, p []byte) (n int, err error) { return quiet(syscall.SYS_READ, fd, p) }

// quietWrite is syscall.Write without telling the runtime.
func quietWrite(fd int, p []byte) (n int, err error) { return quiet(syscall.SYS_WRITE, fd, p) }

func quiet(trap uintptr, fd int, p []byte) (int, error) {
	// #nosec G103 -- a system call needs the address; p stays alive until it returns
	n, _, errno := syscall.RawSyscall(trap, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
