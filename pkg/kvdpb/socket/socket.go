//go:build unix

package socket

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// Socket reads and writes a connection. One goroutine reads at a time, and one writes.
// Deadlines are those of the connection, and so is closing, which ends both.
type Socket struct {
	conn    net.Conn
	raw     syscall.RawConn
	in, out half

	waits uint64
	told  time.Time // when the runtime was told of a read
}

// half is what one direction has under way.
type half struct {
	step func(fd uintptr) (done bool)
	data []byte
	n    int
	err  error
}

// New returns nil if the connection is no socket.
func New(conn net.Conn) *Socket {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	s := &Socket{conn: conn, raw: raw}
	s.in.step, s.out.step = s.read, s.write
	return s
}

// Read implements io.Reader. It waits for the first byte.
func (s *Socket) Read(p []byte) (n int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	s.in.begin(p)
	n, err = s.in.end(s.raw.Read(s.in.step))
	switch {
	case err != nil:
		return n, s.failed("read", err)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// Waits is how often Read had to wait. It is called by the goroutine that reads.
func (s *Socket) Waits() uint64 { return s.waits }

// WriteSome writes what the socket has room for, without waiting for the rest, and
// returns how much that was.
func (s *Socket) WriteSome(p []byte) (n int, err error) {
	s.out.begin(p)
	if n, err = s.out.end(s.raw.Write(s.out.step)); err != nil {
		err = s.failed("write", err)
	}
	return n, err
}

// failed is an error as package net has it.
func (s *Socket) failed(op string, err error) error {
	if e, ok := errors.AsType[*net.OpError](err); ok {
		e.Op = op // raw-read, raw-write
		return e
	}
	local := s.conn.LocalAddr()
	return &net.OpError{Op: op, Net: local.Network(), Source: local, Addr: s.conn.RemoteAddr(), Err: os.NewSyscallError(op, err)}
}

func (h *half) begin(p []byte) { h.data, h.n, h.err = p, 0, nil }

func (h *half) end(err error) (int, error) {
	h.data = nil
	if err == nil {
		err = h.err
	}
	return h.n, err
}

const (
	// quietBytes bounds what is copied without telling the runtime: some 20 us.
	quietBytes = 64 << 10
	// tellEvery bounds how late the monitor learns that there is work: see the package.
	// As often as the client's watchdog looks.
	tellEvery = 50 * time.Millisecond
)

// read is done unless there is nothing to read.
func (s *Socket) read(fd uintptr) (done bool) {
	h := &s.in
	for {
		n, err := s.readNow(int(fd), h.data)
		switch err {
		case nil:
			h.n = n
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			s.waits++
			return false
		default:
			h.err = err
		}
		return true
	}
}

func (s *Socket) readNow(fd int, p []byte) (n int, err error) {
	if now := time.Now(); len(p) > quietBytes || now.Sub(s.told) >= tellEvery {
		s.told = now
		return syscall.Read(fd, p)
	}
	return quietRead(fd, p)
}

// write is done whatever came of it, so that nobody waits.
func (s *Socket) write(fd uintptr) (done bool) {
	h := &s.out
	n, err := writeNow(int(fd), h.data)
	switch err {
	case nil:
		h.n = n
	case syscall.EAGAIN, syscall.EINTR:
	default:
		h.err = err
	}
	return true
}

func writeNow(fd int, p []byte) (n int, err error) {
	if len(p) > quietBytes {
		return syscall.Write(fd, p)
	}
	return quietWrite(fd, p)
}
