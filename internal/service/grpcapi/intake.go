package grpcapi

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/kvd-db/kvd/internal/memory"
	"github.com/kvd-db/kvd/internal/service"
)

// intake decides when the long requests of unary calls may arrive. gRPC opens the window of
// a stream for a whole message as soon as the handler asks for the message, and holds it
// three times while it decodes it, as writing it does later. So a handler asks only once it
// has a place in the intake and there is memory for all copies; it keeps the place until it
// has that memory. Until then it is charged for what has arrived, not for what is announced.
//
//	I1. The requests that have a place need at most limit bytes together, or there is one.
//	I2. The next place goes to the peer that has least; among equals to the one whose last
//	    place is the longest ago; likewise among its connections; and there to the call that
//	    has waited longest. All clients of this machine are one peer.
//	I3. While another request waits, a request of which nothing has arrived for longestPause
//	    is ended. While a connection without a place waits, so is a request that is slower
//	    than leastRate. So a request that is announced and not sent keeps its place and its
//	    memory only for a moment.
type intake struct {
	account *memory.Account
	limit   int64

	mu struct {
		sync.Mutex
		need   int64
		places uint64 // that were given so far
		coming []*arrival
		queue  []*arrival // in the order in which they came
		timer  *time.Timer
	}
}

const (
	// intakeShare of the account, a half, is what requests may need that are coming.
	intakeShare = 2
	// intakeWait is how long a request waits for its place. Guessed: some requests
	// of slow clients.
	intakeWait = 5 * time.Second
	// longestPause is how long a client may pause while another waits. Guessed: some round
	// trips.
	longestPause = time.Second
	// leastRate is how many bytes a second a request has to come with, beside the first
	// longestPause, while a connection without a place waits. Guessed.
	leastRate = 1 << 20
	// intakeLook is the time between checks for requests that are too slow.
	intakeLook = 250 * time.Millisecond
)

// arrival is the long request of a call.
type arrival struct {
	call *call
	need int64
	// placed is closed when it has a place.
	placed chan struct{}
	// opened is when the client was told that it may send; zero: not yet, or all has come.
	// Guarded by intake.
	opened time.Time

	mu      sync.Mutex
	charged int64 // bytes that have come since it has its place
	moved   time.Time
	settled bool // what arrives is not charged any more
}

// came charges bytes that have come.
func (a *arrival) came(bytes int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.moved = time.Now()
	if !a.settled {
		a.charged += bytes
		a.call.api.server.Memory().Add(bytes)
	}
}

// settle returns what was charged, which is the caller's now.
func (a *arrival) settle() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.settled = true
	return a.charged
}

func (a *arrival) lastMoved() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.moved
}

// intakeUse is what a connection, or a peer, has of the intake.
type intakeUse struct {
	need int64  // bytes
	last uint64 // which of all places it got last
}

func (u *intakeUse) less(other *intakeUse) bool {
	return cmp.Or(cmp.Compare(u.need, other.need), cmp.Compare(u.last, other.last)) < 0
}

func newIntake(account *memory.Account) *intake {
	return &intake{account: account, limit: account.Limit() / intakeShare}
}

// enter waits for a place, and until there is memory for all of the request. The caller leaves
// if there is no error. Errors: an overload, and that of ctx.
func (in *intake) enter(ctx context.Context, c *call) (*arrival, error) {
	a := &arrival{call: c, need: service.WriteCopies * c.message.length(), placed: make(chan struct{})}
	in.mu.Lock()
	in.mu.queue = append(in.mu.queue, a)
	in.placeLocked()
	in.mu.Unlock()
	err := in.await(ctx, a)
	if err == nil {
		err = in.open(a)
	}
	if err != nil {
		c.charged += a.settle()
		in.leave(a)
		return nil, err
	}
	return a, nil
}

// await waits for a place.
func (in *intake) await(ctx context.Context, a *arrival) error {
	longest := time.NewTimer(intakeWait)
	defer longest.Stop()
	for {
		select {
		case <-a.placed:
			return nil
		case <-a.call.signal:
			if a.call.ended.Load() {
				return memory.Refusal()
			}
		case <-longest.C:
			return memory.Refusal()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// open waits until there is memory. From then on what comes is charged to the arrival.
func (in *intake) open(a *arrival) error {
	c := a.call
	c.arrival.Store(a)
	held, waits := c.waits.HandOver(&c.wait)
	if !waits {
		return memory.Refusal() // it was ended in the same moment
	}
	c.charged = held
	if more := a.need - held; more > 0 {
		if err := c.api.server.Memory().Wait(c, more, held); err != nil {
			return err
		}
		c.api.server.Memory().Cancel(more)
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	a.opened = time.Now()
	return nil
}

// received says that all of a request has come.
func (in *intake) received(a *arrival) {
	a.call.charged += a.settle()
	in.mu.Lock()
	defer in.mu.Unlock()
	a.opened = time.Time{}
}

// leave gives a place back, or the wait for one up.
func (in *intake) leave(a *arrival) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if remove(&in.mu.coming, a) {
		in.countLocked(a, -a.need)
	} else {
		remove(&in.mu.queue, a)
	}
	in.placeLocked()
}

// remove takes an arrival out, and reports whether it was there.
func remove(all *[]*arrival, a *arrival) bool {
	i := slices.Index(*all, a)
	if i >= 0 {
		*all = slices.Delete(*all, i, i+1)
	}
	return i >= 0
}

// placeLocked gives the places that are free.
func (in *intake) placeLocked() {
	for next := in.nextLocked(); next != nil && (in.mu.need == 0 || in.mu.need+next.need <= in.limit); next = in.nextLocked() {
		remove(&in.mu.queue, next)
		in.mu.coming = append(in.mu.coming, next)
		in.countLocked(next, next.need)
		in.mu.places++
		next.call.conn.intake.last, next.call.conn.peer.intake.last = in.mu.places, in.mu.places
		close(next.placed)
	}
	if len(in.mu.queue) > 0 && in.mu.timer == nil {
		in.mu.timer = time.AfterFunc(intakeLook, in.look)
	}
}

func (in *intake) countLocked(a *arrival, need int64) {
	in.mu.need += need
	a.call.conn.intake.need += need
	a.call.conn.peer.intake.need += need
}

// nextLocked: I2.
func (in *intake) nextLocked() (next *arrival) {
	less := func(a, b *connection) bool {
		if a.peer != b.peer {
			return a.peer.intake.less(&b.peer.intake)
		}
		return a.intake.less(&b.intake)
	}
	for _, a := range in.mu.queue {
		if next == nil || less(a.call.conn, next.call.conn) {
			next = a
		}
	}
	return next
}

// look ends requests that are too slow, while others wait.
func (in *intake) look() {
	in.mu.Lock()
	in.mu.timer = nil
	var ended []*call
	if next := in.nextLocked(); next != nil {
		now := time.Now()
		for _, a := range in.mu.coming {
			if a.tooSlow(now, next.call.conn.intake.need == 0 && next.call.conn != a.call.conn) {
				ended = append(ended, a.call)
			}
		}
		in.mu.timer = time.AfterFunc(intakeLook, in.look)
	}
	in.mu.Unlock()
	for _, c := range ended {
		c.evict()
	}
}

// tooSlow: I3.
func (a *arrival) tooSlow(now time.Time, othersHaveNone bool) bool {
	if a.opened.IsZero() {
		return false // it does not wait for its client
	}
	moved := a.lastMoved()
	if moved.Before(a.opened) {
		moved = a.opened
	}
	allowed := longestPause + time.Duration(a.call.message.length())*time.Second/leastRate
	return now.Sub(moved) > longestPause || othersHaveNone && now.Sub(a.opened) > allowed
}
