package server

import (
	"errors"
	"net"
	"syscall"
)

// eagerWriter writes to a socket what its buffer has room for, without waiting for
// the rest. Used by one goroutine at a time.
type eagerWriter struct {
	socket syscall.RawConn
	step   func(fd uintptr) (done bool)

	data []byte
	n    int
	err  error
}

// newEagerWriter returns nil if the connection is no socket.
func newEagerWriter(conn net.Conn) *eagerWriter {
	s, ok := conn.(syscall.Conn)
	if !ok {
		return nil
	}
	socket, err := s.SyscallConn()
	if err != nil {
		return nil
	}
	w := &eagerWriter{socket: socket}
	w.step = w.writeTo
	return w
}

// write returns how much of data the socket took.
func (w *eagerWriter) write(data []byte) (n int, err error) {
	w.data, w.n, w.err = data, 0, nil
	err = w.socket.Write(w.step)
	w.data = nil
	return w.n, errors.Join(err, w.err)
}

// writeTo is done whatever came of it, so that nobody waits.
func (w *eagerWriter) writeTo(fd uintptr) (done bool) {
	n, err := syscall.Write(int(fd), w.data)
	switch err {
	case nil:
		w.n = n
	case syscall.EAGAIN, syscall.EINTR:
	default:
		w.err = err
	}
	return true
}
