package server

import (
	"io"
	"net"
	"syscall"

	"google.golang.org/grpc/mem"
)

// readNow reads what a socket has received. If that is nothing the error is
// syscall.EAGAIN, and io.EOF if nothing will come.
func readNow(fd uintptr, p []byte) (n int, err error) {
	for {
		n, err = syscall.Read(int(fd), p)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

// readyReader reads from a socket into memory that it borrows only once something has
// come, so that a connection that idles holds none. Used by one goroutine at a time.
type readyReader struct {
	socket syscall.RawConn
	step   func(fd uintptr) (done bool)

	size int
	pool mem.BufferPool
	data *[]byte
	n    int
	err  error
}

// newReadyReader returns nil if the connection is no socket.
func newReadyReader(conn net.Conn) *readyReader {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return nil
	}
	socket, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	r := &readyReader{socket: socket}
	r.step = r.readFrom
	return r
}

// read waits until something comes, and returns memory of the pool with it.
func (r *readyReader) read(size int, pool mem.BufferPool) (data *[]byte, n int, err error) {
	r.size, r.pool, r.err = size, pool, nil
	if err := r.socket.Read(r.step); err != nil {
		return nil, 0, err
	}
	data, n, err = r.data, r.n, r.err
	r.pool, r.data = nil, nil
	return data, n, err
}

func (r *readyReader) readFrom(fd uintptr) (done bool) {
	data := r.pool.Get(r.size)
	if r.n, r.err = readNow(fd, *data); r.err != nil {
		r.pool.Put(data)
		return r.err != syscall.EAGAIN
	}
	r.data = data
	return true
}
