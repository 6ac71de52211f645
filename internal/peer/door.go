package peer

import (
	"errors"
	"net"
	"sync"
)

// errRoom is why a connection was closed.
var errRoom = errors.New("it has not said that it is a member, and makes room for a newer connection")

// door is the listener of a node. It has at most so many connections. If there are as many, a new one
// takes the place of one of a stranger, whichever: a stranger that holds connections keeps no member
// out. A connection is that of a stranger until a call by it was welcome.
type door struct {
	net.Listener
	most   int
	closed func(from string, why error) // is told of a connection that makes room

	mu    sync.Mutex
	conns map[string]*doorConn // by the address of the other side
}

type doorConn struct {
	net.Conn
	door   *door
	member bool // guarded by door.mu
}

func newDoor(l net.Listener, most int, closed func(from string, why error)) *door {
	return &door{Listener: l, most: most, closed: closed, conns: map[string]*doorConn{}}
}

// Accept implements net.Listener.
func (d *door) Accept() (net.Conn, error) {
	for {
		conn, err := d.Listener.Accept()
		if err != nil {
			return nil, err
		}
		c := &doorConn{Conn: conn, door: d}
		leaves := d.enter(c)
		if leaves != nil {
			_ = leaves.Close()
			d.closed(leaves.name(), errRoom)
		}
		if leaves != c {
			return c, nil
		}
	}
}

// enter adds a connection. It returns the one that has to leave for it, which may be itself; nil: none.
func (d *door) enter(c *doorConn) (leaves *doorConn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.conns) >= d.most {
		leaves = c
		for _, other := range d.conns { // in random order
			if !other.member {
				leaves = other
				delete(d.conns, other.name())
				break
			}
		}
	}
	if leaves != c {
		d.conns[c.name()] = c
	}
	return leaves
}

// know notes whether a call by a connection was that of a member.
func (d *door) know(address string, member bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c := d.conns[address]; c != nil {
		c.member = member
	}
}

func (c *doorConn) name() string { return c.RemoteAddr().String() }

// Close implements net.Conn.
func (c *doorConn) Close() error {
	c.door.mu.Lock()
	if c.door.conns[c.name()] == c {
		delete(c.door.conns, c.name())
	}
	c.door.mu.Unlock()
	return c.Conn.Close()
}
