//go:build unix

package rawconn_test

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
	"go.uber.org/goleak"

	"github.com/kvd-db/kvd/internal/rawconn"
	"github.com/kvd-db/kvd/internal/testwait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair returns a connection over loopback: a Conn, its connection, and the peer.
func pair(t *testing.T) (s *rawconn.Conn, conn, peer *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	dialed, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	accepted, err := l.Accept()
	require.NoError(t, err)
	for _, c := range []net.Conn{dialed, accepted} {
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				assert.ErrorIs(t, err, net.ErrClosed)
			}
		})
	}
	s = rawconn.New(dialed)
	require.NotNil(t, s)
	return s, dialed.(*net.TCPConn), accepted.(*net.TCPConn)
}

func TestReadTakesWhatIsThere(t *testing.T) {
	s, _, peer := pair(t)
	_, err := peer.Write([]byte("abcdef"))
	require.NoError(t, err)
	b := make([]byte, 4)
	n, err := s.Read(nil)
	assert.Zero(t, n)
	require.NoError(t, err)
	got := ""
	for len(got) < 6 {
		n, err := s.Read(b)
		require.NoError(t, err)
		got += string(b[:n])
	}
	assert.Equal(t, "abcdef", got)
}

func TestReadWaitsAndCountsThat(t *testing.T) {
	s, conn, peer := pair(t)
	type read struct {
		n     int
		err   error
		waits uint64
	}
	done := make(chan read)
	b := make([]byte, 8)
	var err error
	testwait.Doubling(t, time.Millisecond, func(d time.Duration) (waited bool) {
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(d)))
		_, err = s.Read(b)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		return s.Waits() == 1
	})
	var timeout net.Error
	require.ErrorAs(t, err, &timeout)
	assert.True(t, timeout.Timeout())
	assert.Contains(t, err.Error(), "read tcp")

	require.NoError(t, conn.SetReadDeadline(time.Time{}))
	go func() {
		n, err := s.Read(b)
		done <- read{n, err, s.Waits()}
	}()
	_, err = peer.Write([]byte("x"))
	require.NoError(t, err)
	r := <-done
	require.NoError(t, r.err)
	assert.Equal(t, "x", string(b[:r.n]))
	assert.LessOrEqual(t, r.waits, uint64(2))
}

func TestReadEndsWithTheConnection(t *testing.T) {
	t.Run("peer closed", func(t *testing.T) {
		s, _, peer := pair(t)
		require.NoError(t, peer.Close())
		_, err := s.Read(make([]byte, 1))
		assert.Equal(t, io.EOF, err)
	})
	t.Run("peer reset", func(t *testing.T) {
		s, _, peer := pair(t)
		require.NoError(t, peer.SetLinger(0))
		require.NoError(t, peer.Close())
		_, err := s.Read(make([]byte, 1))
		assert.ErrorIs(t, err, syscall.ECONNRESET)
		assert.Regexp(t, "^read tcp .*: read: connection reset by peer$", err.Error())
	})
	t.Run("closed", func(t *testing.T) {
		s, conn, _ := pair(t)
		done := make(chan error)
		go func() {
			_, err := s.Read(make([]byte, 1))
			done <- err
		}()
		require.NoError(t, conn.Close())
		assert.ErrorIs(t, <-done, net.ErrClosed)
		_, err := s.WriteSome([]byte("x"))
		assert.ErrorIs(t, err, net.ErrClosed)
		assert.Contains(t, err.Error(), "write tcp")
	})
}

// Large and small writes; the small ones do not tell the runtime.
func TestWriteSomeDoesNotWait(t *testing.T) {
	for _, size := range []int{1 << 10, 1 << 20} {
		s, conn, peer := pair(t)
		data := make([]byte, size)
		for i := range data {
			data[i] = byte(i % 251)
		}
		var sent []byte
		for {
			n, err := s.WriteSome(data)
			require.NoError(t, err)
			sent = append(sent, data[:n]...)
			if n < size {
				break // the socket is full
			}
		}
		require.NoError(t, conn.CloseWrite())
		in := rawconn.New(peer)
		got, err := io.ReadAll(in)
		require.NoError(t, err)
		assert.True(t, string(got) == string(sent), "%d of %d bytes", len(got), len(sent))
	}
}

func TestWriteSomeToAPeerThatIsGone(t *testing.T) {
	s, _, peer := pair(t)
	require.NoError(t, peer.SetLinger(0))
	require.NoError(t, peer.Close())
	_, err := s.Read(make([]byte, 1)) // returns when the reset has arrived
	require.ErrorIs(t, err, syscall.ECONNRESET)
	_, err = s.WriteSome([]byte("x"))
	assert.ErrorIs(t, err, syscall.EPIPE)
}

func TestWhatIsNoSocketHasNone(t *testing.T) {
	a, b := net.Pipe()
	assert.Nil(t, rawconn.New(a))
	require.NoError(t, errors.Join(a.Close(), b.Close()))

	_, conn, _ := pair(t)
	assert.Nil(t, rawconn.New(struct{ *net.TCPConn }{conn}), "its Read and Write may be others")
	assert.Nil(t, rawconn.New(struct{ net.Conn }{conn}))
	assert.Nil(t, rawconn.New(struct{ *net.UnixConn }{new(net.UnixConn)}))
}

func TestNothingIsAllocated(t *testing.T) {
	s, _, peer := pair(t)
	in := rawconn.New(peer)
	b := make([]byte, 64)
	allocs := testing.AllocsPerRun(100, func() {
		if n, err := s.WriteSome(b); n != len(b) || err != nil {
			t.Fatal(n, err)
		}
		if n, err := in.Read(b); n != len(b) || err != nil {
			t.Fatal(n, err)
		}
	})
	assert.Zero(t, allocs)
}
