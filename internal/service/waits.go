package service

import (
	"sync"
	"time"

	"github.com/kvd-db/kvd/internal/memory"
)

// Waits are the requests that wait for their client: a call by gRPC whose request has not
// arrived completely, a stream on which the client sends or takes nothing, a raw frame that
// has arrived in part. They are not work, so they must not keep other clients out: if there
// are too many, or they hold too many bytes, one that has more than its share is ended.
//
//	I1. Count and bytes of the requests that wait exceed a limit by one newcomer at most.
//	I2. A request that is ended belongs to a peer that has at least as much as the average
//	    peer, and to a connection that has at least as much as the average connection of
//	    that peer. So a client that has less than its share loses nothing.
//	I3. The bytes that have arrived are in the memory account. While the account is full,
//	    only a quarter of the bound of bytes may wait.
//	I4. Of the candidates the oldest is ended, and one that is younger than a second only
//	    if there is no other: it may be about to be complete.
type Waits struct {
	kind  waitKind
	limit amount
	// memory counts the bytes among those of all requests; nil: they are few.
	memory *memory.Account

	mu struct {
		sync.Mutex
		all         amount
		peers       int // that have some
		first, last *Wait
	}
}

// waitKind separates the waits of calls from those of health checks, which must be answered
// however many calls there are.
type waitKind int

const (
	waitForCalls waitKind = iota
	waitForHealth
	waitKinds
)

// amount is a number of waits and the bytes that have arrived of them.
type amount struct {
	count int
	bytes int64
}

// waitShare is what a connection, or a peer, has of one kind.
type waitShare struct {
	amount
	conns int // of a peer: how many have a wait
}

// Wait is one of Waits.
type Wait struct {
	// Evict ends the request. It is called once at most, without a lock.
	Evict func()
	// Idle reports whether the request waits now; nil: it always does.
	Idle func() bool
	Conn *Conn

	// Guarded by Waits.
	begun      time.Time
	in         bool
	bytes      int64
	prev, next *Wait
}

// youngWait is the age below which a wait is ended only if there is no older one. Guessed:
// what a client sends at once arrives within some round trips.
const youngWait = time.Second

// Begin adds a wait. It returns false, and does not add it, if it would be the one to be ended.
func (w *Waits) Begin(one *Wait) bool {
	w.mu.Lock()
	one.begun, one.in, one.bytes = time.Now(), true, 0
	one.prev = w.mu.last
	if w.mu.last != nil {
		w.mu.last.next = one
	} else {
		w.mu.first = one
	}
	w.mu.last = one
	own, peer := w.sharesLocked(one)
	if own.count == 0 {
		if peer.conns++; peer.conns == 1 {
			w.mu.peers++
		}
	}
	w.addLocked(one, amount{count: 1})
	return w.makeRoom(one)
}

// Grow adds bytes that have arrived, or takes some away whose memory is free. It returns false if
// the wait has ended, or is now the one to be ended, which Grow then removes.
func (w *Waits) Grow(one *Wait, bytes int) bool {
	w.mu.Lock()
	if !one.in {
		w.mu.Unlock()
		return false
	}
	one.bytes += int64(bytes)
	w.addLocked(one, amount{bytes: int64(bytes)})
	switch {
	case w.memory == nil:
	case bytes > 0:
		w.memory.Add(int64(bytes))
	default:
		w.memory.Give(int64(-bytes))
	}
	return w.makeRoom(one)
}

// ShrinkTo reduces the bytes of a wait to left/come of them: the rest belonged to a message
// that is complete.
func (w *Waits) ShrinkTo(one *Wait, left, come int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if one.in && come > 0 {
		less := one.bytes - one.bytes*left/come
		one.bytes -= less
		w.addLocked(one, amount{bytes: -less})
		if w.memory != nil {
			w.memory.Cancel(less)
		}
	}
}

// End removes a wait, unless that was done.
func (w *Waits) End(one *Wait) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.endLocked(one)
}

// HandOver removes a wait and leaves the memory that it holds to the caller. It returns how
// much that is, and false for a wait that was ended: its Evict was called or is about to be.
func (w *Waits) HandOver(one *Wait) (held int64, in bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !one.in {
		return 0, false
	}
	w.removeLocked(one)
	if w.memory != nil {
		held = one.bytes
	}
	return held, true
}

// Bytes returns what has come of a wait that is over.
func (w *Wait) Bytes() int64 { return w.bytes }

// IsForHealth reports whether health checks wait here.
func (w *Waits) IsForHealth() bool { return w.kind == waitForHealth }

// stats returns the sum of all waits.
func (w *Waits) stats() amount {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.all
}

// makeRoom ends waits until the rest is within the limits, and unlocks. It reports whether
// one is still there.
func (w *Waits) makeRoom(one *Wait) (in bool) {
	var ended []*Wait
	for w.mu.all.count > w.limit.count || w.tooManyBytesLocked() {
		victim := w.victimLocked(w.tooManyBytesLocked())
		if victim == nil {
			victim = one // all others are being served
		}
		w.endLocked(victim)
		if victim == one {
			break
		}
		ended = append(ended, victim)
	}
	in = one.in
	w.mu.Unlock()
	for _, v := range ended {
		v.Evict()
	}
	return in
}

// keptPart: waits may have this part of the bound while the memory is full, so that small
// requests can arrive.
const keptPart = 4

func (w *Waits) tooManyBytesLocked() bool {
	return w.mu.all.bytes > w.limit.bytes ||
		w.memory != nil && w.mu.all.bytes > w.limit.bytes/keptPart && w.memory.Used() > w.memory.Limit()
}

// victimLocked returns the wait to be ended, by bytes or by count; nil if none may be.
func (w *Waits) victimLocked(byBytes bool) (young *Wait) {
	long := time.Now().Add(-youngWait)
	for one := w.mu.first; one != nil; one = one.next {
		if byBytes && one.bytes == 0 || !w.aboveShareLocked(one, byBytes) || one.Idle != nil && !one.Idle() {
			continue
		}
		if one.begun.Before(long) {
			return one
		}
		if young == nil {
			young = one
		}
	}
	return young
}

// aboveShareLocked: I2. The averages are over those that have any.
func (w *Waits) aboveShareLocked(one *Wait, byBytes bool) bool {
	own, peer := w.sharesLocked(one)
	if byBytes {
		return peer.bytes*int64(w.mu.peers) >= w.mu.all.bytes && own.bytes*int64(peer.conns) >= peer.bytes
	}
	return peer.count*w.mu.peers >= w.mu.all.count && own.count*peer.conns >= peer.count
}

func (w *Waits) addLocked(one *Wait, more amount) {
	own, peer := w.sharesLocked(one)
	for _, h := range []*amount{&own.amount, &peer.amount, &w.mu.all} {
		h.count += more.count
		h.bytes += more.bytes
	}
}

// endLocked removes a wait and gives its memory back, unless that was done.
func (w *Waits) endLocked(one *Wait) {
	if !one.in {
		return
	}
	w.removeLocked(one)
	if w.memory != nil {
		w.memory.Give(one.bytes)
	}
}

func (w *Waits) removeLocked(one *Wait) {
	one.in = false
	if one.prev != nil {
		one.prev.next = one.next
	} else {
		w.mu.first = one.next
	}
	if one.next != nil {
		one.next.prev = one.prev
	} else {
		w.mu.last = one.prev
	}
	one.prev, one.next = nil, nil
	w.addLocked(one, amount{-1, -one.bytes})
	own, peer := w.sharesLocked(one)
	if own.count == 0 {
		if peer.conns--; peer.conns == 0 {
			w.mu.peers--
		}
	}
}

// sharesLocked returns what the connection of a wait has, and its peer.
func (w *Waits) sharesLocked(one *Wait) (own, peer *waitShare) {
	return &one.Conn.waits[w.kind], &one.Conn.peer.waits[w.kind]
}
