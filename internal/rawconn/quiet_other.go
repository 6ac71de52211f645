//go:build unix && (!linux || race)

package rawconn

import "syscall"

func quietRead(fd int, p []byte) (n int, err error) { return syscall.Read(fd, p) }

func quietWrite(fd int, p []byte) (n int, err error) { return syscall.Write(fd, p) }
