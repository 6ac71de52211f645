package grpcapi

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/mem"

	"github.com/kvd-db/kvd/internal/rawconn"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
)

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
	for name, test := range servicetest.EndsOfWaits {
		t.Run(name, func(t *testing.T) {
			server, client := servicetest.TCPPair(t)
			a := newAPI(service.New(servicetest.LimitsOnly{}, service.Options{}))
			c := a.newHTTP2Conn(testConn(a, server), newReadyReader(rawconn.New(server)))
			c.in.rest = []byte("a")
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
			if test.End == nil {
				require.NoError(t, client.Close())
				assert.True(t, test.Want(read()))
				return
			}
			waits := make(chan error, 1)
			go func() { waits <- read() }()
			require.NoError(t, test.End(server, client))
			err = <-waits
			assert.True(t, test.Want(err), "%v", err)
			assert.Zero(t, pool.lent)
		})
	}
}

// What is no socket is read as ever, since nothing else is to be had.
func TestMemoryIsHeldWhereThereIsNoSocket(t *testing.T) {
	server, client := net.Pipe()
	require.Nil(t, newReadyReader(rawconn.New(server)))
	a := newAPI(service.New(servicetest.LimitsOnly{}, service.Options{}))
	c := a.newHTTP2Conn(testConn(a, server), newReadyReader(rawconn.New(server)))
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
	conn, _ := servicetest.TCPPair(t)
	for _, netOnly := range []bool{false, true} {
		s := service.New(servicetest.LimitsOnly{}, service.Options{NetOnly: netOnly})
		require.Equal(t, netOnly, service.NewConn(s, conn).Socket() == nil)
	}
}
