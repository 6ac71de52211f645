package transport

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"time"
)

// Options configure a Network. Package kvd sets the defaults and checks the values; the zero value
// is not valid.
type Options struct {
	// Conns is the number of connections of each kind, for each endpoint.
	Conns int
	// Timeout bounds calls without a deadline of their own; 0: no bound.
	Timeout time.Duration
	// Unframed makes every operation a gRPC call.
	Unframed bool
	// Frames bounds frames; SyncedFrames bounds those of writes that wait for the disk.
	Frames, SyncedFrames Limits
	// Window bounds the frames of one batch key that are in flight on a connection.
	Window int
	// GRPCOnly disables connections for raw frames, and NetOnly raw system calls on them.
	GRPCOnly, NetOnly bool
	Logger            *slog.Logger
	TLS               *tls.Config // nil: plain text
	// Token returns the token to sign in with; nil: there is none. It is called for each
	// connection for frames and for each gRPC call.
	Token func() (string, error)
	// Dialer makes the connections; nil: the address of the target is dialled.
	Dialer func(ctx context.Context, address string) (net.Conn, error)
}

// Limits bound one frame.
type Limits struct{ Ops, Bytes int }

// limits returns the limits for frames of a batch key.
func (o *Options) limits(key batchKey) Limits {
	if key.waitsForDisk() {
		return o.SyncedFrames
	}
	return o.Frames
}
