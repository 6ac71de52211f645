//go:build !unix

package socket

import (
	"errors"
	"net"
)

// Socket is never created on this system.
type Socket struct{}

// New returns nil.
func New(net.Conn) *Socket { return nil }

// Read implements io.Reader.
func (*Socket) Read([]byte) (int, error) { return 0, errors.ErrUnsupported }

// Await fails.
func (*Socket) Await(func() error) error { return errors.ErrUnsupported }

// ReadNow reads nothing.
func (*Socket) ReadNow([]byte) (int, error) { return 0, errors.ErrUnsupported }

// Waits returns 0.
func (*Socket) Waits() uint64 { return 0 }

// WriteSome writes nothing.
func (*Socket) WriteSome([]byte) (int, error) { return 0, errors.ErrUnsupported }
