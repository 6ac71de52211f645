package peer

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/kvd-db/kvd/internal/testwait"
)

// A stranger that has taken all connections keeps no member out, and no member that is there loses its
// connections to a stranger.
func TestStrangersKeepNoMemberOut(t *testing.T) {
	var r1, r2 reports
	o1, o2 := options(1), options(2)
	o1.Report, o2.Report = r1.report, r2.report
	to2 := &inbox{}
	n1, n2 := start(t, o1, &inbox{}), start(t, o2, to2)
	strangers := func() { // come until one had to make room
		before := n2.Refused()
		testwait.Until(t, func() bool {
			for range maxConns + 1 {
				c, err := net.Dial("tcp", n2.Addr())
				require.NoError(t, err)
				t.Cleanup(func() { _ = c.Close() })
			}
			return n2.Refused() > before
		})
	}
	strangers()
	testwait.Until(t, func() bool { return r2.has("makes room for a newer connection") })
	require.NoError(t, n2.SetMembers(map[uint64]string{1: n1.Addr()}))
	require.NoError(t, n1.SetMembers(map[uint64]string{2: n2.Addr()}))
	connected(t, n1, true)
	connected(t, n2, true) // the first node has refused it for the last time
	r1.mu.Lock()
	told := len(r1.events)
	r1.mu.Unlock()
	strangers()
	n1.Send([]*pb.Message{message(pb.MsgHeartbeat, 1, 2)})
	testwait.Until(t, func() bool { return len(to2.all()) == 1 })
	r1.mu.Lock()
	defer r1.mu.Unlock()
	for _, e := range r1.events[told:] {
		require.NoError(t, e.Err, "no stream has ended")
	}
}

// names returns the addresses of the connections.
func (d *door) names() (all []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name := range d.conns {
		all = append(all, name)
	}
	return all
}

// Of connections that are all those of members, the newest one is closed.
func TestADoorFullOfMembers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	closed := make(chan string, 1)
	d := newDoor(l, 1, func(from string, _ error) { closed <- from })
	t.Cleanup(func() { _ = d.Close() })
	dial := func() net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	first := dial()
	in, err := d.Accept()
	require.NoError(t, err)
	d.know(first.LocalAddr().String(), true)
	second := dial()
	accepted := make(chan net.Conn, 1)
	go func() {
		c, _ := d.Accept() // once the first one has left
		accepted <- c
	}()
	require.Equal(t, second.LocalAddr().String(), <-closed)
	require.Equal(t, []string{first.LocalAddr().String()}, d.names())
	require.NoError(t, in.Close())
	require.Empty(t, d.names())
	third := dial()
	in = <-accepted
	require.NotNil(t, in)
	require.Equal(t, third.LocalAddr().String(), in.RemoteAddr().String())
	d.know(third.LocalAddr().String(), true)
	d.know(third.LocalAddr().String(), false) // it was removed
	fourth := dial()
	go func() {
		c, _ := d.Accept()
		accepted <- c
	}()
	require.Equal(t, third.LocalAddr().String(), <-closed)
	require.Equal(t, fourth.LocalAddr().String(), (<-accepted).RemoteAddr().String())
}
