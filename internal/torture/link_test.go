package torture

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// link carries the connections from one node to another. It has an address before the node behind
// it has one, and keeps it when that node starts again.
type link struct {
	listener net.Listener
	running  sync.WaitGroup

	mu      sync.Mutex
	state   linkState
	changed chan struct{} // closed when the state changes
	target  string        // empty: the node has not been started
	conns   map[net.Conn]struct{}
}

type linkState int

const (
	carries linkState = iota
	// holds: bytes wait in the link, and arrive when it carries again.
	holds
	// refuses: connections are ended.
	refuses
)

func newLink(t *testing.T) *link {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := &link{listener: listener, changed: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	l.running.Go(l.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		l.set(refuses)
		l.running.Wait()
	})
	return l
}

func (l *link) addr() string { return l.listener.Addr().String() }

// leadTo makes new connections lead to an address.
func (l *link) leadTo(target string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.target = target
}

func (l *link) set(s linkState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = s
	close(l.changed)
	l.changed = make(chan struct{})
	if s == refuses {
		for c := range l.conns {
			_ = c.Close()
		}
	}
}

func (l *link) accept() {
	for {
		in, err := l.listener.Accept()
		if err != nil {
			return
		}
		l.running.Go(func() { l.carry(in) })
	}
}

// keep notes connections, which set closes. It reports false if they are refused.
func (l *link) keep(conns ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range conns {
		l.conns[c] = struct{}{}
	}
	return l.state != refuses
}

func (l *link) end(conns ...net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range conns {
		delete(l.conns, c)
		_ = c.Close()
	}
}

// carry carries one connection until either side ends it.
func (l *link) carry(in net.Conn) {
	defer l.end(in)
	if !l.keep(in) || !l.passes() {
		return
	}
	l.mu.Lock()
	target := l.target
	l.mu.Unlock()
	out, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer l.end(out)
	if !l.keep(out) {
		return
	}
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
		both.Go(func() {
			_, _ = io.Copy(held{way[1], l}, way[0])
			l.end(in, out)
		})
	}
	both.Wait()
}

// passes waits while the link holds. It reports false if the link refuses.
func (l *link) passes() bool {
	for {
		l.mu.Lock()
		state, changed := l.state, l.changed
		l.mu.Unlock()
		if state != holds {
			return state == carries
		}
		<-changed
	}
}

// held writes to a connection while the link carries.
type held struct {
	net.Conn
	link *link
}

// Write implements io.Writer.
func (h held) Write(p []byte) (int, error) {
	if !h.link.passes() {
		return 0, net.ErrClosed
	}
	return h.Conn.Write(p)
}

func TestALinkHoldsAndRefuses(t *testing.T) {
	l := newLink(t)
	server, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l.leadTo(server.Addr().String())
	dial := func() net.Conn {
		c, err := net.Dial("tcp", l.addr())
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	c := dial()
	far, err := server.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _, _ = far.Close(), server.Close() })
	read := func(want string) {
		b := make([]byte, len(want))
		_, err := io.ReadFull(far, b)
		require.NoError(t, err)
		assert.Equal(t, want, string(b))
	}
	send := func(text string) {
		_, err := c.Write([]byte(text))
		require.NoError(t, err)
	}
	send("a")
	read("a")
	l.set(holds)
	send("b")
	l.set(carries)
	read("b")
	l.set(refuses)
	_, err = c.Read(make([]byte, 1))
	require.Error(t, err)
	_, err = dial().Read(make([]byte, 1))
	require.Error(t, err, "a new connection ends at once")
}
