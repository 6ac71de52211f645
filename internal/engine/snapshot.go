package engine

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/kvd-db/kvd/internal/commit"
	"github.com/kvd-db/kvd/internal/kv"
)

// defaultLease is the lease of a caller that does not ask for a length. Guessed: long
// enough for many round trips, and short enough for a client that vanished.
const defaultLease = 10 * time.Second

// BeginSnapshot pins a version of the whole store that holds every write acknowledged
// before the call, for as long as the lease lasts; a lease of zero means ten seconds.
// LookupAt and Scan read at that version, and always see the same: for them the clock
// stands still at the beginning of the snapshot. Several snapshots may have the same
// version.
//
// The lease granted may be shorter than asked for: at most Options.maxLease.
// Errors: a *kv.OverloadError if too many snapshots are open,
// kv.ErrInvalidArgument for a negative lease, kv.ErrClosed, the store's failure,
// the error of ctx.
// Cost: like LookupAt it waits until everything acknowledged is visible everywhere.
func (e *Engine) BeginSnapshot(ctx context.Context, lease time.Duration) (kv.Snapshot, error) {
	defer e.events.Guard()
	if e.closed.Load() {
		return kv.Snapshot{}, kv.ErrClosed
	}
	if lease < 0 {
		return kv.Snapshot{}, fmt.Errorf("%w: lease of %v", kv.ErrInvalidArgument, lease)
	}
	if e.member != nil {
		e.member.awaitTenure(ctx)
	}
	for {
		if err := e.awaitAcknowledged(ctx, kv.Freshness{}); err != nil {
			return kv.Snapshot{}, err
		}
		s, ok, err := e.snapshots.begin(lease, e.sharesTimes)
		if ok || err != nil {
			s.Epoch = e.epoch
			return s, err
		}
		if err := e.tick(ctx); err != nil {
			return kv.Snapshot{}, err
		}
	}
}

// sharesTimes reports whether a new snapshot may get an earlier time than the present one.
//
// Readers name only a version, so all of them read it at one time, that of its first snapshot. If the
// clock has advanced since, keys that have expired would come back for a new snapshot, so it gets a
// version of its own. A store without expiry does not need that, and one on a full disk must not
// write. In a cluster every version has one time: see sequencer.AppliedTime.
func (e *Engine) sharesTimes() bool {
	return e.member != nil || e.clock.bound.Load() == nil || e.readOnly.Load()
}

// tick appends an empty record and returns when its number is visible: the same state has
// then a new version. It does not wait for the disk, except for room in the log, until ctx
// ends. If a crash takes the record, its number is not given out again.
func (e *Engine) tick(ctx context.Context) error {
	if e.member != nil {
		return e.sequencer.WaitVisible(ctx, 1) // the first entry of the first leader
	}
	seq, err := commit.AppendEmpty(ctx, e.own.log)
	if err != nil {
		return err
	}
	e.sequencer.Applied(seq, 1)
	e.log.FlushBeside()
	return e.sequencer.WaitVisible(ctx, seq)
}

// KeepSnapshot renews a lease from now on and returns how long it lasts. A lease of zero
// means ten seconds; at most Options.maxLease is granted, and at most what is left of
// Options.maxSnapshotAge.
//
// Errors: kv.ErrVersionGone if the lease has ended or the snapshot has reached
// Options.maxSnapshotAge; kv.ErrInvalidArgument for a negative lease; kv.ErrClosed.
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
// the call (G3), on a member as far as fresh asks for that. The caller must release it.
func (e *Engine) pin(ctx context.Context, fresh kv.Freshness) (*pin, error) {
	if err := e.awaitAcknowledged(ctx, fresh); err != nil {
		return nil, err
	}
	return e.sequencer.acquire(), nil
}

// awaitAcknowledged returns once every write acknowledged before the call is visible in all
// partitions, on a member as far as fresh asks for that.
func (e *Engine) awaitAcknowledged(ctx context.Context, fresh kv.Freshness) error {
	e.waiters.begin()
	defer e.waiters.end()
	if e.member != nil {
		if err := e.member.round(ctx, fresh); err != nil {
			return err
		}
	}
	return e.sequencer.WaitVisible(ctx, e.acknowledged())
}

// snapshots are the leases on versions.
//
//	L1. A lease that has not ended holds a pin.
//	L2. All leases on a version have the same time, including leases that have ended:
//	    their owners may not know that yet, and must not read at another time. (On a
//	    full disk, where no new version can be made, only leases that have not ended.)
//	L3. A lease ends when its time is over, even if the maintenance loop has not removed
//	    it yet.
//
// A reader calls find twice: before it reads, to learn the time, and after it has acquired
// the files and memtables that it reads. The second result decides. If it is nil then, by
// L1, the version was pinned until then, and no compaction before it dropped anything that
// the reader needs; a later one cannot affect what the reader has acquired. The first call
// alone would not be enough: before the reader acquires anything the lease may end and a
// compaction may run, and the reader would acquire what that has left.
type snapshots struct {
	limit            int
	maxLease, maxAge time.Duration
	sequencer        *sequencer

	mu        sync.Mutex
	byID      map[uint64]*lease
	byVersion map[kv.SeqNum][]*lease
	last      lastLease
}

// lastLease is the version and the time of the newest lease. Leases are given on ascending
// versions, since begin pins the version of a lease under snapshots.mu. If it were pinned before,
// another lease on a newer version could come in between, and last would go back: a third lease on the
// newer version would not be compared with the second one, and could get its time, at which keys are
// present that have expired since.
type lastLease struct {
	at  kv.SeqNum
	now uint64
}

// lease is the right to read a version until a time. Guarded by snapshots.mu.
type lease struct {
	id    uint64
	pin   *pin
	until time.Time
}

func newSnapshots(o *Options, s *sequencer) *snapshots {
	return &snapshots{
		limit: o.maxSnapshots, maxLease: o.maxLease, maxAge: o.maxSnapshotAge, sequencer: s,
		byID: make(map[uint64]*lease), byVersion: make(map[kv.SeqNum][]*lease),
	}
}

// begin pins the visible version and makes a lease of it. If the version has, or had, leases
// with an earlier time, the new lease joins them if share, which is called after the version was
// pinned, returns true; otherwise begin reports false. It also reports false if the store has no
// version yet, since readers would take version zero for the newest.
func (s *snapshots) begin(length time.Duration, share func() bool) (snapshot kv.Snapshot, ok bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.byID) >= s.limit {
		s.expireLocked(time.Now()) // only live leases count
	}
	if len(s.byID) >= s.limit {
		return kv.Snapshot{}, false, &kv.OverloadError{Reason: "snapshots", RetryAfter: defaultLease / 10}
	}
	p := s.sequencer.acquire()
	defer func() {
		if !ok {
			s.sequencer.release(p)
		}
	}()
	if p.at == 0 {
		return kv.Snapshot{}, false, nil
	}
	if p.at == s.last.at && p.now != s.last.now && !share() {
		return kv.Snapshot{}, false, nil
	}
	if others := s.byVersion[p.at]; len(others) > 0 && others[0].pin.now != p.now {
		s.sequencer.release(p)
		p = s.sequencer.again(others[0].pin)
	}
	now, l := time.Now(), &lease{pin: p}
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

// grant returns how long a lease that is asked for now may last.
func (s *snapshots) grant(l *lease, length time.Duration, now time.Time) time.Duration {
	if length == 0 {
		length = defaultLease
	}
	return min(length, s.maxLease, s.maxAge-now.Sub(l.pin.since))
}

// newIDLocked returns a random id, which is not in use.
func (s *snapshots) newIDLocked() (uint64, error) {
	for {
		var b [8]byte
		if _, err := rand.Read(b[:]); err != nil {
			return 0, fmt.Errorf("choose a snapshot id: %w", err)
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
		return 0, fmt.Errorf("%w: the lease of snapshot %016x has ended, or never existed: begin a new one", kv.ErrVersionGone, id)
	}
	granted := s.grant(l, length, now)
	if granted <= 0 {
		return 0, fmt.Errorf("%w: snapshot %016x has reached the greatest age of %v: begin a new one", kv.ErrVersionGone, id, s.maxAge)
	}
	l.until = now.Add(granted)
	return granted, nil
}

// find returns the time at which a version is read, or kv.ErrVersionGone if it has no live
// lease: see the comment of snapshots.
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

// expire removes the leases that have ended by now.
func (s *snapshots) expire(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expireLocked(now)
}

func (s *snapshots) expireLocked(now time.Time) {
	for _, l := range s.byID {
		if !now.Before(l.until) {
			s.dropLocked(l)
		}
	}
}

// dropLocked removes a lease and then releases its pin (L1).
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
