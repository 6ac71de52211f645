package wal

import (
	"errors"
	"fmt"
	"path"

	"github.com/kvd-db/kvd/internal/event"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

const (
	// recoveryGap is how many sequence numbers are skipped after a log that was not closed
	// in order. Numbers of records that the crash took may have been seen by readers and
	// must not be given out again. Their count is unknown, so Append lets at most this many
	// numbers be unsynced at a time. 56 bits are enough for 2^26 crashes.
	recoveryGap = 1 << 30

	// firstZeros is how much of the segment that Open creates is zeroed at once: little, for
	// a quick Open, and enough for quick first syncs.
	firstZeros = 1 << 20
)

// Recovery is what Open found.
type Recovery struct {
	LastSeq      kv.SeqNum // of the last record; 0: there is none
	NextSeq      kv.SeqNum // number of the next record
	Segments     int       // read
	Records      uint64    // replayed
	DroppedBytes int64     // of a torn tail; nothing in it was acknowledged as synced
	Clean        bool      // the log had been closed in order, or is new
}

// Open recovers the log in o.Dir, calls replay for each of its records, oldest first, and
// makes the log ready to append to. The payload is borrowed until replay returns. When
// Open returns, the replayed records are on the disk, and new records get numbers from
// NextSeq on.
//
// Errors: a *kv.CorruptionError for damage, a missing segment or a missing log,
// kv.ErrUnsupportedVersion, an error of replay, wrapped, and those of the file system. If
// the log cannot be read, Open changes nothing. After any error no file is left open, and
// Open may be called again.
//
// If the disk is full or the file system read-only, Open may succeed with a log that
// takes no records until Resume succeeds: see Suspended. The replayed records are then as
// durable as they were before.
//
// Cost: reads the whole log, and rewrites in place what no later frame says was synced:
// at most the last two segments. A new log takes a few milliseconds.
func Open(o Options, replay func(Record) error) (*Log, Recovery, error) {
	if err := o.setDefaults(); err != nil {
		return nil, Recovery{}, err
	}
	s, err := scanForOpen(o, replay)
	if err != nil {
		return nil, Recovery{}, err
	}
	l := newLog(o, s)
	if err := l.begin(s); err != nil {
		return nil, Recovery{}, err
	}
	if o.Events.TailDropped != nil {
		for _, d := range s.dropped {
			o.Events.TailDropped(event.TailDrop{File: d.name, Off: d.off, Bytes: d.bytes})
		}
	}
	recovery := s.recovery()
	recovery.NextSeq = l.mu.floor
	return l, recovery, nil
}

// Replay reads the log as Open does and calls replay for each record, but changes
// nothing: the next Open finds the same log.
func Replay(o Options, replay func(Record) error) (Recovery, error) {
	if err := o.setDefaults(); err != nil {
		return Recovery{}, err
	}
	s, err := scanForOpen(o, replay)
	if err != nil {
		return Recovery{}, err
	}
	recovery := s.recovery()
	recovery.NextSeq = newLog(o, s).mu.floor
	return recovery, nil
}

// scanForOpen scans the log, and reports damage to Events.
func scanForOpen(o Options, replay func(Record) error) (*recoveryScan, error) {
	s, err := scanLog(o.FS, o.Dir, o.StoreID, replay)
	if err == nil && len(s.live) == 0 && !o.Fresh {
		err = kv.Corruptf(o.Dir, -1, "the commit log is missing")
	}
	if next := max(s.next, s.last+1); err == nil && !o.Fresh && o.MinSeq >= next {
		err = kv.Corruptf(o.Dir, -1, "the log ends before number %d, but was synced up to number %d, which tables hold: "+
			"its end is missing, and with it perhaps acknowledged writes", next, o.MinSeq)
	}
	if err == nil {
		return s, nil
	}
	if errors.Is(err, kv.ErrCorrupt) && o.Events.Corruption != nil {
		o.Events.Corruption(err)
	}
	return nil, fmt.Errorf("open commit log: %w", err)
}

func newLog(o Options, s *recoveryScan) *Log {
	l := &Log{opts: o, failed: make(chan struct{}), poke: make(chan struct{}, 1), stop: make(chan struct{})}
	l.found = s.live
	l.mu.gather.full = make(signal, 1)
	l.mu.changed.L = &l.mu
	l.mu.last = s.last
	l.mu.next = max(s.next, s.last+1, o.MinSeq+1)
	if len(s.live) > 0 && !s.clean {
		l.mu.next += recoveryGap
	}
	l.mu.floor, l.mu.syncedNext = l.mu.next, l.mu.next
	l.mu.nextNum = s.maxNum + 1
	l.mu.low = s.low
	return l
}

// takeOver makes the segment ready in which the log continues.
func (l *Log) takeOver(s *recoveryScan) error {
	err := l.syncNames()
	switch {
	case err != nil:
	case len(s.live) == 0:
		err = l.beginLog(s)
	default:
		err = l.goOn(s)
	}
	if err != nil {
		return err
	}
	a := l.mu.active
	a.last = l.mu.last
	l.mu.syncedAt, l.mu.marked = a.address(), a.address()
	if l.opts.Events.SegmentCreated != nil {
		l.opts.Events.SegmentCreated(event.Segment{Num: a.header.num, Bytes: max(a.off, a.zeroedTo)})
	}
	return nil
}

// syncNames makes the names that the scan found durable: a process that was killed may
// not have synced them.
func (l *Log) syncNames() error {
	if l.opts.Fresh {
		if err := l.opts.FS.MkdirAll(l.opts.Dir); err != nil {
			return err
		}
		if err := l.opts.FS.SyncDir(path.Dir(path.Clean(l.opts.Dir))); err != nil {
			return err
		}
	}
	return l.opts.FS.SyncDir(l.opts.Dir)
}

// beginLog creates the first segment of a new log. It removes what an interrupted
// creation left.
func (l *Log) beginLog(s *recoveryScan) error {
	if err := l.remove(s.dead); err != nil {
		return err
	}
	l.mu.low = l.mu.nextNum
	return l.beginSegment(segmentHeader{})
}

// beginSegment creates a durable segment with a start frame and some zeros.
func (l *Log) beginSegment(h segmentHeader) error {
	h.store, h.num = l.opts.StoreID, l.mu.nextNum
	l.mu.nextNum++
	a, err := createSegment(l.opts.FS, l.opts.Dir, h)
	if err != nil {
		return err
	}
	l.mu.active = a
	return l.startIn(a)
}

// startIn writes a start frame to the active segment, which is empty, and some zeros, and
// makes it durable.
func (l *Log) startIn(a *segment) error {
	if err := a.append(emptyFrame(a.header.id(), l.frameHere(FrameStart))); err != nil {
		return err
	}
	if err := l.zeroFirst(a, min(firstZeros, l.opts.SegmentBytes)); err != nil {
		return err
	}
	return l.publish(a)
}

// zeroFirst fills the segment that Open creates with some zeros. If the disk is full,
// space for frames without records is enough; less is an error.
func (l *Log) zeroFirst(a *segment, to int64) error {
	if err := a.reserve(a.off + slackBytes); err != nil {
		return err
	}
	err := a.zero(to)
	if err == nil {
		err = a.reserve(a.off + slackBytes + l.aheadLocked())
	}
	if vfs.IsNoSpace(err) {
		l.mu.space.refused = err
		return nil
	}
	return err
}

// remove deletes segments, durably.
func (l *Log) remove(dead []*scannedSegment) error {
	if len(dead) == 0 {
		return nil
	}
	for _, seg := range dead {
		// An earlier attempt, since undone, may have removed it.
		if err := vfs.RemoveIfThere(l.opts.FS, seg.name); err != nil {
			return err
		}
	}
	return l.opts.FS.SyncDir(l.opts.Dir)
}

// keep adds the segments that stay as they are to the list of live ones.
func (l *Log) keep(segs []*scannedSegment) {
	for _, seg := range segs {
		l.mu.live = append(l.mu.live, liveSegment{num: seg.num, bytes: seg.bytes, last: seg.last})
	}
}
