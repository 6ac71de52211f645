package frameapi

import (
	"bufio"
	"net"
	"sync"
	"syscall"

	"github.com/kvd-db/kvd/internal/rawconn"
)

// rawReadBytes is the buffer that frames are read into: what one call of the kernel
// brings.
const rawReadBytes = 16 << 10

// inputs are the buffers of the connections that something has come on.
var inputs = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, rawReadBytes) }}

// input reads a raw connection. Its buffer is borrowed while there is something in it. A
// connection that is not a plain socket has its own buffer, since only a read shows that
// something has arrived. Used by one goroutine at a time.
type input struct {
	buffered *bufio.Reader // of source; nil: nothing is there
	source   source
	step     func() error
}

// newInput reads from conn, or from the socket beneath it if there is one that has the
// same bytes.
func newInput(conn net.Conn, socket *rawconn.Conn) *input {
	in := &input{source: source{socket: socket}}
	if socket == nil {
		in.buffered = bufio.NewReaderSize(conn, rawReadBytes)
	}
	in.step = in.try
	return in
}

// wait waits until there is something to read, for which there is a buffer then.
func (in *input) wait() error {
	if in.source.socket == nil {
		_, err := in.buffered.Peek(1)
		return err
	}
	if in.buffered != nil && in.buffered.Buffered() > 0 {
		return nil
	}
	return in.source.socket.Await(in.step)
}

// try fills the buffer with what is there.
func (in *input) try() error {
	if in.buffered == nil {
		in.buffered = inputs.Get().(*bufio.Reader)
		in.buffered.Reset(&in.source)
	}
	in.source.prompt = true
	_, err := in.buffered.Peek(1)
	in.source.prompt = false
	if err == syscall.EAGAIN {
		in.release()
	}
	return err
}

// release gives back what was borrowed, with whatever is in it.
func (in *input) release() {
	if in.source.socket != nil && in.buffered != nil {
		in.buffered.Reset(nil)
		inputs.Put(in.buffered)
		in.buffered = nil
	}
}

// source is a socket that is read from, while prompt is set without waiting.
type source struct {
	socket *rawconn.Conn
	prompt bool
}

func (s *source) Read(p []byte) (int, error) {
	if s.prompt {
		return s.socket.ReadNow(p)
	}
	return s.socket.Read(p)
}
