//go:build !unix

package rawconn

import (
	"errors"
	"net"
)

// Conn is never created on this system.
type Conn struct{}

// New returns nil.
func New(net.Conn) *Conn { return nil }

// Read implements io.Reader.
func (*Conn) Read([]byte) (int, error) { return 0, errors.ErrUnsupported }

// Await fails.
func (*Conn) Await(func() error) error { return errors.ErrUnsupported }

// ReadNow reads nothing.
func (*Conn) ReadNow([]byte) (int, error) { return 0, errors.ErrUnsupported }

// Waits returns 0.
func (*Conn) Waits() uint64 { return 0 }

// WriteSome writes nothing.
func (*Conn) WriteSome([]byte) (int, error) { return 0, errors.ErrUnsupported }
