//go:build !unix

package vfs

import (
	"errors"
	"net"
)

// ListenUnix needs a system that knows modes of sockets.
func ListenUnix(string) (net.Listener, error) { return nil, errors.ErrUnsupported }
