package grpcapi

import (
	"google.golang.org/grpc/mem"

	"github.com/kvd-db/kvd/internal/rawconn"
)

// readyReader reads from a socket into memory that it borrows only once something has
// arrived, so that an idle connection holds none. Used by one goroutine at a time.
type readyReader struct {
	socket *rawconn.Conn
	step   func() error

	size int
	pool mem.BufferPool
	data *[]byte
	n    int
}

// newReadyReader returns nil if there is no socket.
func newReadyReader(socket *rawconn.Conn) *readyReader {
	if socket == nil {
		return nil
	}
	r := &readyReader{socket: socket}
	r.step = r.try
	return r
}

// read waits until something comes, and returns memory of the pool with it.
func (r *readyReader) read(size int, pool mem.BufferPool) (data *[]byte, n int, err error) {
	r.size, r.pool = size, pool
	err = r.socket.Await(r.step)
	data, r.data, r.pool = r.data, nil, nil
	if err != nil {
		return nil, 0, err
	}
	return data, r.n, nil
}

// try borrows memory for what is there.
func (r *readyReader) try() (err error) {
	data := r.pool.Get(r.size)
	if r.n, err = r.socket.ReadNow(*data); err != nil {
		r.pool.Put(data)
		return err
	}
	r.data = data
	return nil
}
