package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/logfile"
	"github.com/kvd-db/kvd/internal/vfs"
)

// Salvaged is what Salvage found in a damaged log.
type Salvaged struct {
	Segments int
	Records  uint64
	LastSeq  kv.SeqNum // of the last record; 0: there is none
	NextSeq  kv.SeqNum // above every number that the frames say was given out
	Gaps     []Gap     // in the order of the log
}

// Gap is a part of the log without whole frames.
type Gap struct {
	Places []Place
	// From and To, both included, are the numbers of the records that may have been there.
	// If To is less than From, no record was there. No whole frame follows an Open gap: its
	// To is kv.MaxSeqNum.
	From, To kv.SeqNum
	Open     bool
	// Records is the largest number of records that may have been there; of an Open gap it
	// is unknown, and 0.
	Records uint64
}

// Lost reports whether records may have been in the gap.
func (g *Gap) Lost() bool { return g.From <= g.To }

// Place is a damaged part of a segment.
type Place struct {
	File   string
	Offset int64
	Bytes  int64 // 0: the whole segment is missing
	Reason string
}

// Salvage calls fn for each record of a damaged log whose frame verifies, in order and each
// once, and describes the rest. After a frame that does not verify it goes on with the next
// one that does. It changes nothing. The payload is borrowed until fn returns.
//
// Recovery would refuse such a log (see Verify). Of a log that recovery accepts, Salvage may
// return more: frames after a torn one, none of which was acknowledged as synced.
//
// Errors: kv.ErrUnsupportedVersion, those of the file system, and the error of fn.
// Cost: reads the log once.
func Salvage(fsys vfs.FS, dir string, storeID uint64, fn func(Record) error) (Salvaged, error) {
	nums, err := listSegments(fsys, dir)
	if err != nil {
		return Salvaged{}, err
	}
	s := salvage{fsys: fsys, dir: dir, store: storeID, nums: nums, fn: fn}
	for _, num := range nums {
		if err := s.segment(num); err != nil {
			return s.found, err
		}
	}
	s.finish()
	return s.found, nil
}

// Damaged is what Damages found besides the damage.
type Damaged struct {
	Records uint64    // whose frame verifies
	LastSeq kv.SeqNum // of the last of them
	NextSeq kv.SeqNum // above every number that the frames say was given out
	EndLost bool      // damage follows the last whole frame
}

// Damages reads a log that Verify refuses, and judges each segment by itself: it calls told for
// each damaged place that it can tell apart, in the order of the log, with the name of the segment
// and a *kv.CorruptionError, or what its reads returned. It calls check for each record whose frame
// verifies, once; an error of check that wraps kv.ErrCorrupt is damage of that frame. It changes
// nothing.
//
// As for recovery, a part without whole frames is damage if anything in the log says that the
// log was synced beyond it. Otherwise it may be what a crash left of a write, and is not told.
// Damages does not check what only Verify does: the order of whole frames, and what recoveries of
// earlier versions left. So what Verify found counts too.
//
// Errors: those of listing dir, and any other error of check.
// Cost: reads the log twice, first for how far it was synced; memory for a frame.
func Damages(fsys vfs.FS, dir string, storeID uint64, check func(Record) error, told func(name string, err error)) (Damaged, error) {
	nums, err := listSegments(fsys, dir)
	if err != nil {
		return Damaged{}, err
	}
	first := salvage{fsys: fsys, dir: dir, store: storeID, nums: nums, fn: func(Record) error { return nil }, told: func(string, error) {}}
	s := salvage{fsys: fsys, dir: dir, store: storeID, nums: nums, fn: check, told: told}
	for _, pass := range []*salvage{&first, &s} {
		pass.synced = first.claim
		for _, num := range nums {
			err := pass.segment(num)
			if pass.stop != nil {
				return Damaged{}, pass.stop
			}
			if err != nil {
				pass.unread(segmentName(dir, num), err)
			}
		}
	}
	s.finish()
	return Damaged{Records: s.found.Records, LastSeq: s.found.LastSeq, NextSeq: s.found.NextSeq, EndLost: s.lost}, nil
}

// salvage is the state of one Salvage, or of one pass of Damages.
type salvage struct {
	fsys  vfs.FS
	dir   string
	store uint64
	nums  []uint64
	fn    func(Record) error

	told   func(name string, err error) // of Damages, which keeps no gaps; nil: Salvage
	synced address                      // of Damages: the log was surely synced up to here
	stop   error                        // of Damages: the error of fn that ends it
	lost   bool                         // of Damages: damage was told since the last whole frame
	empty  uint64                       // of Damages: the segment before, if it has nothing where frames should be

	found   Salvaged
	started bool // a whole frame was found
	first   kv.SeqNum
	last    kv.SeqNum
	low     uint64  // the lowest segment that must exist
	claim   address // the log was surely synced up to here
	end     address // end of the last whole frame
	ended   string  // the segment that ends with an end frame, if its successor was not seen
	places  []Place // damage since the last whole frame
}

// segment salvages one segment.
func (s *salvage) segment(num uint64) (err error) {
	name := segmentName(s.dir, num)
	r, h, err := openSegment(s.fsys, name, logfile.ID{Store: s.store, Segment: num})
	if r == nil {
		return err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	s.found.Segments++
	switch {
	case err != nil:
		s.damageIn(num, name, 0, min(segmentHeaderBytes, r.size), reasonOf(err))
	case h.store != s.store || h.num != num:
		s.damage(name, 0, r.size, fmt.Sprintf("it is segment %d of store %016x", h.num, h.store))
		return nil
	default:
		if (s.started || len(s.places) > 0) && h.prev >= s.nums[0] && !slices.Contains(s.nums, h.prev) {
			s.damage(segmentName(s.dir, h.prev), 0, 0, "the segment is missing")
		}
		if h.closed != 0 {
			s.claimed(address{num, h.closed})
		}
		if s.empty != 0 && s.empty == h.prev { // otherwise the log never continued there
			s.noFrame(s.empty, segmentHeaderBytes)
		}
	}
	s.ended, s.empty = "", 0
	return s.frames(r, num)
}

// frames salvages the frames of a segment.
func (s *salvage) frames(r *segmentReader, num uint64) error {
	for {
		f, reason, err := r.next()
		if errors.Is(err, kv.ErrCorrupt) {
			reason, err = reasonOf(err), nil
		}
		if err != nil {
			return err
		}
		if reason == "" {
			s.end = address{num, r.off}
			if err := s.frame(r.name, &f); err != nil {
				s.stop = err
				return fmt.Errorf("salvage %s at offset %d: %w", r.name, f.off, err)
			}
			if f.kind == FrameEnd {
				s.ended = r.name
			}
			continue
		}
		next, end, err := r.resync(r.off)
		if err != nil {
			return err
		}
		switch {
		case end > r.off: // not just zeros up to the end of the file
			s.damageIn(num, r.name, r.off, end-r.off, reason)
		case s.ended == r.name || !s.wasSynced(num, r.off):
		case r.off == segmentHeaderBytes:
			s.empty = num
		default:
			s.noFrame(num, r.off)
		}
		if next < 0 {
			return nil
		}
		r.off = next
	}
}

// frame adds a whole frame of a segment.
func (s *salvage) frame(name string, f *frame) error {
	switch {
	case !s.started:
		s.started, s.first, s.last = true, f.prev, f.prev
		s.skipEmpty(name)
		switch {
		case f.kind != FrameStart || name != segmentName(s.dir, s.nums[0]):
			s.gap(1, f.prev)
		case len(s.places) > 0: // only the header is before it
			s.gap(f.prev+1, f.prev)
		}
	case f.prev > s.last || len(s.places) > 0:
		s.gap(s.last+1, f.prev)
		s.last = max(s.last, f.prev)
	}
	s.lost = false
	s.low = max(s.low, f.low)
	s.found.NextSeq = max(s.found.NextSeq, f.next)
	s.claimed(f.synced)
	return f.each(func(r Record) error {
		if r.Base <= s.last {
			return nil // a copy of an earlier frame
		}
		s.last = r.Last()
		s.found.Records++
		s.found.LastSeq = s.last
		err := s.fn(r)
		if s.told != nil && errors.Is(err, kv.ErrCorrupt) {
			s.told(name, kv.Corruptf(name, f.off, "%s", reasonOf(err)))
			return nil
		}
		return err
	})
}

// skipEmpty drops the segments before the first whole frame, which s.end is behind, if they hold
// nothing: the log never continued in them, and what was before them was reclaimed.
func (s *salvage) skipEmpty(first string) {
	if len(s.places) == 0 || s.places[0].File == first {
		s.nums = s.nums[slices.Index(s.nums, s.end.segment):]
	}
}

func (s *salvage) claimed(a address) {
	if s.claim.less(a) {
		s.claim = a
	}
}

func (s *salvage) damage(file string, offset, bytes int64, reason string) {
	s.places = append(s.places, Place{file, offset, bytes, reason})
	if s.told == nil {
		return
	}
	if offset == 0 && bytes == 0 {
		offset = -1 // the whole segment
	}
	s.lost = true
	s.told(file, kv.Corruptf(file, offset, "%s", reason))
}

// noFrame adds a place after which a segment has nothing, although the log was synced beyond it.
func (s *salvage) noFrame(num uint64, offset int64) {
	s.damage(segmentName(s.dir, num), offset, 0, fmt.Sprintf("no whole frame here, but the log was synced up to segment %d offset %d", s.synced.segment, s.synced.off))
}

// damageIn adds a part of a segment without whole frames. Of Damages it is told only if the
// log was synced beyond its beginning.
func (s *salvage) damageIn(num uint64, file string, offset, bytes int64, reason string) {
	if s.told != nil && !s.wasSynced(num, offset) {
		s.places = append(s.places, Place{file, offset, bytes, reason})
		return
	}
	s.damage(file, offset, bytes, reason)
}

// wasSynced reports whether Damages knows that the log was synced beyond a place.
func (s *salvage) wasSynced(num uint64, offset int64) bool {
	return s.told != nil && address{num, offset}.less(s.synced)
}

// unread adds a segment that Damages cannot read any further.
func (s *salvage) unread(name string, err error) {
	s.places, s.lost = append(s.places, Place{File: name, Reason: err.Error()}), true
	s.told(name, err)
}

// gap ends the damage since the last whole frame.
func (s *salvage) gap(from, to kv.SeqNum) {
	g := Gap{Places: s.places, From: from, To: to}
	if g.Lost() {
		g.Records = uint64(to - from + 1)
		room := uint64(0)
		for _, p := range g.Places {
			if p.Bytes == 0 {
				room = g.Records
			}
			room += uint64(p.Bytes / recordHeaderBytes)
		}
		if room > 0 {
			g.Records = min(g.Records, room)
		}
	}
	s.places = nil
	if s.told == nil {
		s.found.Gaps = append(s.found.Gaps, g)
	}
}

// finish judges the two ends of the log.
func (s *salvage) finish() {
	switch {
	case s.empty != 0:
		s.noFrame(s.empty, segmentHeaderBytes)
	case len(s.places) > 0:
	case s.ended != "":
		s.damage(s.ended, s.end.off, 0, "the log continues after this segment, but the next one is missing")
	case s.end.less(s.claim):
		s.damage(segmentName(s.dir, s.claim.segment), s.end.off, 0,
			fmt.Sprintf("the log was synced up to segment %d offset %d", s.claim.segment, s.claim.off))
	case !s.started:
		s.damage(s.dir, 0, 0, "the commit log is missing")
	}
	lowMissing := s.started && 0 < s.low && s.low < s.nums[0] && s.first > 0
	if s.told != nil {
		if lowMissing {
			name := segmentName(s.dir, s.low)
			s.told(name, kv.Corruptf(name, -1, "segment is missing: the log begins with %s", segmentName(s.dir, s.nums[0])))
		}
		return
	}
	if len(s.places) > 0 {
		s.found.Gaps = append(s.found.Gaps, Gap{Places: s.places, From: s.last + 1, To: kv.MaxSeqNum, Open: true})
	}
	if lowMissing {
		s.found.Gaps = slices.Insert(s.found.Gaps, 0, Gap{
			Places: []Place{{File: segmentName(s.dir, s.low), Reason: "the segment is missing"}},
			From:   1, To: s.first, Records: uint64(s.first),
		})
	}
}

// resync returns the offset of the next whole frame after from, -1 if there is none, and the
// end of what lies between: that offset, or the end of the last byte that is not zero.
func (r *segmentReader) resync(from int64) (next, end int64, err error) {
	end = from
	for off := padded(from); off < r.size; off += readAhead {
		n := min(readAhead, r.size-off)
		chunk, err := r.bytes(off, n)
		if err != nil {
			return 0, 0, err
		}
		last := lastNonZero(chunk)
		if last < 0 {
			continue
		}
		end = off + int64(last) + 1
		for i := int64(0); i+4 <= n && i <= int64(last); i += frameAlign {
			if chunk, err = r.bytes(off, n); err != nil { // again: frameAt may have moved the buffer
				return 0, 0, err
			}
			if binary.LittleEndian.Uint32(chunk[i:]) != frameMagic || off+i == from {
				continue
			}
			_, reason, err := r.frameAt(off + i)
			switch {
			case errors.Is(err, kv.ErrCorrupt):
			case err != nil:
				return 0, 0, err
			case reason == "":
				return off + i, off + i, nil
			}
		}
	}
	return -1, end, nil
}

// reasonOf returns the reason of a corruption, without the file.
func reasonOf(err error) string {
	if damage, ok := errors.AsType[*kv.CorruptionError](err); ok {
		return damage.Reason
	}
	return err.Error()
}
