package torture

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"

	"github.com/kvd-db/kvd/internal/testwait"
	peerpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/peer/v1"
)

// door is the address of a node for the other ones. It is there before the node listens, and stays
// when that starts again. The Hello in a connection says which node has made it; from then on the
// link from that node carries it.
type door struct {
	listener net.Listener
	running  sync.WaitGroup

	mu     sync.Mutex
	links  map[int]*link // by the id of the node that calls
	target string        // empty: the node has not been started
	ended  bool
	conns  map[net.Conn]struct{}
}

// newDoor returns a door to a node.
func newDoor(t *testing.T) *door {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	d := &door{listener: listener, links: map[int]*link{}, conns: map[net.Conn]struct{}{}}
	d.running.Go(d.accept)
	t.Cleanup(d.close)
	return d
}

func (d *door) close() {
	_ = d.listener.Close()
	for _, l := range d.all() {
		l.set(refuses)
	}
	d.mu.Lock()
	d.ended = true
	for c := range d.conns {
		_ = c.Close()
	}
	d.mu.Unlock()
	d.running.Wait()
}

// link returns the link from a node.
func (d *door) link(from int) *link {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.links[from]
	if l == nil {
		l = &link{changed: make(chan struct{}), conns: map[net.Conn]struct{}{}}
		d.links[from] = l
	}
	return l
}

// all returns the links from nodes that have called, or were cut off.
func (d *door) all() []*link {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Values(d.links))
}

func (d *door) addr() string { return d.listener.Addr().String() }

// leadTo makes new connections lead to an address.
func (d *door) leadTo(target string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.target = target
}

func (d *door) accept() {
	for {
		in, err := d.listener.Accept()
		if err != nil {
			return
		}
		d.running.Go(func() { d.carry(in) })
	}
}

// open notes a connection and dials the node for it.
func (d *door) open(in net.Conn) (out net.Conn, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		return nil, net.ErrClosed
	}
	if out, err = net.Dial("tcp", d.target); err != nil {
		return nil, err
	}
	d.conns[in], d.conns[out] = struct{}{}, struct{}{}
	return out, nil
}

// carry carries one connection until either side ends it.
func (d *door) carry(in net.Conn) {
	defer func() { _ = in.Close() }()
	out, err := d.open(in)
	if err != nil {
		return
	}
	c := &carried{door: d, conns: []net.Conn{in, out}}
	said, tell := io.Pipe()
	var all sync.WaitGroup
	all.Go(func() {
		c.listen(said)
		_, _ = io.Copy(io.Discard, said) // so that tell never blocks
	})
	for _, way := range [][2]io.ReadWriter{{in, out}, {out, in}} {
		all.Go(func() {
			from := io.Reader(way[0])
			if way[0] == in {
				from = io.TeeReader(in, tell)
			}
			_, _ = io.Copy(passing{way[1], c}, from)
			c.end()
			_ = tell.Close()
		})
	}
	all.Wait()
}

// carried is a connection through a door.
type carried struct {
	door  *door
	conns []net.Conn

	mu   sync.Mutex
	link *link // nil: it is not known yet
}

// listen finds out which node has made the connection.
func (c *carried) listen(said io.Reader) {
	r := bufio.NewReader(said)
	if _, err := r.Discard(len(http2.ClientPreface)); err != nil {
		return
	}
	framer := http2.NewFramer(io.Discard, r)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return
		}
		if headers, ok := frame.(*http2.MetaHeadersFrame); ok {
			if from := helloOf(headers); from != 0 {
				c.from(from)
				_, _ = io.Copy(io.Discard, r)
				return
			}
		}
	}
}

// helloOf returns the node that a call says to be from, 0 if it does not.
func helloOf(headers *http2.MetaHeadersFrame) int {
	for _, f := range headers.Fields {
		if f.Name != "kvd-hello-bin" {
			continue
		}
		b, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(f.Value, "="))
		hello := &peerpb.Hello{}
		if err == nil && proto.Unmarshal(b, hello) == nil {
			return int(hello.GetFrom())
		}
	}
	return 0
}

// from gives the connection to the link from a node.
func (c *carried) from(id int) {
	l := c.door.link(id)
	c.mu.Lock()
	c.link = l
	c.mu.Unlock()
	if !l.keep(c.conns...) {
		c.end()
	}
}

func (c *carried) end() {
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	c.door.mu.Lock()
	defer c.door.mu.Unlock()
	for _, conn := range c.conns {
		delete(c.door.conns, conn)
	}
}

// passing writes to a connection while its link carries.
type passing struct {
	io.Writer
	carried *carried
}

// Write implements io.Writer.
func (p passing) Write(b []byte) (int, error) {
	p.carried.mu.Lock()
	l := p.carried.link
	p.carried.mu.Unlock()
	if l != nil && !l.passes() {
		return 0, net.ErrClosed
	}
	return p.Writer.Write(b)
}

// link is what one node sends to another one, and the answers to that.
type link struct {
	mu      sync.Mutex
	state   linkState
	changed chan struct{} // closed when the state changes
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
		clear(l.conns)
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

// A door knows by the Hello which node calls, and its link holds or ends that connection alone.
func TestALinkHoldsAndRefuses(t *testing.T) {
	d := newDoor(t)
	server, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Close() })
	d.leadTo(server.Addr().String())
	call := func(from uint64) (near, far net.Conn) {
		near, err := net.Dial("tcp", d.addr())
		require.NoError(t, err)
		far, err = server.Accept()
		require.NoError(t, err)
		t.Cleanup(func() { _, _ = near.Close(), far.Close() })
		hello, err := proto.Marshal(&peerpb.Hello{From: from})
		require.NoError(t, err)
		var block bytes.Buffer
		require.NoError(t, hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: "kvd-hello-bin", Value: base64.RawStdEncoding.EncodeToString(hello)}))
		var sent bytes.Buffer
		sent.WriteString(http2.ClientPreface)
		require.NoError(t, http2.NewFramer(&sent, nil).WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true}))
		_, err = near.Write(sent.Bytes())
		require.NoError(t, err)
		_, err = io.CopyN(io.Discard, far, int64(sent.Len()))
		require.NoError(t, err)
		testwait.Until(t, func() bool {
			l := d.link(int(from))
			l.mu.Lock()
			defer l.mu.Unlock()
			return len(l.conns) > 0
		}, "the link has the connection")
		return near, far
	}
	send := func(near, far net.Conn, text string) {
		_, err := near.Write([]byte(text))
		require.NoError(t, err)
		if far != nil {
			read(t, far, text)
		}
	}
	one, farOne := call(1)
	two, farTwo := call(2)
	send(one, farOne, "a")
	d.link(1).set(holds)
	send(one, nil, "b")
	send(two, farTwo, "c")
	d.link(1).set(carries)
	read(t, farOne, "b")
	d.link(1).set(refuses)
	_, err = one.Read(make([]byte, 1))
	require.Error(t, err)
	send(two, farTwo, "d")
}

func read(t *testing.T, from net.Conn, want string) {
	b := make([]byte, len(want))
	_, err := io.ReadFull(from, b)
	require.NoError(t, err)
	assert.Equal(t, want, string(b))
}
