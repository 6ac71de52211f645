package service

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"

	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/rawconn"
)

const (
	// lengthBytes is the least that the size of a frame is known by.
	lengthBytes = 4
	// rawUnsentBytes is what answers may wait for the one that is being written
	// before whoever has the next one waits too.
	rawUnsentBytes = 1 << 20
	// lingerBytes is what is read of a client that was refused, so that it hears
	// why before its connection is reset. Guessed.
	lingerBytes = 1 << 20
)

// rawCarriage is a connection of compact frames, without gRPC.
type rawCarriage struct {
	server *Server
	of     *connection
	conn   net.Conn
	// accepted is what conn was before its handshake; nil in a test.
	accepted *countedConn
	socket   *rawconn.Conn // nil: writing may always wait, as with TLS
	in       *input
	limit    int // bytes of a frame
	ctx      context.Context
	end      context.CancelCauseFunc
	closed   chan struct{} // closed when ctx has ended and conn is closed

	out struct {
		sync.Mutex
		unsent  *[]byte // behind what is being written; of frame.Buffers
		lent    int64   // bytes of the server's memory that are given back with it
		writing bool
		broken  bool
		taken   sync.Cond // unsent was taken by the writer, the writer has ended, or all is broken
	}
}

// serveRaw serves a connection behind its preambles until it ends. accepted is what
// it was before its handshake.
//
// What is set up is set up elsewhere: a stack as small as this one is cut to 4 KiB
// while the connection idles.
func (s *Server) serveRaw(conn net.Conn, accepted *countedConn) {
	s.counters.raw.Add(1)
	s.counters.rawAccepted.Add(1)
	defer s.counters.raw.Add(-1)
	c := s.newRawCarriage(conn, accepted)
	defer c.close()
	if reason := s.refusedFor(accepted); reason != noReason {
		c.finish(refusedConnection(reason))
		return
	}
	c.finish(c.serve())
}

// newRawCarriage returns a connection that is ready for frames. The caller closes it.
func (s *Server) newRawCarriage(conn net.Conn, accepted *countedConn) *rawCarriage {
	c := &rawCarriage{server: s, conn: conn, limit: MessageBytes(s.limits), closed: make(chan struct{})}
	c.of, c.accepted = newConnection(accepted.peer), accepted
	c.ctx, c.end = context.WithCancelCause(peer.NewContext(s.working, &peer.Peer{Addr: conn.RemoteAddr(), AuthInfo: c.of}))
	// To close it is what ends a connection, whatever it waits for. That it was
	// closed before, or is broken, is no news.
	context.AfterFunc(c.ctx, func() {
		defer close(c.closed)
		c.of.closed.Store(true)
		if s.working.Err() != nil {
			c.sayShutdown()
		}
		_ = conn.Close()
	})
	if s.options.TLS == nil {
		c.socket = s.socketOf(accepted.Conn)
	}
	c.in = newInput(conn, c.socket)
	c.out.taken.L = &c.out
	c.prepare(accepted.Conn)
	return c
}

// socketOf returns nil if a connection is to be read and written by its own methods.
func (s *Server) socketOf(conn net.Conn) *rawconn.Conn {
	if s.options.NetOnly {
		return nil
	}
	return rawconn.New(conn)
}

// serve serves frames until the connection ends.
func (c *rawCarriage) serve() error {
	life := &c.server.lifetimes
	p := &pipeline{carriage: c, server: c.server, ctx: c.ctx, age: life.connAge, idle: life.connIdle, keepsTurn: c.socket != nil}
	c.accepted.use(&rawUser{c, p})
	return p.run()
}

// rawUser is a connection of raw frames as what may be evicted.
type rawUser struct {
	*rawCarriage
	pipeline *pipeline
}

// inUse implements connUser.
func (u *rawUser) inUse() bool { return u.pipeline.serving.Load() > 0 }

// evict implements connUser. Its writer, if there is one, does not take long.
func (u *rawUser) evict() {
	if u.conn.SetWriteDeadline(time.Now().Add(u.server.lifetimes.shutdownWait)) == nil {
		u.send(&frame.Response{Refused: true, Results: []frame.Result{evicted.result(0)}}, nil)
		u.awaitWritten()
	}
	u.end(evicted)
}

// finish counts the end of a connection, and tells the client if it knows nothing of
// it yet.
func (c *rawCarriage) finish(err error) {
	code := codes.OK
	if err != nil {
		why := c.server.failure(methodPipeline, err)
		code = why.code
		if c.ctx.Err() == nil {
			c.refuse(why)
		}
	}
	c.server.counters.request(methodPipeline, code, 1)
}

// sayShutdown tells a client that a shutdown cuts its connection. A client that does not
// read does not hold that up for long.
func (c *rawCarriage) sayShutdown() {
	hurry := time.AfterFunc(c.server.lifetimes.shutdownWait, func() { _ = c.conn.Close() })
	defer hurry.Stop()
	c.send(&frame.Response{Refused: true, Results: []frame.Result{shuttingDown.result(0)}}, nil)
	c.awaitWritten()
}

// close closes the connection, if that was not done yet.
func (c *rawCarriage) close() {
	c.end(context.Canceled)
	<-c.closed
	c.in.release()
}

// prepare ends the deadline of the handshake, and has the kernel look after peers
// that have gone without a word. If one of that fails the connection is broken,
// which reading it tells.
func (c *rawCarriage) prepare(accepted net.Conn) {
	_ = accepted.SetDeadline(time.Time{})
	if tcp, ok := accepted.(*net.TCPConn); ok {
		const probes = 4
		life := c.server.lifetimes
		_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{
			Enable: true, Idle: life.pingAfter, Interval: max(life.pingWait/probes, time.Second), Count: probes,
		})
	}
}

// receive implements carriage.
func (c *rawCarriage) receive() (*frame.Request, error) {
	var waits uint64
	if c.socket != nil {
		waits = c.socket.Waits()
	}
	err := c.in.wait()
	if err == nil {
		f := requests.Get().(*frame.Request)
		if err = c.read(f); err == nil {
			c.server.counters.rawFrames.Add(1)
			if c.accepted != nil {
				c.accepted.moves.Add(1)
			}
			if c.socket != nil && c.socket.Waits() == waits {
				yield(len(f.Ops))
			}
			return f, nil
		}
		giveBack(f)
	}
	switch {
	case err == io.EOF:
		return nil, err
	case errors.Is(err, frame.ErrMalformed) || errors.Is(err, frame.ErrTooLarge):
		return nil, malformed(err)
	}
	// Nobody waits any more for what is under way.
	why := endOf(err)
	c.end(why)
	return nil, why
}

// endOf is why a connection ended that broke: its client went away, or it stood
// still for too long.
func endOf(err error) error {
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return context.DeadlineExceeded
	}
	return context.Canceled
}

// read reads a frame that has begun to come. It has as long for that as a call without
// a deadline.
func (c *rawCarriage) read(f *frame.Request) error {
	if c.whole() {
		return f.Read(c.in.buffered, c.limit)
	}
	if err := c.conn.SetReadDeadline(time.Now().Add(c.server.options.Deadline)); err != nil {
		return err
	}
	if err := c.readRest(f); err != nil {
		return err
	}
	return c.conn.SetReadDeadline(time.Time{})
}

// whole reports whether all of the next frame is there, or enough to see that it
// is none.
func (c *rawCarriage) whole() bool {
	start, _ := c.in.buffered.Peek(c.in.buffered.Buffered()) // never an error
	if len(start) < lengthBytes {
		return false
	}
	n, err := frame.FrameLength(start, c.limit)
	return err != nil || n <= len(start)
}

// readRest reads a frame of which a part is there. Its memory grows with what comes. If
// others need that more it is discarded.
func (c *rawCarriage) readRest(f *frame.Request) error {
	waits := c.server.waits[waitForCalls]
	var reading sync.Mutex
	over := false // guarded by reading
	one := &wait{conn: c.of, evict: func() {
		reading.Lock()
		defer reading.Unlock()
		if !over {
			_ = c.conn.SetReadDeadline(time.Unix(1, 0)) // if that fails it is closed, and read no more
		}
	}}
	in := waits.begin(one)
	left, err := f.ReadGrowing(c.in.buffered, c.limit, func(bytes int) bool {
		in = in && waits.grow(one, bytes)
		return in
	})
	waits.end(one)
	reading.Lock()
	over = true
	reading.Unlock()
	if f.Discarded {
		c.server.counters.shed(shedByWait)
	}
	if err != nil || !f.Discarded {
		return err
	}
	if err := c.conn.SetReadDeadline(time.Now().Add(c.server.options.Deadline)); err != nil {
		return err
	}
	if _, err := c.in.buffered.Discard(left); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	return nil
}

// send implements carriage. What others have to send while one writes goes out
// with that one's next write.
func (c *rawCarriage) send(r *frame.Response, t *turn) {
	pool := frame.Buffers
	b := pool.Get(r.SizeBound())
	*b = r.AppendCompact((*b)[:0])
	if err := c.write(b, r.Lent, t); err != nil {
		c.end(err)
	}
}

// write writes what it is given, which goes back to the pool, or leaves it to
// whoever is writing. The turn is passed on before it waits. Bytes that were lent for
// it are given back when it is written.
func (c *rawCarriage) write(b *[]byte, lent int64, t *turn) error {
	pool, memory := frame.Buffers, c.server.memory
	c.out.Lock()
	defer c.out.Unlock()
	for c.out.writing && !c.out.broken && !c.roomLocked(int64(len(*b)), &lent) {
		t.pass()
		c.out.taken.Wait()
	}
	if c.out.broken {
		pool.Put(b)
		memory.Give(lent)
		return nil // whoever found that has said so
	}
	if c.out.writing {
		c.out.lent += lent
		c.leaveLocked(b)
		return nil
	}
	c.out.writing = true
	defer func() {
		c.out.writing = false
		c.out.taken.Broadcast()
	}()
	for b != nil {
		c.out.Unlock()
		err := c.writeNow(*b, t)
		pool.Put(b)
		memory.Give(lent)
		c.out.Lock()
		b, lent = c.out.unsent, c.out.lent
		c.out.unsent, c.out.lent = nil, 0
		if err != nil {
			memory.Give(lent)
			c.out.broken = true
			c.out.taken.Broadcast()
			return err
		}
		if b != nil {
			c.out.taken.Broadcast()
		}
	}
	return nil
}

// awaitWritten returns once everything that was sent is written or cannot be.
func (c *rawCarriage) awaitWritten() {
	c.out.Lock()
	defer c.out.Unlock()
	for c.out.writing && !c.out.broken {
		c.out.taken.Wait()
	}
}

// roomLocked reports whether an answer may wait for the one that is being written, and
// takes memory for that unless some was lent for it. One may always.
func (c *rawCarriage) roomLocked(bytes int64, lent *int64) bool {
	memory := c.server.memory
	if c.out.unsent != nil && (len(*c.out.unsent) >= rawUnsentBytes || *lent == 0 && !memory.Take(bytes, 0)) {
		return false
	}
	if *lent == 0 {
		if c.out.unsent == nil {
			memory.Add(bytes)
		}
		*lent = bytes
	}
	return true
}

// leaveLocked leaves an answer to the one who writes.
func (c *rawCarriage) leaveLocked(b *[]byte) {
	pool := frame.Buffers
	if c.out.unsent == nil {
		c.out.unsent = b
		return
	}
	all := c.out.unsent
	if cap(*all)-len(*all) < len(*b) {
		more := pool.Get(2*len(*all) + len(*b))
		*more = append((*more)[:0], *all...)
		pool.Put(all)
		all = more
	}
	*all = append(*all, *b...)
	pool.Put(b)
	c.out.unsent = all
}

// writeNow writes all of b, what does not wait first.
func (c *rawCarriage) writeNow(b []byte, t *turn) error {
	if c.socket != nil {
		n, err := c.socket.WriteSome(b)
		if err != nil {
			return endOf(err)
		}
		if b = b[n:]; len(b) == 0 {
			return nil
		}
	}
	t.pass()
	err := c.conn.SetWriteDeadline(time.Now().Add(c.server.options.Deadline))
	if err == nil {
		_, err = c.conn.Write(b)
	}
	if err == nil {
		err = c.conn.SetWriteDeadline(time.Time{}) // that of a write behind it could have passed
	}
	if err != nil {
		return endOf(err)
	}
	return nil
}

// kill implements carriage.
func (c *rawCarriage) kill(why error) { c.end(why) }

// refuse tells the client why its connection ends. A connection that is closed
// with bytes unread is reset, and the client may then never hear it, so what it
// still sends is read for a moment.
func (c *rawCarriage) refuse(why *failure) {
	c.send(&frame.Response{Refused: true, Results: []frame.Result{why.result(0)}}, nil)
	if c.conn.SetReadDeadline(time.Now().Add(c.server.lifetimes.shutdownWait)) != nil {
		return
	}
	_, _ = io.CopyN(io.Discard, c.conn, lingerBytes) // all that counts is that it ended
}
