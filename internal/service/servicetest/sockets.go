package servicetest

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TCPPair returns two ends of a connection, which are closed after the test.
func TCPPair(t testing.TB) (server, client *net.TCPConn) {
	t.Helper()
	end := func(c net.Conn) {
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				assert.ErrorIs(t, err, net.ErrClosed, "some are closed earlier")
			}
		})
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	c, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	end(c)
	s, err := l.Accept()
	require.NoError(t, err)
	end(s)
	return s.(*net.TCPConn), c.(*net.TCPConn)
}

// EndsOfWaits is what a wait for the other end may end with. Where End is nil the other
// end is closed before the wait.
var EndsOfWaits = map[string]struct {
	End  func(server, client *net.TCPConn) error
	Want func(error) bool
}{
	"the client leaves":  {func(_, client *net.TCPConn) error { return client.Close() }, func(err error) bool { return err == io.EOF }},
	"it says no more":    {func(_, client *net.TCPConn) error { return client.CloseWrite() }, func(err error) bool { return err == io.EOF }},
	"it breaks off":      {func(_, client *net.TCPConn) error { return errors.Join(client.SetLinger(0), client.Close()) }, isErr(syscall.ECONNRESET)},
	"the server leaves":  {func(server, _ *net.TCPConn) error { return server.Close() }, isErr(net.ErrClosed)},
	"its time runs out":  {func(server, _ *net.TCPConn) error { return server.SetReadDeadline(time.Now()) }, isErr(os.ErrDeadlineExceeded)},
	"there was no time":  {func(server, _ *net.TCPConn) error { return server.SetDeadline(time.Unix(1, 0)) }, isErr(os.ErrDeadlineExceeded)},
	"it has left before": {nil, func(err error) bool { return err == io.EOF }},
}

func isErr(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}
