package service

import (
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// queued is a listener of connections that are there already.
type queued struct {
	net.Listener
	conns []net.Conn
}

func (l *queued) Accept() (net.Conn, error) {
	conn := l.conns[0]
	l.conns = l.conns[1:]
	return conn, nil
}

// A connection that replaces the only one of its address counts there, however often.
func TestAReplacedConnectionLeavesItsPlaceInTheTable(t *testing.T) {
	s := New(limitsOnly{}, Options{PeerConnections: 1})
	from := new(queued)
	l := s.limit(from)
	var all []*acceptedConn
	for range 5 {
		near, far := net.Pipe()
		defer func() { assert.NoError(t, far.Close()) }()
		from.conns = append(from.conns, near)
		conn, err := l.Accept()
		require.NoError(t, err)
		all = append(all, conn.(*acceptedConn))
		open := 0
		for _, c := range all {
			if c.counted {
				open++
			}
		}
		p := s.peers.peers[peerOf(near)]
		require.NotNil(t, p, "%d connections are open", open)
		require.Equal(t, 1, open)
		require.Equal(t, 1, p.open)
		require.Same(t, p, conn.(*acceptedConn).peer)
	}
	for _, c := range all {
		require.NoError(t, c.Close())
	}
	assert.Empty(t, s.peers.peers)
	assert.Zero(t, s.Stats().Connections)
}

// A peer that was forgotten does not take the place of its successor away.
func TestAForgottenPeerIsForgottenOnce(t *testing.T) {
	table := peerTable{peers: make(map[string]*Peer)}
	old := table.getLocked("10.0.0.1")
	table.leftLocked(old)
	next := table.getLocked("10.0.0.1")
	next.open++
	table.leftLocked(old)
	assert.Same(t, next, table.peers["10.0.0.1"])
}
