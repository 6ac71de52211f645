package grpcapi

import (
	"errors"
	"sync"
	"time"

	"github.com/kvd-db/kvd/internal/memory"
)

// unreadShare: the answers to unary calls of one connection that the transport has not
// written may hold a quarter of the account, and those of a peer other than this machine
// twice as much. Beyond that further calls are refused.
const unreadShare = 4

// loan is the memory of an answer by gRPC that the transport has not written. It implements
// frame.Lender.
//
// gRPC keeps the answer to a unary call for as long as its connection lasts, whatever becomes
// of the call. So a connection on which one is left for as long as a default deadline is
// ended. When a connection ends gRPC does not tell what becomes of the answers that it has
// queued for its streams, so all loans are given back then.
type loan struct {
	memory *memory.Account
	conn   *connection
	bytes  int64
	expire *time.Timer // nil but of a unary call
}

// loans of a connection of gRPC.
type loans struct {
	sync.Mutex
	all   map[*loan]struct{}
	ended bool // the connection has ended
}

var errUnread = errors.New("answers on this connection are not read; read them sooner, or ask for less at once")

// lend notes that an answer of a stream has so many bytes of the memory.
func (a *api) lend(conn *connection, bytes int64) *loan {
	l := &loan{memory: a.server.Memory(), conn: conn, bytes: bytes}
	conn.loans.add(l)
	return l
}

// lendUnary is lend for the answer to a unary call.
func (a *api) lendUnary(conn *connection, bytes int64) *loan {
	l := &loan{memory: a.server.Memory(), conn: conn, bytes: bytes}
	l.expire = time.AfterFunc(a.server.Options().Deadline, func() { conn.endWith(errUnread) })
	conn.unread.Add(bytes)
	conn.peer.unread.Add(bytes)
	conn.loans.add(l)
	return l
}

// Give implements frame.Lender: the transport has written the answer, or dropped it.
func (l *loan) Give(int64) {
	if l.conn.loans.remove(l) {
		l.end()
	}
}

func (l *loan) end() {
	if l.expire != nil {
		l.expire.Stop()
		l.conn.unread.Add(-l.bytes)
		l.conn.peer.unread.Add(-l.bytes)
	}
	l.memory.Give(l.bytes)
}

func (a *loans) add(l *loan) {
	a.Lock()
	defer a.Unlock()
	if a.ended {
		l.end()
		return
	}
	if a.all == nil {
		a.all = make(map[*loan]struct{})
	}
	a.all[l] = struct{}{}
}

// remove reports whether the loan was there.
func (a *loans) remove(l *loan) bool {
	a.Lock()
	defer a.Unlock()
	_, found := a.all[l]
	delete(a.all, l)
	return found
}

// end gives all back.
func (a *loans) end() {
	a.Lock()
	defer a.Unlock()
	a.ended = true
	for l := range a.all {
		l.end()
	}
	a.all = nil
}

// readsAnswers reports whether a connection, and its peer, read what they are sent.
func (a *api) readsAnswers(c *connection) bool {
	limit := a.server.Memory().Limit() / unreadShare
	return c.unread.Load() <= limit && (c.peer.loopback || c.peer.unread.Load() <= 2*limit)
}
