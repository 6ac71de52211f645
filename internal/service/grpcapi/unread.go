package grpcapi

import (
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/kvd-db/kvd/internal/memory"
)

// unreadShare: the answers to unary calls of one connection that the transport has not
// written may hold a quarter of the account, and those of a peer other than this machine
// twice as much. Beyond that further calls are refused.
const unreadShare = 4

// loan is the memory of an answer by gRPC that the transport has not written.
//
// gRPC keeps the answer to a unary call for as long as its connection lasts, whatever becomes
// of the call. So a connection on which one is left for as long as a default deadline is
// ended. When a connection ends gRPC does not tell what becomes of the answers that it has
// queued for its streams, so all loans are given back then.
type loan struct {
	memory *memory.Account
	conn   *connection
	bytes  int64
	since  time.Time // when the answer to a unary call was handed over; zero: of a stream

	// Guarded by the loans of conn.
	list       *loanList // that it is in; nil once it was given back
	prev, next *loan
	overdue    bool // it was there for as long as a default deadline
}

// lender is the frame.Lender of one answer.
//
// gRPC drops an answer without freeing it if the client resets the stream between gRPC's look at
// the state of the stream and its queueing of the answer. Only the garbage collector sees that such
// an answer is gone, so it gives the loan back. Nothing but the answer refers to its lender.
type lender struct {
	loan *loan
	lost runtime.Cleanup
}

func newLender(l *loan) *lender {
	of := &lender{loan: l}
	of.lost = runtime.AddCleanup(of, (*loan).giveBack, l)
	return of
}

// Give implements frame.Lender: the transport has written the answer, or freed it unwritten.
func (of *lender) Give(int64) {
	of.lost.Stop()
	of.loan.giveBack()
}

// loans of a connection of gRPC. One timer serves all answers to unary calls: it is set for
// the oldest one, and looks for the next oldest when it fires.
type loans struct {
	sync.Mutex
	unary, streams loanList
	timer          *time.Timer // nil until the first answer to a unary call
	armed          bool        // the timer is to fire
	ended          bool        // the connection has ended
}

// loanList is a list of loans, the oldest first.
type loanList struct{ first, last *loan }

var errUnread = errors.New("answers on this connection are not read; read them sooner, or ask for less at once")

// lend notes that an answer of a stream has so many bytes of the memory.
func (a *api) lend(conn *connection, bytes int64) *lender {
	l := &loan{memory: a.server.Memory(), conn: conn, bytes: bytes}
	conn.loans.add(l, 0)
	return newLender(l)
}

// lendUnary is lend for the answer to a unary call.
func (a *api) lendUnary(conn *connection, bytes int64) *lender {
	l := &loan{memory: a.server.Memory(), conn: conn, bytes: bytes, since: time.Now()}
	conn.unread.Add(bytes)
	conn.peer.unread.Add(bytes)
	conn.loans.add(l, a.server.Options().Deadline)
	return newLender(l)
}

// giveBack gives the memory back, unless that was done.
func (l *loan) giveBack() {
	if l.conn.loans.remove(l) {
		l.end()
	}
}

func (l *loan) unary() bool { return !l.since.IsZero() }

func (l *loan) end() {
	if l.unary() {
		l.conn.unread.Add(-l.bytes)
		l.conn.peer.unread.Add(-l.bytes)
	}
	l.memory.Give(l.bytes)
}

// add adds a loan. That of a unary call may be there for as long as patience: see look.
func (a *loans) add(l *loan, patience time.Duration) {
	a.Lock()
	defer a.Unlock()
	if a.ended {
		l.end()
		return
	}
	if !l.unary() {
		a.streams.push(l)
		return
	}
	a.unary.push(l)
	switch {
	case a.armed:
	case a.timer == nil:
		a.timer = time.AfterFunc(patience, func() { a.look(patience) })
	default:
		a.timer.Reset(patience)
	}
	a.armed = true
}

// verdictWait is how long a loan may be there after the collection that has it given back if its
// answer was dropped. Guessed.
const verdictWait = time.Second

// look is called when the timer fires. It ends the connection if the oldest answer was there for as
// long as patience, and still is after a collection.
func (a *loans) look(patience time.Duration) {
	a.Lock()
	oldest := a.unary.first
	if a.armed = oldest != nil && !a.ended; !a.armed {
		a.Unlock()
		return
	}
	left, judged := patience-time.Since(oldest.since), oldest.overdue
	oldest.overdue = left <= 0
	a.Unlock()
	switch {
	case left <= 0 && judged:
		oldest.conn.endWith(errUnread)
		return
	case left <= 0:
		oldest.memory.Sweep(patience / 2)
		left = verdictWait
	}
	a.Lock()
	defer a.Unlock()
	if !a.ended {
		a.timer.Reset(left)
	}
}

// remove reports whether the loan was there.
func (a *loans) remove(l *loan) bool {
	a.Lock()
	defer a.Unlock()
	if l.list == nil {
		return false
	}
	l.list.remove(l)
	return true
}

// end gives all back.
func (a *loans) end() {
	a.Lock()
	defer a.Unlock()
	a.ended = true
	if a.timer != nil {
		a.timer.Stop()
	}
	for _, list := range []*loanList{&a.unary, &a.streams} {
		for l := list.first; l != nil; l = list.first {
			list.remove(l)
			l.end()
		}
	}
}

func (list *loanList) push(l *loan) {
	l.list, l.prev = list, list.last
	if list.last != nil {
		list.last.next = l
	} else {
		list.first = l
	}
	list.last = l
}

func (list *loanList) remove(l *loan) {
	if l.prev != nil {
		l.prev.next = l.next
	} else {
		list.first = l.next
	}
	if l.next != nil {
		l.next.prev = l.prev
	} else {
		list.last = l.prev
	}
	l.list, l.prev, l.next = nil, nil, nil
}

// readsAnswers reports whether a connection, and its peer, read what they are sent.
func (a *api) readsAnswers(c *connection) bool {
	limit := a.server.Memory().Limit() / unreadShare
	return c.unread.Load() <= limit && (c.peer.loopback || c.peer.unread.Load() <= 2*limit)
}
