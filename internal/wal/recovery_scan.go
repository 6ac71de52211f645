package wal

import (
	"errors"
	"slices"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/logfile"
	"github.com/kvd-db/kvd/internal/vfs"
)

// scannedSegment is a segment as the scan found it.
type scannedSegment struct {
	num       uint64
	name      string
	header    segmentHeader
	headerErr error // the header is damaged

	bytes  int64
	end    int64     // end of its last whole frame in order
	last   kv.SeqNum // of the records up to end
	used   bool      // it has a start frame
	ended  bool      // it has an end frame
	closed bool      // it has a close frame
	copied bool      // it has a copied frame
	stale  bool      // an earlier recovery should have removed it
}

// first returns the number of the lowest segment that this one stands for.
func (s *scannedSegment) first() uint64 {
	if s.header.replaces != 0 {
		return s.header.replaces
	}
	return s.num
}

// recoveryScan reads a whole log and decides which parts of it count. It changes nothing.
// Recovery acts on what it found; the verifier only reports it.
type recoveryScan struct {
	fsys  vfs.FS
	dir   string
	store uint64

	live   []*scannedSegment // segments that count, in the order of the log
	unused *scannedSegment   // the segment that follows the last one of live, if it has no start frame
	dead   []*scannedSegment // segments that recovery removes

	last   kv.SeqNum // of the last record
	next   kv.SeqNum // the next number is at least this
	low    uint64    // the lowest segment that must exist
	claim  address   // the log was surely synced up to here
	maxNum uint64    // highest number of any segment in the directory

	records uint64
	clean   bool
	dropped []dropped
}

// dropped is a tail that recovery drops.
type dropped struct {
	name       string
	off, bytes int64
}

// scanLog scans the log in dir and calls replay for every record, in order. Damage is
// a *kv.CorruptionError; replay may have been called for records before it.
func scanLog(fsys vfs.FS, dir string, store uint64, replay func(Record) error) (*recoveryScan, error) {
	s := &recoveryScan{fsys: fsys, dir: dir, store: store}
	found, err := s.readHeaders()
	if err != nil {
		return s, err
	}
	if found, err = s.dropReplaced(found); err != nil {
		return s, err
	}
	if s.live, err = s.chain(found); err != nil {
		return s, err
	}
	if err := s.walk(replay); err != nil {
		return s, err
	}
	return s, s.checkLow()
}

func (s *recoveryScan) id(num uint64) logfile.ID { return logfile.ID{Store: s.store, Segment: num} }

// readHeaders reads the header of every segment. An unknown version ends the scan
// before anything else is examined.
func (s *recoveryScan) readHeaders() ([]*scannedSegment, error) {
	nums, err := listSegments(s.fsys, s.dir)
	if err != nil {
		return nil, err
	}
	var found []*scannedSegment
	for _, num := range nums {
		seg := &scannedSegment{num: num, name: segmentName(s.dir, num)}
		r, h, err := openSegmentAhead(s.fsys, seg.name, s.id(num), 0)
		if r == nil {
			return nil, err
		}
		seg.header, seg.headerErr, seg.bytes = h, err, r.size
		if err := r.close(); err != nil {
			return nil, err
		}
		if seg.headerErr == nil && (h.store != s.store || h.num != num) {
			return nil, kv.Corruptf(seg.name, 0, "segment %d of store %016x is here, expected segment %d of store %016x",
				h.num, h.store, num, s.store)
		}
		found = append(found, seg)
		s.maxNum = num
	}
	return found, nil
}

// dropReplaced resolves what interrupted recoveries of earlier versions left. The copy of
// a segment counts once the lowest original is gone; the other originals are then left
// over. While that original exists, the copy does not count, and was never appended to.
func (s *recoveryScan) dropReplaced(found []*scannedSegment) ([]*scannedSegment, error) {
	exists := map[uint64]bool{}
	for _, seg := range found {
		exists[seg.num] = true
	}
	isDead := map[uint64]bool{}
	for _, seg := range found {
		r := seg.header.replaces
		switch {
		case r == 0:
		case exists[r]:
			if err := s.checkUnfinished(seg); err != nil {
				return nil, err
			}
			isDead[seg.num] = true
		default:
			for _, other := range found {
				if r < other.num && other.num < seg.num {
					isDead[other.num] = true
				}
			}
		}
	}
	return slices.DeleteFunc(found, func(seg *scannedSegment) bool {
		if isDead[seg.num] {
			seg.stale = true
			s.dead = append(s.dead, seg)
		}
		return isDead[seg.num]
	}), nil
}

// checkUnfinished makes sure that a copy whose original exists was never appended to.
func (s *recoveryScan) checkUnfinished(seg *scannedSegment) (err error) {
	r, _, err := openSegment(s.fsys, seg.name, s.id(seg.num))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	for {
		f, reason, err := r.next()
		if err != nil || reason != "" {
			return err
		}
		if f.kind != FrameCopied {
			continue
		}
		tail, err := r.scan(r.off)
		if err == nil && tail.frames > 0 {
			err = kv.Corruptf(seg.name, r.off, "segment %d, which this one replaced, exists again", seg.header.replaces)
		}
		return err
	}
}

// chain checks that every segment follows the one before it. A segment with a
// damaged header at the upper end was never used, unless a frame in it says
// that its header was synced.
func (s *recoveryScan) chain(found []*scannedSegment) (live []*scannedSegment, err error) {
	for _, seg := range found {
		if seg.headerErr != nil {
			tail, err := s.scanAll(seg)
			if err != nil {
				return nil, err
			}
			if tail.claim.segment >= seg.num {
				return nil, seg.headerErr
			}
			s.dead = append(s.dead, seg)
			continue
		}
		if live, err = s.dropSkipped(live, seg); err != nil {
			return nil, err
		}
		if len(live) > 0 && seg.header.prev != live[len(live)-1].num {
			return nil, kv.Corruptf(segmentName(s.dir, seg.header.prev), -1,
				"segment is missing: %s follows it", seg.name)
		}
		live = append(live, seg)
	}
	return live, nil
}

// dropSkipped removes from live the segments that seg does not follow. The log never
// continued in them: their creation failed, and so did their removal. What is before them
// may have been reclaimed since.
func (s *recoveryScan) dropSkipped(live []*scannedSegment, seg *scannedSegment) ([]*scannedSegment, error) {
	for len(live) > 0 && seg.header.prev != live[len(live)-1].num {
		last := live[len(live)-1]
		tail, err := s.scanAll(last)
		if err != nil {
			return nil, err
		}
		if tail.frames > 0 {
			break
		}
		last.stale = true
		s.dead = append(s.dead, last)
		live = live[:len(live)-1]
	}
	return live, nil
}

func (s *recoveryScan) scanAll(seg *scannedSegment) (tail rest, err error) {
	r, _, err := openSegment(s.fsys, seg.name, s.id(seg.num))
	if r == nil {
		return rest{}, err
	}
	tail, err = r.scan(min(segmentHeaderBytes, r.size))
	return tail, errors.Join(err, r.close())
}

// recovery summarizes the scan.
func (s *recoveryScan) recovery() Recovery {
	r := Recovery{
		LastSeq: s.last, NextSeq: s.next, Segments: len(s.live), Records: s.records,
		Clean: s.clean || len(s.live) == 0,
	}
	for _, d := range s.dropped {
		r.DroppedBytes += d.bytes
	}
	return r
}
