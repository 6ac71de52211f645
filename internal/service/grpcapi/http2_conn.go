package grpcapi

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/mem"

	"github.com/kvd-db/kvd/internal/service"
)

// http2Conn is a connection as gRPC reads and writes it. It follows the headers of the
// frames in both directions, for what gRPC does not tell: which stream a call is, how much
// of its request has come, and what a client sends that makes work and asks for nothing.
//
// Each read ends after a frame of headers. gRPC asks for more only once it has handled what
// it has, so it calls [api.admit] for the stream of the last frame of headers.
type http2Conn struct {
	net.Conn
	api   *api
	of    *connection
	ready *readyReader // of a socket; else nil

	in struct { // of the one goroutine that reads
		walk    h2Walk
		headers bool // within a frame of headers
		payload payload
		news    []*call // to be woken once gRPC has handled the frames that it was given
		rest    []byte  // was read from the connection, but not by gRPC
		last    uint32  // stream that was opened
		ended   error
		idle    service.Allowance
		credit  uint64 // bytes that were sent or came, and are counted in idle
		data    uint64 // bytes that came
		replies uint64 // of the field below, those that are counted in idle
	}
	sent    atomic.Uint64 // bytes
	replies atomic.Uint64 // control frames by which a client may answer the frames that were sent

	out struct {
		sync.Mutex
		walk     h2Walk
		farewell []byte // to be sent at the end of the frame that is being sent
		ended    bool   // it was: nothing is sent any more
	}
}

// newHTTP2Conn follows a connection. It takes what was peeked of it.
func (a *api) newHTTP2Conn(of *connection, ready *readyReader) *http2Conn {
	c := &http2Conn{Conn: of.Conn, api: a, of: of, ready: ready}
	c.in.walk.skip = h2PrefaceBytes
	c.in.rest = of.Peeked()
	return c
}

// SetDeadline implements net.Conn. gRPC sets a deadline for its handshake, which is the
// rest of that of the server.
func (c *http2Conn) SetDeadline(t time.Time) error {
	if ends := c.of.HandshakeEnds(); !ends.IsZero() && t.After(ends) {
		t = ends
	}
	return c.Conn.SetDeadline(t)
}

// Read implements net.Conn.
func (c *http2Conn) Read(p []byte) (n int, err error) {
	c.wakeCalls()
	if len(c.in.rest) > 0 {
		return c.takeRest(p), nil
	}
	if c.in.ended != nil {
		return 0, c.in.ended
	}
	if n, err = c.Conn.Read(p); n > 0 {
		return c.take(p[:n])
	}
	return n, err
}

// ReadOnReady waits until something comes, and returns memory of the pool with it, so that
// a connection that idles holds none. gRPC reads so where it can.
func (c *http2Conn) ReadOnReady(size int, pool mem.BufferPool) (data *[]byte, n int, err error) {
	if c.ready != nil && len(c.in.rest) == 0 && c.in.ended == nil {
		c.wakeCalls()
		if data, n, err = c.ready.read(size, pool); err != nil {
			return nil, 0, err
		}
		n, err = c.take((*data)[:n])
	} else {
		data = pool.Get(size)
		n, err = c.Read(*data)
	}
	if err != nil {
		pool.Put(data)
		return nil, 0, err
	}
	return data, n, nil
}

// take follows what was read and returns how much of it gRPC gets now; the rest is kept.
func (c *http2Conn) take(b []byte) (n int, err error) {
	c.of.Moved()
	n = c.follow(b)
	if c.in.ended != nil {
		c.sayFarewell()
		return 0, c.in.ended
	}
	if n < len(b) {
		c.in.rest = bytes.Clone(b[n:])
	}
	return n, nil
}

// takeRest is take for what was kept.
func (c *http2Conn) takeRest(p []byte) (n int) {
	rest := c.in.rest[:min(len(c.in.rest), len(p))]
	n = copy(p, rest[:c.follow(rest)])
	if c.in.rest = c.in.rest[n:]; len(c.in.rest) == 0 || c.in.ended != nil {
		c.in.rest = nil // no memory is held while nothing comes
	}
	if c.in.ended != nil {
		c.sayFarewell()
	}
	return n
}

// follow looks at the frames in b up to the end of one of headers.
func (c *http2Conn) follow(b []byte) (n int) {
	for n < len(b) && c.in.ended == nil {
		part, frame, whole := c.in.walk.step(b[n:])
		if whole {
			c.heard(&frame)
		} else {
			c.in.payload.take(b[n : n+part])
		}
		n += part
		if c.in.walk.skip == 0 && c.in.payload.call != nil {
			c.endData()
		}
		if c.in.headers && c.in.walk.skip == 0 {
			c.in.headers = false
			return n
		}
	}
	return n
}

// heard handles the header of each frame of the client.
func (c *http2Conn) heard(f *h2Frame) {
	switch f.kind {
	case h2Headers:
		one, ok := c.of.opened(f.stream, f.flags&h2EndStream != 0)
		if !ok {
			c.in.ended = errFarewell
			return
		}
		c.in.headers, c.in.last = true, max(c.in.last, f.stream)
		if one != nil {
			one.here.Store(true)
			c.in.news = append(c.in.news, one)
		}
		if c.of.Flooded() {
			c.in.ended = &floodError{"streams that were reset"}
		}
		return
	case h2Data:
		if f.length > 0 {
			c.in.data += uint64(f.length)
		}
		if one := c.of.arrived(f.stream, f.length); one != nil {
			c.in.payload = payload{call: one, left: f.length, padded: f.flags&h2Padded != 0, last: f.flags&h2EndStream != 0}
		}
		if f.length > 0 || f.flags&h2EndStream != 0 {
			return
		}
	case h2ResetStream:
		if c.of.Waste() {
			c.in.ended = &floodError{"streams that were reset"}
		}
		return
	case h2Continuation:
		c.in.headers = true
	}
	if !c.mayIdle(time.Now()) {
		c.in.ended = &floodError{"frames that ask for nothing"}
	}
}

// payload is the data of the frame that is being read, which is part of a request.
type payload struct {
	call   *call // nil: none is
	left   int   // bytes to come, of which the last are padding if the first one says so
	pad    int
	padded bool // the first byte is to come
	last   bool
}

func (p *payload) take(b []byte) {
	if p.call == nil {
		return
	}
	if p.padded && len(b) > 0 {
		p.pad, p.padded = int(b[0]), false
		b, p.left = b[1:], p.left-1
	}
	data := min(len(b), max(p.left-p.pad, 0))
	p.left -= len(b)
	p.call.follow(b[:data])
}

// endData ends a frame of data.
func (c *http2Conn) endData() {
	one, last := c.in.payload.call, c.in.payload.last
	c.in.payload = payload{}
	if one.endData(last) {
		c.in.news = append(c.in.news, one)
	}
}

// wakeCalls wakes the handlers of calls that have something to do, now that gRPC has
// handled what it has.
func (c *http2Conn) wakeCalls() {
	for i, one := range c.in.news {
		one.wake()
		c.in.news[i] = nil
	}
	c.in.news = c.in.news[:0]
}

// lingerBytes is how much is read from a client that was refused, so that it gets the reason
// before its connection is reset. Guessed.
const lingerBytes = 1 << 20

const (
	// idleFrames bound what a client sends beside calls, such as settings, pings and
	// updates of windows: so many at once, and so many a second. Guessed: a hundred times
	// what clients need.
	idleFrames     = 10_000
	idleFramesRate = 1_000
	// bytesPerIdleFrame is how much has to be sent or received for one more: some clients
	// update a window for each of their reads.
	bytesPerIdleFrame = 256
	// repliesPerData is how many more each frame of data that was sent allows: gRPC clients
	// answer one, however small, with updates of the stream's and the connection's window
	// and a ping that measures the bandwidth.
	repliesPerData = 3
)

// replies is the number of control frames by which a client may answer a frame. Pings and
// settings are acknowledged; an acknowledgement of the server's earns nothing, or a flood
// of pings would pay for itself.
func (f *h2Frame) replies() uint64 {
	switch {
	case f.kind == h2Data && f.length > 0:
		return repliesPerData
	case (f.kind == h2Ping || f.kind == h2Settings) && f.flags&h2Ack == 0:
		return 1
	}
	return 0
}

// mayIdle counts a frame that requests nothing and reports whether that is allowed.
func (c *http2Conn) mayIdle(now time.Time) bool {
	moved, replies := c.sent.Load()+c.in.data, c.replies.Load()
	c.in.idle.Give(float64(moved-c.in.credit)/bytesPerIdleFrame + float64(replies-c.in.replies))
	c.in.credit, c.in.replies = moved, replies
	return c.in.idle.Take(1, idleFramesRate, now) <= idleFrames
}

// Write implements net.Conn.
func (c *http2Conn) Write(b []byte) (n int, err error) {
	c.out.Lock()
	defer c.out.Unlock()
	if c.out.ended {
		return len(b), nil // gRPC is told when it reads
	}
	whole := b
	replies := uint64(0)
	for at := 0; at < len(b); {
		part, frame, header := c.out.walk.step(b[at:])
		at += part
		if header {
			replies += frame.replies()
		}
		if header && frame.kind == h2ResetStream && len(b)-at >= 4 && h2Error(binary.BigEndian.Uint32(b[at:])).clientsFault() {
			c.of.Waste() // what comes of it is seen when the next stream is opened
		}
		if c.out.farewell != nil && c.out.walk.between() {
			whole, c.out.ended = append(bytes.Clone(b[:at]), c.out.farewell...), true
			break
		}
	}
	c.replies.Add(replies) // before they can be answered
	if _, err = c.Conn.Write(whole); err != nil {
		return 0, err
	}
	c.sent.Add(uint64(len(b)))
	return len(b), nil
}

// errFarewell ends the reading at a stream that endWith tells the client is not processed.
var errFarewell = errors.New("the connection ends")

// sayFarewell tells the client why the connection ends, unless endWith does. A connection that
// is closed with unread bytes is reset, and the client may then never get the message. So what
// the client still sends is read for a moment.
func (c *http2Conn) sayFarewell() {
	if c.in.ended == errFarewell || c.tellFlood() {
		_, _ = io.CopyN(io.Discard, c.Conn, lingerBytes) // all that counts is that it ended
	}
}

// tellFlood tells the client that it makes work and asks for nothing. It returns false if the
// connection is broken.
func (c *http2Conn) tellFlood() bool {
	c.api.server.Shed(service.ShedByFlood)
	wait := c.api.server.Options().Lifetimes.ShutdownWait
	if c.Conn.SetDeadline(time.Now().Add(wait)) != nil {
		return false
	}
	farewell := appendGoAway(nil, c.in.last, h2EnhanceYourCalm, c.in.ended.Error())
	c.out.Lock()
	if !c.writeLastLocked(farewell) {
		c.out.farewell = farewell
	}
	c.out.Unlock()
	return true
}

// writeLastLocked writes the last frame of the connection, unless another frame is being
// sent or the last one was, and reports whether it did. The connection ends in any case, so
// an error of the write does not count.
func (c *http2Conn) writeLastLocked(frame []byte) bool {
	if !c.out.walk.between() || c.out.ended {
		return false
	}
	c.out.ended = true
	_, _ = c.Conn.Write(frame)
	return true
}

// InUse implements service.User.
func (c *http2Conn) InUse() bool { return c.of.busy() }

// Evict implements service.User.
func (c *http2Conn) Evict() { c.endWith(h2NoError, service.Evicted.Message) }

// endWith tells the client why its connection ends, and ends it. It may take a second. The
// client may repeat a call above the last stream that it is told, so none is passed to gRPC.
func (c *http2Conn) endWith(code h2Error, why string) {
	last := c.of.closeStreams()
	if c.Conn.SetWriteDeadline(time.Now().Add(c.api.server.Options().Lifetimes.ShutdownWait)) == nil {
		c.out.Lock()
		c.writeLastLocked(appendGoAway(nil, last, code, why))
		c.out.Unlock()
	}
	_ = c.Close()
}

// Close implements net.Conn.
func (c *http2Conn) Close() error {
	defer c.of.loans.end()
	return c.Conn.Close()
}
