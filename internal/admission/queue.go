package admission

import (
	"container/list"
	"context"
	"math/rand/v2"
	"time"
)

// A Client is one of those among whom a Gate is fair: its line, and its credit when
// clients take turns. The zero value is ready. It is for one Gate, which guards it,
// and needs no end: a client that waits for nothing is known to nobody.
type Client struct {
	line  list.List     // of *waiter, by arrival
	size  Size          // of line
	turn  *list.Element // in queue.turns; nil while line is empty
	saved int           // operations that it may let in at its turn
}

// waiter is a piece of work in the line of its client.
type waiter struct {
	client   *Client
	size     Size
	since    time.Time
	deadline time.Time // zero: none
	verdict  chan error
	// timer runs out when it has waited for an interval.
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
	turns list.List // of *Client with work in line; whose turn it is comes first
	age   list.List // of *waiter, the eldest first
	delay delay
}

func (q *queue) empty() bool { return q.age.Len() == 0 }

// eldest is what has waited longest.
func (q *queue) eldest() *waiter { return q.age.Front().Value.(*waiter) }

func (q *queue) push(w *waiter) {
	c := w.client
	if c.turn == nil {
		c.turn, c.saved = q.turns.PushBack(c), quantum
	}
	w.inLine, w.inAge = c.line.PushBack(w), q.age.PushBack(w)
	c.size, q.size = c.size.plus(w.size), q.size.plus(w.size)
}

// next is what comes in next. Who has not saved enough for its first gets another
// quantum and goes to the end.
func (q *queue) next() *waiter {
	for {
		c := q.turns.Front().Value.(*Client)
		if w := c.line.Front().Value.(*waiter); w.size.Ops <= c.saved {
			return w
		}
		c.saved += quantum
		q.turns.MoveToBack(c.turn)
	}
}

func (q *queue) remove(w *waiter) {
	c := w.client
	c.line.Remove(w.inLine)
	q.age.Remove(w.inAge)
	c.size, q.size = c.size.minus(w.size), q.size.minus(w.size)
	if c.line.Len() == 0 {
		q.turns.Remove(c.turn)
		c.turn = nil // what it saved is lost, or it could flood others with it later
	}
	if q.empty() {
		q.delay.emptied()
	}
}

// limit is how long work may have waited.
func (q *queue) limit(now time.Time) time.Duration {
	return q.delay.limit(now, now.Sub(q.eldest().since))
}

// retryAfter is the advice to work that is refused: to stay away for as long as the
// queue has been too long, as far as that is known, since an overload that has
// lasted for long lasts for longer. So the advice about doubles each time, and those
// who follow it come back spread over time, and seldom: to refuse a frame costs about
// as much as to read it from memory. Guessed.
func (q *queue) retryAfter(now time.Time) time.Duration {
	wait := max(target, q.delay.overload(now))
	if !q.empty() {
		wait = max(wait, now.Sub(q.eldest().since))
	}
	wait = min(wait, maxRetryAfter)
	return wait/2 + rand.N(wait)
}

// maxRetryAfter is the longest advice, on average. Guessed: long against any
// deadline of a lookup, short against the patience of a person.
const maxRetryAfter = time.Second
