package service

import (
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"

	"github.com/kvd-db/kvd/internal/rawconn"
)

// tcpPair returns two ends of a connection, which are closed behind the test.
func tcpPair(t testing.TB) (server, client *net.TCPConn) {
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

// What a wait for the other end may end with.
var endsOfWaits = map[string]struct {
	end  func(server, client *net.TCPConn) error
	want func(error) bool
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

// lending is a pool that knows what of it is lent.
type lending struct {
	lent int
	all  []int
}

func (p *lending) Get(n int) *[]byte {
	p.lent++
	p.all = append(p.all, n)
	data := make([]byte, n)
	return &data
}

func (p *lending) Put(*[]byte) { p.lent-- }

// Memory is lent once something has come, and for nothing else.
func TestMemoryIsBorrowedForWhatHasCome(t *testing.T) {
	for name, test := range endsOfWaits {
		t.Run(name, func(t *testing.T) {
			server, client := tcpPair(t)
			c := new(Server).newHTTP2Conn(server, new(connection), newReadyReader(rawconn.New(server)), []byte("a"))
			pool := new(lending)
			var said strings.Builder
			read := func() error {
				data, n, err := c.ReadOnReady(5, pool)
				if err != nil {
					assert.Nil(t, data)
					return err
				}
				assert.Equal(t, 1, pool.lent)
				said.Write((*data)[:n])
				pool.Put(data)
				return nil
			}
			_, err := io.WriteString(client, "bcdefghij")
			require.NoError(t, err)
			for said.Len() < 10 {
				require.NoError(t, read())
			}
			assert.Equal(t, "abcdefghij", said.String())
			if test.end == nil {
				require.NoError(t, client.Close())
				assert.True(t, test.want(read()))
				return
			}
			waits := make(chan error, 1)
			go func() { waits <- read() }()
			require.NoError(t, test.end(server, client))
			err = <-waits
			assert.True(t, test.want(err), "%v", err)
			assert.Zero(t, pool.lent)
		})
	}
}

// What is no socket is read as ever, since nothing else is to be had.
func TestMemoryIsHeldWhereThereIsNoSocket(t *testing.T) {
	server, client := net.Pipe()
	require.Nil(t, newReadyReader(rawconn.New(server)))
	c := new(Server).newHTTP2Conn(server, new(connection), newReadyReader(rawconn.New(server)), nil)
	said := make(chan error, 1)
	go func() {
		_, err := io.WriteString(client, "abc")
		said <- errors.Join(err, client.Close())
	}()
	pool := new(lending)
	data, n, err := c.ReadOnReady(10, pool)
	require.NoError(t, err)
	assert.Equal(t, "abc", string((*data)[:n]))
	pool.Put(data)
	_, _, err = c.ReadOnReady(10, pool)
	require.ErrorIs(t, err, io.EOF)
	assert.Zero(t, pool.lent)
	require.NoError(t, <-said)
	require.NoError(t, server.Close())
}

// gRPC reads a connection of a server so: this is what it looks for.
var _ interface {
	ReadOnReady(int, mem.BufferPool) (*[]byte, int, error)
} = (*http2Conn)(nil)

// The option leaves connections to package net.
func TestNetOnlyHasNoSockets(t *testing.T) {
	conn, _ := tcpPair(t)
	require.NotNil(t, newServer(limitsOnly{}, Options{}, defaultLifetimes).socketOf(conn))
	require.Nil(t, newServer(limitsOnly{}, Options{NetOnly: true}, defaultLifetimes).socketOf(conn))
}
