package admission

import (
	"container/list"
	"context"
	"math/rand/v2"
	"time"
)

// A Client is the unit of fairness of a Gate: a line of work, and the credit for its turns.
// The zero value is ready, and is a peer of its own. A Client belongs to one Gate, which
// guards it, and needs no close: a Gate keeps no client without waiting work.
type Client struct {
	// Peer has several clients, which share its turns. It does not change once the client
	// is in use.
	Peer *Peer

	alone Peer          // if Peer is nil
	line  list.List     // of *waiter, by arrival
	size  Size          // of line
	turn  *list.Element // in peer.clients; nil while line is empty
	saved int           // operations that it may let in at its turn
}

// A Peer is a group of clients that takes turns with other peers at a Gate, as one however
// many clients it has. The clients take turns with each other. The zero value is ready. A
// Peer, too, belongs to one Gate.
type Peer struct {
	clients list.List     // of *Client with work in line, in the order of their turns
	size    Size          // of their lines
	turn    *list.Element // in queue.turns; nil while clients is empty
	saved   int           // operations that it may let in at its turn
}

func (c *Client) peer() *Peer {
	if c.Peer != nil {
		return c.Peer
	}
	return &c.alone
}

// peerShare is what the clients of one peer may have waiting together, as a multiple of the
// room that is left: four fifths of the bound, which leaves a fifth to other peers.
const peerShare = 4

// mayWait reports whether a client may add to its line: it may have as much in it as there
// is room left, and its peer four times as much.
func (q *queue) mayWait(c *Client, room Size) bool {
	if !c.size.below(room) {
		return false
	}
	return c.Peer == nil || c.Peer.size.below(Size{peerShare * room.Ops, peerShare * room.Bytes})
}

// waiter is a piece of work in the line of its client.
type waiter struct {
	client   *Client
	size     Size
	since    time.Time
	deadline time.Time // zero: none
	verdict  chan error
	// timer fires when the work has waited for an interval.
	timer *time.Timer

	inLine, inAge *list.Element
}

func newWaiter() *waiter {
	w := &waiter{verdict: make(chan error, 1), timer: time.NewTimer(interval)}
	w.timer.Stop()
	return w
}

func (w *waiter) begin(ctx context.Context, c *Client, s Size) {
	w.client, w.size, w.since = c, s, time.Now()
	w.deadline, _ = ctx.Deadline()
	w.timer.Reset(interval)
}

func (w *waiter) end() {
	w.timer.Stop()
	w.client = nil
}

func (w *waiter) expired(now time.Time) bool { return !w.deadline.IsZero() && !now.Before(w.deadline) }

// quantum is what a client may let in with each turn, in operations: a common frame
// of the Go client, so that most choices take one step, and a quarter of the largest.
const quantum = 256

// queue is all work that waits: a line for each client, and the order of turns.
type queue struct {
	size  Size
	turns list.List // of *Peer with work in line, in the order of their turns
	age   list.List // of *waiter, the oldest first
	delay delay
}

func (q *queue) empty() bool { return q.age.Len() == 0 }

// eldest returns the work that has waited longest.
func (q *queue) eldest() *waiter { return q.age.Front().Value.(*waiter) }

func (q *queue) push(w *waiter) {
	c := w.client
	p := c.peer()
	if p.turn == nil {
		p.turn, p.saved = q.turns.PushBack(p), quantum
	}
	if c.turn == nil {
		c.turn, c.saved = p.clients.PushBack(c), quantum
	}
	w.inLine, w.inAge = c.line.PushBack(w), q.age.PushBack(w)
	c.size, p.size, q.size = c.size.plus(w.size), p.size.plus(w.size), q.size.plus(w.size)
}

// next returns the work to let in next. A peer that has not saved enough for its first
// work gets another quantum and moves to the end.
func (q *queue) next() *waiter {
	for {
		p := q.turns.Front().Value.(*Peer)
		if w := p.next(); w.size.Ops <= p.saved {
			return w
		}
		p.saved += quantum
		q.turns.MoveToBack(p.turn)
	}
}

// next returns the work of a peer to let in next, by the same rule among its clients.
func (p *Peer) next() *waiter {
	for {
		c := p.clients.Front().Value.(*Client)
		if w := c.line.Front().Value.(*waiter); w.size.Ops <= c.saved {
			return w
		}
		c.saved += quantum
		p.clients.MoveToBack(c.turn)
	}
}

// charge subtracts work that was let in from what its client and peer have saved.
func (w *waiter) charge() {
	w.client.saved -= w.size.Ops
	w.client.peer().saved -= w.size.Ops
}

func (q *queue) remove(w *waiter) {
	c := w.client
	p := c.peer()
	c.line.Remove(w.inLine)
	q.age.Remove(w.inAge)
	c.size, p.size, q.size = c.size.minus(w.size), p.size.minus(w.size), q.size.minus(w.size)
	if c.line.Len() == 0 {
		p.clients.Remove(c.turn)
		c.turn = nil // its credit is lost, or it could flood other clients with it later
	}
	if p.clients.Len() == 0 {
		q.turns.Remove(p.turn)
		p.turn = nil
	}
	if q.empty() {
		q.delay.emptied()
	}
}

// limit returns how long work may have waited.
func (q *queue) limit(now time.Time) time.Duration {
	return q.delay.limit(now, now.Sub(q.eldest().since))
}

// retryAfter returns when refused work should be tried again: after as long as the queue
// has been too long, because a long overload is likely to continue. So the advice about
// doubles each time, and it is spread at random: clients that follow it return seldom and
// not together. That matters since refusing a frame costs about as much as reading it from
// memory. Guessed.
func (q *queue) retryAfter(now time.Time) time.Duration {
	wait := max(target, q.delay.overload(now))
	if !q.empty() {
		wait = max(wait, now.Sub(q.eldest().since))
	}
	wait = min(wait, maxRetryAfter)
	return wait/2 + rand.N(wait)
}

// maxRetryAfter is the longest advice, on average. Guessed: longer than the deadline of a
// lookup, shorter than a person waits.
const maxRetryAfter = time.Second
