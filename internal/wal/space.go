package wal

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// The log reserves space on the disk before it takes records. Append admits a record only
// if it fits, whatever happens meanwhile, into what the active segment has reserved and
// the records before it have not used. So a write never meets a full disk, however fast
// another process fills it. A goroutine of the log reserves ahead of the need; when that
// fails, Append refuses what no longer fits, and the log calls Options.NoSpace while
// there is still some room.
//
// A rotation needs space too. If there is none, the log continues in the active segment
// beyond SegmentBytes: everything admitted fits there.

const (
	// slackBytes of the reserved space are kept for frames without records: an end or a
	// close frame, and marks.
	slackBytes = 4 << 10
	// lastFrames is the part of slackBytes that marks must leave free.
	lastFrames = 2 * frameHeaderBytes
	// firstAhead is how much a new log reserves ahead; that grows with what is appended, up
	// to half a segment. Guessed: a short log should take little space, and a fast one
	// should not wait for its reservations.
	firstAhead = 1 << 20
	// leastAhead is how much a log on a full disk reserves, or keeps: room for some hundred
	// deletes. Half of that is left when a reservation fails.
	leastAhead = 64 << 10
	// keptReserved is how much reserved space a segment may keep when the log leaves it.
	keptReserved = 64 << 10
)

// space is what the log knows of its space on the disk. Guarded by Log.mu.
type space struct {
	charged   int64    // upper bound of what the records queued or being written take
	wanted    int64    // what the largest record refused with ErrNoRoomYet takes
	next      *segment // a rotation is about to continue here, so records must fit here too; nil: none
	reserving bool     // a goroutine reserves space, or gives it back
	leftover  bool     // a reservation failed, and may have taken some space
	rested    Pos      // the end of the log when it was last idle or a reservation failed
	waiting   []Waker  // to wake when there may be more room: see OnRoom
	refused   error    // why the last reservation failed; nil: it did not
}

// room is how many bytes of frames with records surely fit after those written.
func (s *segment) room() int64 { return s.spaceEnd() - s.off - slackBytes }

// spaceEnd is the offset up to which the segment has space on the disk.
func (s *segment) spaceEnd() int64 { return max(s.reservedTo, s.zeroedTo, s.off) }

// reserve reserves space up to an offset.
func (s *segment) reserve(to int64) error {
	from := s.spaceEnd()
	if to <= from {
		return nil
	}
	if err := s.file.Reserve(from, to-from); err != nil {
		return err
	}
	s.reservedTo = to
	return nil
}

// recordCost is the most space a record takes: that of a frame of its own.
func recordCost(payload int) int64 {
	return int64(payload) + recordHeaderBytes + frameHeaderBytes + frameAlign
}

// roomLocked returns how much more may be appended.
func (l *Log) roomLocked() int64 {
	room := l.mu.active.room()
	if l.mu.space.next != nil {
		room = min(room, l.mu.space.next.room())
	}
	return room - l.mu.space.charged
}

// aheadLocked returns how much should be reserved beyond what is charged: on a full disk
// little, for a few deletes.
func (l *Log) aheadLocked() int64 {
	if l.mu.space.refused != nil {
		return l.keptAhead()
	}
	return min(max(firstAhead, int64(l.mu.end-l.mu.space.rested)), max(l.opts.SegmentBytes/2, slackBytes))
}

// keptAhead is leastAhead, or less if segments are small.
func (l *Log) keptAhead() int64 { return min(leastAhead, max(l.opts.SegmentBytes/4, slackBytes)) }

// ErrNoRoomYet is returned by Append while space for the record is being reserved.
var ErrNoRoomYet = errors.New("space for the commit log is being reserved")

// makeRoomLocked returns nil if a record of that cost fits, and begins to reserve space
// if little is left.
//
// Errors: kv.ErrReadOnly if there is no space on the disk; ErrNoRoomYet.
func (l *Log) makeRoomLocked(cost int64) error {
	if l.Err() != nil || l.mu.closed {
		return nil // admitLocked reports that
	}
	if l.mu.suspended != nil {
		return l.suspendedError(l.mu.space.refused)
	}
	room, kept := l.roomLocked()-cost, int64(0)
	if l.mu.space.refused == nil {
		kept = l.keptAhead() / 2 // for deletes, should the next reservation fail
	}
	if room >= kept {
		if room < l.aheadLocked()/2 && l.mu.space.refused == nil {
			l.reserveSoonLocked(0)
		}
		return nil
	}
	if l.mu.space.refused != nil && !l.mu.space.reserving {
		return l.refusal(fmt.Errorf("the disk has no space for the commit log: %w", l.mu.space.refused))
	}
	if l.mu.space.next == nil {
		l.reserveSoonLocked(cost)
	}
	return ErrNoRoomYet
}

// OnRoom wakes w, once, when an Append that returned ErrNoRoomYet may succeed. It may do
// so at once, and with a lock of the log held: w must not call the log.
func (l *Log) OnRoom(w Waker) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if pending := l.mu.space.reserving || l.mu.space.next != nil; !pending || l.Err() != nil || l.mu.closed {
		w.Wake()
		return
	}
	l.mu.space.waiting = append(l.mu.space.waiting, w)
}

// AwaitRoom returns when an Append that returned ErrNoRoomYet may succeed, or with the
// cause of ctx when that ends.
func (l *Log) AwaitRoom(ctx context.Context) error {
	woken := make(signal, 1)
	l.OnRoom(woken)
	select {
	case <-woken:
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.space.waiting = slices.DeleteFunc(l.mu.space.waiting, func(w Waker) bool { return w == Waker(woken) })
	return context.Cause(ctx)
}

// roomChangedLocked wakes the wakers that wait for room, and the goroutines that wait for
// changed.
func (l *Log) roomChangedLocked() {
	wakeAll(l.mu.space.waiting)
	l.mu.space.waiting = nil
	l.mu.changed.Broadcast()
}

// refusal returns the error of a record that is refused for lack of space.
func (l *Log) refusal(cause error) error {
	if l.opts.Refusal != nil {
		return l.opts.Refusal(cause)
	}
	return fmt.Errorf("%w: %w", kv.ErrReadOnly, cause)
}

// reserveSoonLocked starts a goroutine that reserves space, including space for a record
// of that cost.
func (l *Log) reserveSoonLocked(cost int64) {
	l.mu.space.wanted = max(l.mu.space.wanted, cost)
	if l.mu.space.reserving || l.mu.closed {
		return
	}
	l.mu.space.reserving = true
	l.background.Go(func() {
		defer l.opts.Events.Guard()
		l.mu.Lock()
		refused := l.reserveLocked()
		l.mu.Unlock()
		if refused != nil {
			l.tellRefused(refused)
		}
	})
}

// reserveLocked reserves what is wanted in the active segment, and more ahead of the
// need, and returns why it could not. The caller has set reserving, which reserveLocked
// clears. It unlocks mu while it waits for the disk.
func (l *Log) reserveLocked() error {
	for {
		a := l.mu.active
		from := a.spaceEnd()
		to := a.off + slackBytes + l.mu.space.charged + l.mu.space.wanted + l.aheadLocked()
		var err error
		if to > from {
			l.mu.Unlock()
			err = a.file.Reserve(from, to-from)
			l.mu.Lock()
			if l.mu.active != a && !l.mu.closed {
				continue // a rotation left it meanwhile, with what was reserved
			}
		}
		if err == nil {
			a.reservedTo = max(a.reservedTo, to)
		}
		if err != nil {
			l.mu.space.leftover, l.mu.space.rested = true, l.mu.end
		}
		l.mu.space.refused, l.mu.space.wanted, l.mu.space.reserving = err, 0, false
		l.roomChangedLocked()
		return err
	}
}

// refuse notes that there is no space for a segment.
func (l *Log) refuse(err error) {
	l.mu.Lock()
	l.mu.space.refused = err
	l.roomChangedLocked()
	l.mu.Unlock()
	l.tellRefused(err)
}

// Refuse notes that the file system is read-only; readOnly says why the owner of the log
// found so. Until Reserve succeeds the log writes nothing by itself, so that it does not
// fail, and Close leaves a log whose records are all synced as it is, as after a kill.
func (l *Log) Refuse(readOnly error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.suspended == nil {
		l.mu.space.refused = readOnly
	}
}

func (l *Log) tellRefused(err error) {
	if l.opts.NoSpace != nil {
		l.opts.NoSpace(err)
	}
}

// Refused returns why the log has no space for some records, nil if it has. The log
// refuses those records until Reserve, or Resume, succeeds. Options.NoSpace is not called
// for every refusal.
func (l *Log) Refused() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.space.refused
}

// Reserve tries again to reserve space after a reservation failed, and returns why it
// still fails. Otherwise it does nothing. It waits for the disk.
func (l *Log) Reserve() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.mu.space.reserving {
		l.mu.changed.Wait()
	}
	if l.mu.space.refused == nil || l.mu.closed || l.Err() != nil || l.mu.suspended != nil {
		return l.mu.space.refused
	}
	l.mu.space.reserving = true
	return l.reserveLocked()
}

// untouchableLocked reports whether the log knows the file system to be read-only.
func (l *Log) untouchableLocked() bool { return vfs.IsReadOnly(l.mu.space.refused) }

// enterLocked makes Append admit only records that fit into next as well as into the
// active segment, if all queued records do. The caller has the writing role.
func (l *Log) enterLocked(next *segment) bool {
	if next.room() < l.mu.space.charged {
		return false
	}
	l.mu.space.next = next
	return true
}

// makeRoomIn reserves space in the segment in which the log is about to continue.
func (l *Log) makeRoomIn(next *segment) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.enterLocked(next) {
		to := next.off + slackBytes + l.mu.space.charged + l.aheadLocked()
		l.mu.Unlock()
		err := next.reserve(to)
		l.mu.Lock()
		if err != nil {
			return err
		}
	}
	return nil
}

// reserveMark returns nil if a mark fits and leaves room for the frames that end a
// segment, and begins to reserve space if it does not. The caller has the writing role,
// for which other writers wait, so reserveMark does not wait for the disk.
//
// Errors: why the last reservation failed; ErrNoRoomYet.
func (l *Log) reserveMark() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.mu.active
	if a.spaceEnd()-a.off >= frameHeaderBytes+lastFrames {
		return nil
	}
	if l.mu.space.refused != nil && !l.mu.space.reserving {
		return l.mu.space.refused
	}
	l.reserveSoonLocked(0)
	return ErrNoRoomYet
}
