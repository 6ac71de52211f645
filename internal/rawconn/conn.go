//go:build unix

package rawconn

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

// Conn reads and writes a connection. One goroutine at a time may read, and one may
// write. Deadlines and closing are those of the connection; closing it ends both.
type Conn struct {
	conn net.Conn
	raw  syscall.RawConn

	in struct { // state of Await
		step func(fd uintptr) (done bool)
		try  func() error
		err  error // of the last call of try
		fd   int   // valid while try runs
	}
	read struct { // arguments and result of readInto, which Read passes to Await
		try  func() error
		data []byte
		n    int
	}
	out struct { // state of WriteSome
		step func(fd uintptr) (done bool)
		data []byte
		n    int
		err  error
	}

	waits uint64
	told  time.Time // when a read last told the runtime
}

// New returns nil unless conn is a *net.TCPConn or a *net.UnixConn. A type that embeds
// one of them may encrypt what it reads and writes, so its own Read and Write must be
// called.
func New(conn net.Conn) *Conn {
	var raw syscall.RawConn
	var err error
	switch c := conn.(type) {
	case *net.TCPConn:
		raw, err = c.SyscallConn()
	case *net.UnixConn:
		raw, err = c.SyscallConn()
	default:
		return nil
	}
	if err != nil {
		return nil
	}
	s := &Conn{conn: conn, raw: raw}
	s.in.step, s.read.try, s.out.step = s.tryIn, s.readInto, s.write
	return s
}

// Read implements io.Reader. It waits for at least one byte.
func (s *Conn) Read(p []byte) (n int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	s.read.data, s.read.n = p, 0
	err = s.Await(s.read.try)
	s.read.data = nil
	return s.read.n, err
}

func (s *Conn) readInto() (err error) {
	s.read.n, err = s.ReadNow(s.read.data)
	return err
}

// Await calls try, which calls ReadNow, and calls it again each time the connection may
// have become readable, as long as try returns syscall.EAGAIN. So the caller can
// allocate memory only while there is something to read.
func (s *Conn) Await(try func() error) error {
	s.in.try = try
	err := s.raw.Read(s.in.step)
	s.in.try = nil
	if err == nil {
		err = s.in.err
	}
	if err != nil && err != io.EOF {
		return s.failed("read", err)
	}
	return err
}

func (s *Conn) tryIn(fd uintptr) (done bool) {
	s.in.fd = int(fd)
	if s.in.err = s.in.try(); s.in.err == syscall.EAGAIN {
		s.waits++
		return false
	}
	return true
}

// ReadNow reads what has arrived. Only a function passed to Await may call it. The
// error is syscall.EAGAIN if nothing has arrived, and io.EOF at the end of the stream.
func (s *Conn) ReadNow(p []byte) (n int, err error) {
	for {
		n, err = s.readNow(s.in.fd, p)
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

// Waits returns how often Read and Await had to wait. Only the reading goroutine may
// call it.
func (s *Conn) Waits() uint64 { return s.waits }

// WriteSome writes as many bytes as the socket has room for, without waiting, and
// returns their number.
func (s *Conn) WriteSome(p []byte) (n int, err error) {
	s.out.data, s.out.n, s.out.err = p, 0, nil
	err = s.raw.Write(s.out.step)
	s.out.data = nil
	if err == nil {
		err = s.out.err
	}
	if err != nil {
		err = s.failed("write", err)
	}
	return s.out.n, err
}

// failed returns an error in the form of package net.
func (s *Conn) failed(op string, err error) error {
	if e, ok := errors.AsType[*net.OpError](err); ok {
		e.Op = op // raw-read, raw-write
		return e
	}
	local := s.conn.LocalAddr()
	return &net.OpError{Op: op, Net: local.Network(), Source: local, Addr: s.conn.RemoteAddr(), Err: os.NewSyscallError(op, err)}
}

const (
	// quietBytes is the largest read or write that does not tell the runtime: copying
	// it takes about 20 us.
	quietBytes = 64 << 10
	// tellEvery bounds how late the monitor learns that there is work: see the package
	// comment. It equals the interval of the client's watchdog.
	tellEvery = 50 * time.Millisecond
)

func (s *Conn) readNow(fd int, p []byte) (n int, err error) {
	if now := time.Now(); len(p) > quietBytes || now.Sub(s.told) >= tellEvery {
		s.told = now
		return syscall.Read(fd, p)
	}
	return quietRead(fd, p)
}

// write always reports done, so that the caller never waits.
func (s *Conn) write(fd uintptr) (done bool) {
	n, err := writeNow(int(fd), s.out.data)
	switch err {
	case nil:
		s.out.n = n
	case syscall.EAGAIN, syscall.EINTR:
	default:
		s.out.err = err
	}
	return true
}

func writeNow(fd int, p []byte) (n int, err error) {
	if len(p) > quietBytes {
		return syscall.Write(fd, p)
	}
	return quietWrite(fd, p)
}
