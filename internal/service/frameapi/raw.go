package frameapi

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/kvd-db/kvd/internal/auth"
	"github.com/kvd-db/kvd/internal/frame"
	"github.com/kvd-db/kvd/internal/rawconn"
	"github.com/kvd-db/kvd/internal/service"
)

const (
	// rawUnsentBytes is what answers may wait for the one that is being written
	// before the sender of the next one waits too.
	rawUnsentBytes = 1 << 20
	// lingerBytes is how much is read from a client that was refused, so that it gets the
	// reason before its connection is reset. Guessed.
	lingerBytes = 1 << 20
)

// rawTransport is a connection of compact frames.
type rawTransport struct {
	*frames
	conn    *service.Conn
	socket  *rawconn.Conn // nil: writing may always wait, as with TLS
	in      *input
	limit   int                // bytes of a frame
	version byte               // of the format
	room    func(ops int) bool // makeRoom
	// Of the frame that is being received: the bytes that have come and are in the memory of
	// requests, and those that makeRoom has added.
	come, decoded int64
	ctx           context.Context
	end           context.CancelCauseFunc
	closed        chan struct{} // closed when ctx has ended and conn is closed

	out struct {
		sync.Mutex
		unsent  *[]byte // to follow what is being written; of frame.Buffers
		lent    int64   // bytes of the server's memory that are given back with it
		writing bool
		broken  bool
		taken   sync.Cond // unsent was taken by the writer, the writer has ended, or all is broken
	}
}

// Serve implements service.Protocol.
//
// It uses little stack itself, since a small stack is cut to 4 KiB while the connection
// idles.
func (fs *frames) Serve(conn *service.Conn) {
	version, token, err := fs.exchangePreambles(conn)
	if err != nil {
		_ = conn.Close() // it speaks no frames, and would not understand why
		return
	}
	fs.raw.Add(1)
	fs.rawAccepted.Add(1)
	defer fs.raw.Add(-1)
	c := fs.newRawTransport(conn)
	c.version = version
	defer c.close()
	if why := conn.Refused(); why != nil {
		c.finish(why)
		return
	}
	session := conn.SignIn(token)
	caller := service.Caller{Conn: conn, Method: fs.methodPipeline.String()}
	err = fs.server.Authorize(&caller, session, service.ByKey, time.Now())
	if err == nil {
		err = fs.server.Admit(&caller)
	}
	if err != nil {
		c.finish(err)
		return
	}
	c.finish(c.serve(session))
}

var errPreamble = errors.New("not the preamble of raw frames")

// exchangePreambles reads the client's preamble and answers with the version to speak: the
// client's, or if that is newer, the server's, and the incarnation of the cluster, if the version has
// that. It returns the version, and the token that the client signs in with, if it does.
func (fs *frames) exchangePreambles(conn *service.Conn) (version byte, token string, err error) {
	var hello [frame.PreambleBytes]byte
	if _, err := io.ReadFull(conn, hello[:]); err != nil {
		return 0, "", err
	}
	version = min(frame.Version(hello), frame.VersionIncarnation)
	if version == 0 {
		return 0, "", errPreamble
	}
	greeting := []byte(frame.PreambleOf(version))
	if version >= frame.VersionIncarnation {
		greeting = frame.AppendIncarnation(greeting, fs.server.Incarnation())
	}
	if _, err := conn.Write(greeting); err != nil {
		return 0, "", err
	}
	switch version {
	case frame.VersionPlain:
	case frame.VersionSignIn:
		token, err = frame.ReadSignIn(conn)
	default:
		token, err = frame.ReadAnySignIn(conn)
	}
	return version, token, err
}

// newRawTransport returns a connection that is ready for frames. The caller closes it.
func (fs *frames) newRawTransport(conn *service.Conn) *rawTransport {
	working := fs.server.Working()
	c := &rawTransport{frames: fs, conn: conn, limit: service.MessageBytes(fs.server.Limits()), closed: make(chan struct{})}
	c.ctx, c.end = context.WithCancelCause(service.WithConn(working, conn))
	// Closing the connection ends it, whatever it waits for. That it was closed before, or
	// is broken, does not matter.
	context.AfterFunc(c.ctx, func() {
		defer close(c.closed)
		if working.Err() != nil {
			c.sayShutdown()
		}
		_ = conn.Close()
	})
	c.socket = conn.Socket()
	c.in = newInput(conn, c.socket)
	c.room = c.makeRoom
	c.out.taken.L = &c.out
	c.prepare(conn.Accepted())
	return c
}

// serve serves frames until the connection ends.
func (c *rawTransport) serve(session *auth.Session) error {
	life := &c.server.Options().Lifetimes
	p := &Pipeline{transport: c, frames: c.frames, conn: c.conn, session: session, ctx: c.ctx, age: life.ConnAge, idle: life.ConnIdle, keepsToken: c.socket != nil, calls: c.version >= frame.VersionCalls}
	c.conn.Use(&rawUser{c, p})
	return p.Run()
}

// rawUser is a connection of raw frames as what may be evicted.
type rawUser struct {
	*rawTransport
	pipeline *Pipeline
}

// InUse implements service.User.
func (u *rawUser) InUse() bool { return u.pipeline.Serving() }

// Evict implements service.User. Its writer, if there is one, does not take long.
func (u *rawUser) Evict() {
	if u.conn.SetWriteDeadline(time.Now().Add(u.server.Options().Lifetimes.ShutdownWait)) == nil {
		u.Send(&frame.Response{Refused: true, Results: []frame.Result{resultOf(service.Evicted, 0)}}, nil)
		u.awaitWritten()
	}
	u.end(service.Evicted)
}

// finish counts the end of a connection, and tells the client if it knows nothing of
// it yet.
func (c *rawTransport) finish(err error) {
	code := service.OK
	if err != nil {
		why := c.server.Failure(c.methodPipeline, err)
		code = why.Code
		if c.ctx.Err() == nil {
			c.refuse(why)
		}
	}
	c.methodPipeline.Count(code, 1)
}

// sayShutdown tells a client that a shutdown cuts its connection. A client that does not
// read does not hold that up for long.
func (c *rawTransport) sayShutdown() {
	hurry := time.AfterFunc(c.server.Options().Lifetimes.ShutdownWait, func() { _ = c.conn.Close() })
	defer hurry.Stop()
	c.Send(&frame.Response{Refused: true, Results: []frame.Result{resultOf(service.ShuttingDown, 0)}}, nil)
	c.awaitWritten()
}

// close closes the connection, if that was not done yet.
func (c *rawTransport) close() {
	c.end(context.Canceled)
	<-c.closed
	c.in.release()
}

// prepare ends the deadline of the handshake, and has the kernel notice peers that have
// vanished. If either fails the connection is broken, and reading it fails, too.
func (c *rawTransport) prepare(accepted net.Conn) {
	_ = accepted.SetDeadline(time.Time{})
	if tcp, ok := accepted.(*net.TCPConn); ok {
		const probes = 4
		life := &c.server.Options().Lifetimes
		_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{
			Enable: true, Idle: life.PingAfter, Interval: max(life.PingWait/probes, time.Second), Count: probes,
		})
	}
}

// Receive implements Transport.
func (c *rawTransport) Receive() (*frame.Request, error) {
	var waits uint64
	if c.socket != nil {
		waits = c.socket.Waits()
	}
	err := c.in.wait()
	if err == nil {
		f := NewRequest()
		f.Room, c.come, c.decoded = c.room, 0, 0
		if err = c.read(f); err == nil {
			c.rawFrames.Add(1)
			c.conn.Moved()
			if c.socket != nil && c.socket.Waits() == waits {
				yield(f.Count())
			}
			return f, nil
		}
		c.server.Memory().Give(c.decoded + f.Held)
		Free(f)
	}
	switch {
	case err == io.EOF:
		return nil, err
	case errors.Is(err, frame.ErrMalformed) || errors.Is(err, frame.ErrTooLarge):
		return nil, Malformed(err)
	}
	// The answers of what is under way have no receiver any more.
	why := endOf(err)
	c.end(why)
	return nil, why
}

// makeRoom adds what so many operations of a frame occupy to the memory of requests before they are
// decoded, and reports whether there is room for it. Pipeline.serve gives it back.
func (c *rawTransport) makeRoom(ops int) bool {
	account, bytes := c.server.Memory(), opBytes*int64(ops)
	if others := account.Used() - c.come; others > 0 && others+c.come+bytes > account.Limit() {
		c.server.Shed(service.ShedByBytes)
		return false
	}
	account.Add(bytes)
	account.Collect(bytes)
	c.decoded = bytes
	return true
}

// endOf is why a connection ended that broke: its client went away, or it stood
// still for too long.
func endOf(err error) error {
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		return context.DeadlineExceeded
	}
	return context.Canceled
}

// read reads a frame that has begun to arrive. The rest must arrive within the default
// deadline.
func (c *rawTransport) read(f *frame.Request) error {
	if frame.Arrived(c.in.buffered, c.limit) {
		return f.Read(c.in.buffered, c.limit)
	}
	if err := c.conn.SetReadDeadline(time.Now().Add(c.server.Options().Deadline)); err != nil {
		return err
	}
	if err := c.readRest(f); err != nil {
		return err
	}
	return c.conn.SetReadDeadline(time.Time{})
}

// readRest reads a frame of which a part is there. Its memory grows with what arrives. If
// the frame is evicted from the waits its bytes are discarded.
func (c *rawTransport) readRest(f *frame.Request) error {
	waits := c.server.CallWaits()
	var reading sync.Mutex
	over := false // guarded by reading
	one := &service.Wait{Conn: c.conn, Evict: func() {
		reading.Lock()
		defer reading.Unlock()
		if !over {
			_ = c.conn.SetReadDeadline(time.Unix(1, 0)) // if that fails it is closed, and read no more
		}
	}}
	in := waits.Begin(one)
	left, err := f.ReadGrowing(c.in.buffered, c.limit, func(bytes int) bool {
		in = in && waits.Grow(one, bytes)
		c.come += int64(bytes)
		if in {
			c.server.Memory().Collect(int64(bytes))
		}
		return in
	})
	if err == nil && left == 0 {
		f.Held = c.handOver(one)
	} else {
		waits.End(one)
	}
	reading.Lock()
	over = true
	reading.Unlock()
	if err != nil || left == 0 {
		return err
	}
	c.server.Shed(service.ShedByWait)
	if err := c.conn.SetReadDeadline(time.Now().Add(c.server.Options().Deadline)); err != nil {
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

// handOver ends the wait for a frame that has come, and returns what is reserved for it from now on.
// A frame that was to be discarded when its last byte had come is kept.
func (c *rawTransport) handOver(one *service.Wait) int64 {
	held, in := c.server.CallWaits().HandOver(one)
	if !in {
		held = c.come
		c.server.Memory().Add(held)
	}
	return held
}

// Send implements Transport. Responses that are sent during a write go out with the next
// write.
func (c *rawTransport) Send(r *frame.Response, t *ReceiveToken) {
	pool := frame.Buffers
	b := pool.Get(r.SizeBound())
	*b = r.AppendCompact((*b)[:0])
	if err := c.write(b, r.Lent, t); err != nil {
		c.end(err)
	}
}

// write writes what it is given, which goes back to the pool, or leaves it to
// the goroutine that is writing. The token is passed on before it waits. Bytes that were lent for
// it are given back when it is written.
func (c *rawTransport) write(b *[]byte, lent int64, t *ReceiveToken) error {
	pool, memory := frame.Buffers, c.server.Memory()
	c.out.Lock()
	defer c.out.Unlock()
	for c.out.writing && !c.out.broken && !c.roomLocked(int64(len(*b)), &lent) {
		t.Pass()
		c.out.taken.Wait()
	}
	if c.out.broken {
		pool.Put(b)
		memory.Give(lent)
		return nil // the goroutine that found that has said so
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
func (c *rawTransport) awaitWritten() {
	c.out.Lock()
	defer c.out.Unlock()
	for c.out.writing && !c.out.broken {
		c.out.taken.Wait()
	}
}

// roomLocked reports whether an answer may wait for the one that is being written, and
// takes memory for that unless some was lent for it. One may always.
func (c *rawTransport) roomLocked(bytes int64, lent *int64) bool {
	memory := c.server.Memory()
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

// leaveLocked leaves an answer to the goroutine that is writing.
func (c *rawTransport) leaveLocked(b *[]byte) {
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
func (c *rawTransport) writeNow(b []byte, t *ReceiveToken) error {
	if c.socket != nil {
		n, err := c.socket.WriteSome(b)
		if err != nil {
			return endOf(err)
		}
		if b = b[n:]; len(b) == 0 {
			return nil
		}
	}
	t.Pass()
	err := c.conn.SetWriteDeadline(time.Now().Add(c.server.Options().Deadline))
	if err == nil {
		_, err = c.conn.Write(b)
	}
	if err == nil {
		err = c.conn.SetWriteDeadline(time.Time{}) // that of a later write could have passed
	}
	if err != nil {
		return endOf(err)
	}
	return nil
}

// Kill implements Transport.
func (c *rawTransport) Kill(why error) { c.end(why) }

// refuse tells the client why its connection ends. A connection that is closed with unread
// bytes is reset, and the client may then never get the answer. So what the client still
// sends is read for a moment.
func (c *rawTransport) refuse(why *service.Error) {
	c.Send(&frame.Response{Refused: true, Results: []frame.Result{resultOf(why, 0)}}, nil)
	if c.conn.SetReadDeadline(time.Now().Add(c.server.Options().Lifetimes.ShutdownWait)) != nil {
		return
	}
	_, _ = io.CopyN(io.Discard, c.conn, lingerBytes) // all that counts is that it ended
}
