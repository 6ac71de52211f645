package kvd

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/daemon"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	"github.com/kvd-db/kvd/internal/testwait"
)

// tunnelConn encrypts, as far as a test needs that. It has all methods of a socket, but
// what it reads and writes is not what the socket has.
type tunnelConn struct{ *net.TCPConn }

func veil(p []byte) []byte {
	p = bytes.Clone(p)
	for i := range p {
		p[i] ^= 0x5a
	}
	return p
}

func (c tunnelConn) Read(p []byte) (int, error) {
	n, err := c.TCPConn.Read(p)
	copy(p, veil(p[:n]))
	return n, err
}

func (c tunnelConn) Write(p []byte) (int, error) { return c.TCPConn.Write(veil(p)) }

type tunnelListener struct{ net.Listener }

func (l tunnelListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return tunnelConn{conn.(*net.TCPConn)}, nil
}

// wire passes connections on to an address and keeps what goes over them.
type wire struct {
	mu   sync.Mutex
	seen []byte
}

func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen = append(w.seen, p...)
	return len(p), nil
}

// listen passes connections on to an address until the test ends.
func (w *wire) listen(t *testing.T, to string) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var all sync.WaitGroup
	pass := func(to, from net.Conn) {
		_, _ = io.Copy(io.MultiWriter(to, w), from)
		_, _ = to.Close(), from.Close() // that it ended is all that counts
	}
	all.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				_ = near.Close()
				continue
			}
			all.Go(func() { pass(far, near) })
			all.Go(func() { pass(near, far) })
		}
	})
	t.Cleanup(func() {
		require.NoError(t, l.Close())
		all.Wait()
	})
	return l.Addr().String()
}

// A connection that embeds a socket, and encrypts, sees every byte, at the client and at
// the server.
func TestTunnelsSeeEveryByte(t *testing.T) {
	for name, opts := range map[string][]Option{
		"raw frames": nil, "gRPC": {WithoutRawFrames()}, "without raw sockets": {WithoutRawSockets()},
	} {
		t.Run(name, func(t *testing.T) {
			s := service.New(servicetest.New(kv.DefaultLimits), service.Options{}, daemon.Protocols()...)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			served := make(chan error, 1)
			go func() { served <- s.Serve(tunnelListener{l}) }()
			t.Cleanup(func() {
				require.NoError(t, s.Shutdown(context.Background()))
				require.NoError(t, <-served)
			})
			var w wire
			address := w.listen(t, l.Addr().String())
			db, err := Open("tunnel", append(opts, WithConns(1), WithTimeout(testwait.Left()), WithDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
				if err != nil {
					return nil, err
				}
				return tunnelConn{conn.(*net.TCPConn)}, nil
			}))...)
			require.NoError(t, err)
			ctx := context.Background()
			const secret = "what nobody on the way may read"
			for range 10 {
				require.NoError(t, db.Put(ctx, []byte("k"), []byte(secret)))
				value, err := db.Get(ctx, []byte("k"))
				require.NoError(t, err)
				require.Equal(t, secret, string(value))
			}
			require.NoError(t, db.Close())
			w.mu.Lock()
			defer w.mu.Unlock()
			assert.NotContains(t, string(w.seen), secret)
			assert.Contains(t, string(veil(w.seen)), secret, "the test looks at the wire")
		})
	}
}
