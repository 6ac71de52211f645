//go:build unix

package vfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// ListenUnix listens on a unix socket that only the user of the process may connect to, mode
// 0600. A socket on which no process listens any more is replaced; whatever else has the name
// stays, and is an error. Closing the listener removes the socket.
//
// On Linux the socket has its mode from the beginning. Elsewhere it gets it just after it was
// made.
func ListenUnix(name string) (net.Listener, error) {
	if err := removeDeadSocket(name); err != nil {
		return nil, err
	}
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		// On Linux the file gets the mode that the socket has when it is bound. Other systems
		// know no mode of a socket that is not bound.
		return c.Control(func(fd uintptr) { _ = unix.Fchmod(int(fd), 0o600) })
	}}
	l, err := config.Listen(context.Background(), "unix", name)
	if err != nil {
		return nil, err
	}
	if err := restrict(name); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func restrict(name string) error {
	info, err := os.Lstat(name)
	if err == nil && info.Mode().Perm() != 0o600 {
		err = os.Chmod(name, 0o600)
	}
	return err
}

// removeDeadSocket removes a socket that a process has left behind.
func removeDeadSocket(name string) error {
	info, err := os.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s exists and is no socket: %w", name, fs.ErrExist)
	}
	conn, err := net.Dial("unix", name)
	switch {
	case err == nil:
		return errors.Join(&net.OpError{Op: "listen", Net: "unix", Addr: conn.RemoteAddr(), Err: unix.EADDRINUSE}, conn.Close())
	case errors.Is(err, unix.ECONNREFUSED):
		return os.Remove(name)
	}
	return err
}
