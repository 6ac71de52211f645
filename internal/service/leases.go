package service

import (
	"cmp"
	"sync"
	"time"

	"github.com/kvd-db/kvd/internal/auth"
)

// leases are the snapshots that clients have open, as far as shares go: each belongs to the
// connection that began it or kept it last. The store says what a lease is worth. One that has
// expired is forgotten within expiryLook, and counts for no decision before that.
type leases struct {
	shares *shares
	// release ends one in the store.
	release func(id uint64)

	mu struct {
		sync.Mutex
		byID  map[uint64]*heldLease
		looks bool // look is to be called
	}
}

// expiryLook is how often what has expired is forgotten, with the connections that it names and
// their buffers. Guessed.
const expiryLook = time.Second

// heldLease is one of leases.
type heldLease struct {
	conn  *Conn
	usage *auth.Usage // of the client that began it, which counts it; nil: that has no quota
	until time.Time
}

func newLeases(s *shares, release func(id uint64)) *leases {
	l := &leases{shares: s, release: release}
	l.mu.byID = make(map[uint64]*heldLease)
	return l
}

// tooManySnapshots refuses a snapshot beyond the share of a connection.
var tooManySnapshots = func() *Error {
	f := overloaded(shedNames[shedBySnapshots], time.Second)
	f.Message = "this connection has its share of the snapshots that may be open, or all are; nothing was done, release some or try again later"
	return f
}()

// enter takes a share for a snapshot that is to begin. If there is none, what connections
// that have ended still hold is released first, and then one of the holder with the most.
func (l *leases) enter(c *Conn) bool {
	if l.shares.enter(c) {
		return true
	}
	l.endLeft(nil)
	return l.shares.enter(c) || l.takeFromLargest(c)
}

// hold counts a snapshot that is to begin for its client, or refuses it. usage may be nil.
func (l *leases) hold(usage *auth.Usage) *auth.Exceeded {
	if usage == nil {
		return nil
	}
	if usage.Hold(auth.Snapshots) == nil {
		return nil
	}
	l.endLeft(usage)
	return usage.Hold(auth.Snapshots)
}

// endLeft ends what has expired, and what connections that have ended hold: those of one client, or
// if that is nil all.
func (l *leases) endLeft(of *auth.Usage) {
	var left []uint64
	l.mu.Lock()
	l.expireLocked()
	for id, held := range l.mu.byID {
		if (of == nil || held.usage == of) && held.conn.closed.Load() {
			l.endLocked(id, held)
			left = append(left, id)
		}
	}
	l.mu.Unlock()
	for _, id := range left {
		l.release(id)
	}
}

// takeFromLargest gives a connection that has next to none the share of one snapshot of the
// holder with the most, unless its own holder then had more than that: so however many
// connections hold all there are, and however few each, one that comes late gets its first.
// Of that holder it ends the snapshot that was begun or kept longest ago on the connection
// with the most. A read at it fails with VERSION_GONE.
func (l *leases) takeFromLargest(c *Conn) bool {
	own, holder := l.shares.holding(c)
	if own >= leastShare {
		return false
	}
	l.mu.Lock()
	victim := uint64(0)
	var least struct {
		holder, own int
		until       time.Time
	}
	for id, held := range l.mu.byID {
		n, all := l.shares.holding(held.conn)
		if all <= holder+1 {
			continue
		}
		order := cmp.Or(cmp.Compare(all, least.holder), cmp.Compare(n, least.own), least.until.Compare(held.until))
		if victim == 0 || order > 0 {
			victim, least.holder, least.own, least.until = id, all, n, held.until
		}
	}
	if victim != 0 {
		held := l.mu.byID[victim]
		l.shares.move(held.conn, c)
		l.forgetLocked(victim, held)
	}
	l.mu.Unlock()
	if victim == 0 {
		return false
	}
	l.release(victim)
	return true
}

// begun notes a snapshot for which there is a share.
func (l *leases) begun(c *Conn, usage *auth.Usage, id uint64, lease time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.byID[id] = &heldLease{c, usage, time.Now().Add(lease)}
	l.lookLaterLocked()
}

// lookLaterLocked has look called, while there are leases.
func (l *leases) lookLaterLocked() {
	if !l.mu.looks && len(l.mu.byID) > 0 {
		l.mu.looks = true
		time.AfterFunc(expiryLook, l.look)
	}
}

func (l *leases) look() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.expireLocked()
	l.mu.looks = false
	l.lookLaterLocked()
}

// expireLocked forgets what has expired.
func (l *leases) expireLocked() {
	now := time.Now()
	for id, held := range l.mu.byID {
		if !now.Before(held.until) {
			l.endLocked(id, held)
		}
	}
}

// mayKeep reports whether a lease may be renewed: not if few are free and the connection has
// more than is, so that one that took many before others came gives some back in time.
func (l *leases) mayKeep(id uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	held := l.mu.byID[id]
	if held == nil || !l.shares.scarceFor(held.conn) {
		return true
	}
	l.expireLocked()
	return !l.shares.scarceFor(held.conn)
}

// kept notes that a lease was renewed, perhaps by another connection of the same client: the
// share is that one's from now on.
func (l *leases) kept(c *Conn, id uint64, lease time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	held := l.mu.byID[id]
	if held == nil {
		return
	}
	held.until = time.Now().Add(lease)
	if held.conn != c {
		l.shares.move(held.conn, c)
		held.conn = c
	}
}

// ended notes that a snapshot was released.
func (l *leases) ended(id uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if held := l.mu.byID[id]; held != nil {
		l.endLocked(id, held)
	}
}

func (l *leases) endLocked(id uint64, held *heldLease) {
	l.forgetLocked(id, held)
	l.shares.leave(held.conn)
}

// forgetLocked ends a lease whose share goes on.
func (l *leases) forgetLocked(id uint64, held *heldLease) {
	delete(l.mu.byID, id)
	if held.usage != nil {
		held.usage.Release(auth.Snapshots)
	}
}
