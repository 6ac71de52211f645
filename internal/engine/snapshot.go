package engine

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/wal"
)

// defaultLease is what a caller gets that does not say how long. Guessed: many
// round trips, and not long for the versions of a client that vanished.
const defaultLease = 10 * time.Second

// BeginSnapshot pins a version of the whole store that holds every write
// acknowledged before the call, for as long as the lease lasts; zero takes ten
// seconds. LookupAt and Scan read at it, and see the same however late they come:
// keys expire for them by the time at which the snapshot began. More may be
// pinned at the same version.
//
// The lease granted may be shorter than asked: at most Options.MaxLease.
// Errors: a *kv.OverloadError if too many snapshots are open,
// kv.ErrInvalidArgument for a negative lease, kv.ErrClosed, the store's failure,
// the error of ctx.
// Cost: it waits until what was acknowledged is visible everywhere, as LookupAt.
func (e *Engine) BeginSnapshot(ctx context.Context, lease time.Duration) (kv.Snapshot, error) {
	defer e.events.Guard()
	if e.closed.Load() {
		return kv.Snapshot{}, kv.ErrClosed
	}
	if lease < 0 {
		return kv.Snapshot{}, fmt.Errorf("%w: lease of %v", kv.ErrInvalidArgument, lease)
	}
	for {
		p, err := e.pin(ctx)
		if err != nil {
			return kv.Snapshot{}, err
		}
		// Readers name a version and nothing else, so a version can be read at one
		// time alone, that of its first snapshot. If time went on since, what has
		// expired would be there again: better to have a version of our own. A store
		// without expiry need not care, and one on a full disk must not write.
		share := e.clock.bound.Load() == nil || e.readOnly.Load()
		s, ok, err := e.snapshots.begin(p, lease, share)
		if ok || err != nil {
			s.Epoch = e.epoch
			return s, err
		}
		if err := e.tick(ctx); err != nil {
			return kv.Snapshot{}, err
		}
	}
}

// tick takes a number for a record that says nothing, and returns when it is
// visible: the same state, as a new version. Nobody waits for the record to reach
// the disk. If a crash takes it, its number is not given out again.
func (e *Engine) tick(ctx context.Context) error {
	seq, _, err := e.log.Append(nil, 1, kv.DurabilityMemory, silentWaker{}, nil)
	for errors.Is(err, wal.ErrNoRoomYet) {
		if err := e.log.AwaitRoom(ctx); err != nil {
			return err
		}
		seq, _, err = e.log.Append(nil, 1, kv.DurabilityMemory, silentWaker{}, nil)
	}
	if err != nil {
		return err
	}
	e.sequencer.Applied(seq, 1)
	e.log.Flush()
	return e.sequencer.WaitVisible(ctx, seq)
}

// silentWaker is told of a record that no caller waits for.
type silentWaker struct{}

func (silentWaker) Wake()     {}
func (silentWaker) RunReady() {}

// KeepSnapshot renews a lease, from now on, and returns for how long. Zero takes
// ten seconds; no more is granted than Options.MaxLease, nor than is left of
// Options.MaxSnapshotAge.
//
// Errors: kv.ErrVersionGone if the lease has ended, or the snapshot is too old to
// be kept any longer; kv.ErrInvalidArgument for a negative lease; kv.ErrClosed.
func (e *Engine) KeepSnapshot(id uint64, lease time.Duration) (granted time.Duration, err error) {
	defer e.events.Guard()
	if e.closed.Load() {
		return 0, kv.ErrClosed
	}
	if lease < 0 {
		return 0, fmt.Errorf("%w: lease of %v", kv.ErrInvalidArgument, lease)
	}
	return e.snapshots.keep(id, lease)
}

// ReleaseSnapshot ends a lease. It does nothing if the lease has ended.
func (e *Engine) ReleaseSnapshot(id uint64) {
	defer e.events.Guard()
	e.snapshots.end(id)
}

// pin pins a version of all partitions that holds every write acknowledged before
// the call (G3). The caller must release it.
func (e *Engine) pin(ctx context.Context) (*pin, error) {
	if err := e.sequencer.WaitVisible(ctx, e.acknowledged()); err != nil {
		return nil, err
	}
	return e.sequencer.acquire(), nil
}

// snapshots are the leases on versions.
//
//	L1. A lease that has not ended holds a pin.
//	L2. All leases on a version have the same time, those that have ended too:
//	    their owners, who may not know it yet, must not read at another time. (On a
//	    full disk, where no new version can be made, only those that have not ended.)
//	L3. A lease has ended at its time at the latest, whenever the keeper comes to
//	    take it out.
//
// A reader asks find twice: before it reads, to learn the time, and after it has
// acquired what it reads from. The second answer is the one that counts. If it is
// yes then, by L1, the version was pinned up to that moment, and no compaction
// before it dropped anything that the reader needs; one after it cannot touch
// what the reader has acquired. The first alone would not do: between asking and
// acquiring the lease may end, a compaction may take place, and the reader would
// acquire what is left.
type snapshots struct {
	limit            int
	maxLease, maxAge time.Duration
	sequencer        *sequencer

	mu        sync.Mutex
	byID      map[uint64]*lease
	byVersion map[kv.SeqNum][]*lease
	last      lastLease
}

// lastLease is the version and the time of the newest lease. Versions are leased
// in ascending order.
type lastLease struct {
	at  kv.SeqNum
	now uint64
}

// lease is a right to a version until a time. Guarded by snapshots.mu.
type lease struct {
	id    uint64
	pin   *pin
	until time.Time
}

func newSnapshots(o *Options, s *sequencer) *snapshots {
	return &snapshots{
		limit: o.MaxSnapshots, maxLease: o.MaxLease, maxAge: o.MaxSnapshotAge, sequencer: s,
		byID: make(map[uint64]*lease), byVersion: make(map[kv.SeqNum][]*lease),
	}
}

// begin takes over a fresh pin and leases it. If there is, or was, a lease on its
// version from an earlier time, it joins that one if it may share; else it reports
// false, and also if the store has no version yet: readers would take
// zero for the newest. Unless there is a new lease the pin is released.
func (s *snapshots) begin(p *pin, length time.Duration, share bool) (snapshot kv.Snapshot, ok bool, err error) {
	defer func() {
		if !ok {
			s.sequencer.release(p)
		}
	}()
	now := time.Now()
	s.expire(now) // so that only live ones count
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.byID) >= s.limit {
		return kv.Snapshot{}, false, &kv.OverloadError{Reason: "snapshots", RetryAfter: defaultLease / 10}
	}
	if p.at == 0 {
		return kv.Snapshot{}, false, nil
	}
	if p.at == s.last.at && p.now != s.last.now && !share {
		return kv.Snapshot{}, false, nil
	}
	if others := s.byVersion[p.at]; len(others) > 0 && others[0].pin.now != p.now {
		s.sequencer.release(p)
		p = s.sequencer.again(others[0].pin)
	}
	l := &lease{pin: p}
	if l.id, err = s.newIDLocked(); err != nil {
		return kv.Snapshot{}, false, err
	}
	granted := s.grant(l, length, now)
	l.until = now.Add(granted)
	s.last = lastLease{p.at, p.now}
	s.byID[l.id] = l
	s.byVersion[p.at] = append(s.byVersion[p.at], l)
	return kv.Snapshot{ID: l.id, Version: p.at, Lease: granted}, true, nil
}

// grant returns how long a lease asked for at now may last.
func (s *snapshots) grant(l *lease, length time.Duration, now time.Time) time.Duration {
	if length == 0 {
		length = defaultLease
	}
	return min(length, s.maxLease, s.maxAge-now.Sub(l.pin.since))
}

// newIDLocked returns an id that nobody can guess, and that nobody has.
func (s *snapshots) newIDLocked() (uint64, error) {
	for {
		var b [8]byte
		if _, err := rand.Read(b[:]); err != nil {
			return 0, fmt.Errorf("name a snapshot: %w", err)
		}
		if id := binary.LittleEndian.Uint64(b[:]); id != 0 && s.byID[id] == nil {
			return id, nil
		}
	}
}

func (s *snapshots) keep(id uint64, length time.Duration) (time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	l := s.byID[id]
	if l == nil || !now.Before(l.until) {
		return 0, fmt.Errorf("%w: the lease of snapshot %016x has ended, or there was none: begin a new one", kv.ErrVersionGone, id)
	}
	granted := s.grant(l, length, now)
	if granted <= 0 {
		return 0, fmt.Errorf("%w: snapshot %016x has lasted %v, which is as long as one may: begin a new one", kv.ErrVersionGone, id, s.maxAge)
	}
	l.until = now.Add(granted)
	return granted, nil
}

// find returns the time at which a version is read, or kv.ErrVersionGone if there
// is no lease on it: see the comment of snapshots.
func (s *snapshots) find(at kv.SeqNum) (now uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	present := time.Now()
	for _, l := range s.byVersion[at] {
		if present.Before(l.until) {
			return l.pin.now, nil
		}
	}
	return 0, versionGone(at)
}

func versionGone(at kv.SeqNum) error {
	return fmt.Errorf("%w: no snapshot holds version %d, or its lease has ended: begin a new one", kv.ErrVersionGone, at)
}

func (s *snapshots) end(id uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.byID[id]; l != nil {
		s.dropLocked(l)
	}
}

// expire takes out what has ended by now.
func (s *snapshots) expire(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.byID {
		if !now.Before(l.until) {
			s.dropLocked(l)
		}
	}
}

// dropLocked takes a lease out, then its pin (L1).
func (s *snapshots) dropLocked(l *lease) {
	delete(s.byID, l.id)
	left := slices.DeleteFunc(s.byVersion[l.pin.at], func(other *lease) bool { return other == l })
	if s.byVersion[l.pin.at] = left; len(left) == 0 {
		delete(s.byVersion, l.pin.at)
	}
	s.sequencer.release(l.pin)
}

func (s *snapshots) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.byID)
}
