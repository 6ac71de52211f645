package raftlog

import (
	"errors"
	"fmt"
	"io"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/logfile"
	"github.com/kvd-db/kvd/internal/vfs"
)

// Recovery reports what Open found.
type Recovery struct {
	Segments     int
	DroppedBytes int64 // of a torn tail
}

// Open opens the log in a directory, or creates it if it is Fresh. See "Recovery" in the
// package comment.
//
// Errors: a *kv.CorruptionError for damage, and kv.ErrUnsupportedVersion; nothing has changed
// then.
func Open(o Options) (_ *Log, _ Recovery, err error) {
	if o.SegmentBytes == 0 {
		o.SegmentBytes = DefaultSegmentBytes
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = DefaultCacheBytes
	}
	s := newRecovery(o)
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("open Raft log: %w", err), s.closeFiles())
		}
	}()
	if err := s.read(); err != nil {
		return nil, Recovery{}, err
	}
	if o.Fresh {
		if err := s.discard(); err != nil {
			return nil, Recovery{}, err
		}
		if err := s.create(); err != nil {
			return nil, Recovery{}, err
		}
	} else if err := s.goOn(); err != nil {
		return nil, Recovery{}, err
	}
	if err := s.measure(); err != nil {
		return nil, Recovery{}, err
	}
	return s.Log, s.report, nil
}

func newRecovery(o Options) *recovery {
	return &recovery{
		Log:    &Log{opts: o, groups: map[uint32]*Group{}, files: map[uint64]vfs.File{}, sizes: map[uint64]int64{}, number: 1},
		hardAt: map[uint32]address{},
	}
}

// recovery reads a log and makes it ready for writes.
type recovery struct {
	*Log
	report Recovery
	nums   []uint64           // of all segments
	claim  address            // the log was synced at least up to here
	ended  bool               // the last segment with frames has an end frame
	used   bool               // it has a start frame
	hardAt map[uint32]address // the end of the last hard state of each group
	unused []uint64           // the segments after it, which hold no frames
	size   int64              // of the last segment with frames
	reads  bool               // nothing is to be changed
}

// read reads all segments, and checks that they are whole. It changes nothing.
func (s *recovery) read() error {
	var err error
	if s.nums, err = listSegments(s.opts.FS, s.opts.Dir); err != nil {
		return err
	}
	if len(s.nums) == 0 {
		if s.opts.Fresh {
			return nil
		}
		return kv.Corruptf(s.opts.Dir, -1, "the Raft log is missing: this replica has lost what it has acknowledged, and must not take part under its id")
	}
	from, err := s.lowest()
	if err != nil {
		return err
	}
	s.low = s.nums[from]
	for i := from; i < len(s.nums) && (i == from || s.ended); i++ {
		used, err := s.readSegment(i, from)
		if err != nil {
			return err
		}
		if !used {
			break
		}
	}
	if err := s.readUnused(); err != nil {
		return err
	}
	return s.checkGroups()
}

// lowest returns the place in nums of the lowest segment that counts: frames name it.
func (s *recovery) lowest() (int, error) {
	for i := len(s.nums) - 1; i > 0; i-- {
		b, err := s.load(s.nums[i])
		if err != nil {
			return 0, err
		}
		low := lowestNamed(b, s.id(s.nums[i]))
		if low == 0 {
			continue // no frame in this one
		}
		for from, num := range s.nums {
			if num >= low {
				if num > low {
					break
				}
				return from, nil
			}
		}
		return 0, kv.Corruptf(segmentName(s.opts.Dir, low), -1, "segment is missing: segment %d needs it", s.nums[i])
	}
	return 0, nil
}

// lowestNamed returns the lowest segment that must exist by the whole frames at the beginning
// of a segment; 0 if there are none. What follows a torn frame does not count: the restatement
// that makes the segments below dispensable may be torn too.
func lowestNamed(b []byte, id logfile.ID) (low uint64) {
	for off := int64(segmentHeaderBytes); off < int64(len(b)); {
		f, reason := decodeFrame(b[off:], id, off)
		if reason != "" {
			break
		}
		low, off = max(low, f.low), f.end()
	}
	return low
}

// load reads a segment into memory.
func (s *recovery) load(num uint64) ([]byte, error) {
	f := s.files[num]
	if f == nil {
		var err error
		open := s.opts.FS.OpenReadWrite
		if s.reads {
			open = s.opts.FS.Open
		}
		if f, err = open(segmentName(s.opts.Dir, num)); err != nil {
			return nil, err
		}
		s.files[num] = f
	}
	n, err := f.Size()
	if err != nil {
		return nil, err
	}
	b := make([]byte, n)
	if _, err := f.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	return b, nil
}

// readSegment replays segment nums[i], which the one before says exists. It reports false if
// that has a header and nothing else.
func (s *recovery) readSegment(i, from int) (used bool, err error) {
	num, name := s.nums[i], segmentName(s.opts.Dir, s.nums[i])
	if i > from && num != s.active+1 {
		return false, kv.Corruptf(segmentName(s.opts.Dir, s.active+1), -1, "segment is missing: %s follows it", name)
	}
	b, err := s.load(num)
	if err != nil {
		return false, err
	}
	h, err := decodeSegmentHeader(name, b)
	switch {
	case s.opts.Fresh && errors.Is(err, kv.ErrCorrupt) && !s.holdsFrames(b, num):
		return false, nil // a crash came while it was created
	case err != nil:
		return false, err
	case h.ID != s.id(num):
		return false, kv.Corruptf(name, 0, "segment belongs to another store, or was renamed")
	}
	s.claimed(address{num, h.closed})
	if i > from && !s.holdsFrames(b, num) && h.closed == 0 {
		return false, nil
	}
	return true, s.replaySegment(b, num)
}

// readUnused checks the segments after the end of the log: at most their headers were
// written before a crash.
func (s *recovery) readUnused() error {
	for _, num := range s.nums {
		if num <= s.active {
			continue
		}
		b, err := s.load(num)
		if err != nil {
			return err
		}
		if !s.ended && s.holdsFrames(b, num) {
			return kv.Corruptf(segmentName(s.opts.Dir, s.active), s.off, "unreadable from here on, but a later segment is in use")
		}
		if s.holdsFrames(b, num) {
			return kv.Corruptf(segmentName(s.opts.Dir, s.active+1), segmentHeaderBytes, "segment is empty, but a later one is in use")
		}
		s.unused = append(s.unused, num)
	}
	if s.ended && (len(s.unused) == 0 || s.unused[0] != s.active+1) {
		return kv.Corruptf(segmentName(s.opts.Dir, s.active+1), -1, "segment is missing: the one before it has an end frame")
	}
	return nil
}

// holdsFrames reports whether a segment holds anything that looks like a frame.
func (s *recovery) holdsFrames(b []byte, num uint64) bool {
	frames := 0
	scan(b, s.id(num), segmentHeaderBytes, func(frame) { frames++ })
	return frames > 0
}

// replaySegment applies the whole frames at the beginning of a segment, and decides whether
// what follows is torn or damaged.
func (s *recovery) replaySegment(b []byte, num uint64) error {
	name := segmentName(s.opts.Dir, num)
	s.active, s.off, s.size = num, segmentHeaderBytes, int64(len(b))
	s.ended, s.used = false, false
	s.report.Segments++
	reason := ""
	for s.off < s.size && !s.ended {
		var f frame
		if f, reason = decodeFrame(b[s.off:], s.id(num), s.off); reason != "" {
			break
		}
		if err := s.accept(&f); err != nil {
			return err
		}
	}
	tail, dropped := s.off, int64(0)
	scan(b, s.id(num), tail, func(f frame) {
		s.claimed(f.synced)
		dropped = f.off + frameHeaderBytes - tail
	})
	switch {
	case (address{num, tail}).less(s.claim):
		return kv.Corruptf(name, tail, "%s, but a later frame says that the log was synced beyond it; this replica has lost what it has acknowledged", reason)
	case s.ended && tail < s.size:
		return kv.Corruptf(name, tail, "bytes follow the end frame of the segment")
	}
	if tail < s.size {
		s.report.DroppedBytes += max(dropped, s.size-tail)
	}
	return nil
}

// scan calls fn for every frame header at or after an offset that is valid, whatever is
// between them and whether or not its payload is whole.
func scan(b []byte, id logfile.ID, from int64, fn func(frame)) {
	for off := from; off+frameHeaderBytes <= int64(len(b)); off += frameAlign {
		if f, _, _, reason := decodeHeader(b[off:], id, off); reason == "" {
			fn(f)
		}
	}
}

func (s *recovery) claimed(a address) {
	if s.claim.less(a) {
		s.claim = a
	}
}

// accept applies a whole frame.
func (s *recovery) accept(f *frame) error {
	first := f.off == segmentHeaderBytes
	reason := ""
	switch {
	case kindNames[f.kind] == "":
		reason = "frame of unknown kind"
	case first != (f.kind == kindStart):
		reason = fmt.Sprintf("%s frame in the wrong place", f.kind)
	case f.kind.ofGroup() != (len(f.payload) > 0), !f.kind.ofGroup() && f.group != 0:
		reason = fmt.Sprintf("%s frame with a payload of %d bytes for group %d", f.kind, len(f.payload), f.group)
	case first && s.report.Segments == 1:
		s.number = f.number
	case f.number != s.number:
		reason = fmt.Sprintf("frame has number %d, the one before it needs %d", f.number, s.number)
	}
	if reason == "" && (f.synced.off < 0 || (address{s.active, f.off}).less(f.synced)) {
		reason = "frame says that the log was synced beyond it"
	}
	var err error
	if reason == "" {
		if err = s.change(f); err != nil {
			reason = err.Error()
		}
	}
	if reason != "" {
		return kv.Corruptf(segmentName(s.opts.Dir, s.active), f.off, "%s", reason)
	}
	s.claimed(f.synced)
	s.low = max(s.low, f.low)
	s.used = true
	s.ended = f.kind == kindEnd
	s.off = f.end()
	s.number++
	return nil
}

// change applies a frame to its group.
func (s *recovery) change(f *frame) error {
	switch f.kind {
	case kindHardState:
		h, err := decodeHardState(f.payload)
		if err == nil {
			s.Group(f.group).hard = h
			s.hardAt[f.group] = address{s.active, f.end()}
		}
		return err
	case kindSnapshot:
		m, err := decodeMark(f.payload)
		if err != nil {
			return err
		}
		if m.installed {
			s.Group(f.group).install(m)
			return nil
		}
		s.Group(f.group).mark = m
	case kindCompaction:
		index, term, err := decodeCompaction(f.payload)
		if g := s.Group(f.group); err == nil && index > g.offset {
			g.compact(index, term)
		}
		return err
	case kindEntries:
		return s.entries(f)
	}
	return nil
}

// entries notes the places of the entries of a frame. The log may begin with entries far
// above the compaction that was restated before them: those in between were in segments that
// were deleted, and checkGroups makes sure that they were given up.
func (s *recovery) entries(f *frame) error {
	g := s.Group(f.group)
	first, last := uint64(0), uint64(0)
	err := decodeEntries(f.payload, func(index, _ uint64, _ entryType, _ []byte) {
		if first == 0 {
			first = index
		}
		last = index
	})
	switch {
	case err != nil:
		return err
	case last <= g.offset:
		return nil
	case first > g.last()+1 && (len(g.ents) > 0 || s.low == 1):
		return fmt.Errorf("entries from index %d on, but the log ends at %d", first, g.last())
	case first > g.last()+1:
		g.first = first
	}
	g.place(f.payload, address{s.active, f.off})
	return nil
}

// checkGroups checks that every group is whole.
func (s *recovery) checkGroups() error {
	for _, g := range s.order {
		h := g.hard
		switch {
		case g.first > g.offset+1:
			return kv.Corruptf(s.opts.Dir, -1, "entries %d to %d of group %d are missing", g.offset+1, g.first-1, g.id)
		case g.lastTerm() > max(h.GetTerm(), g.mark.term):
			return kv.Corruptf(s.opts.Dir, -1, "group %d has an entry of term %d, and never knew a term above %d", g.id, g.lastTerm(), h.GetTerm())
		case g.mark.index > g.last():
			return kv.Corruptf(s.opts.Dir, -1, "the snapshot of group %d is at index %d, but its log ends at %d", g.id, g.mark.index, g.last())
		case h.GetCommit() > g.last() && !s.claim.less(s.hardAt[g.id]): // it was synced, and its entries with it
			return kv.Corruptf(s.opts.Dir, -1, "group %d committed up to index %d, but its log ends at %d", g.id, h.GetCommit(), g.last())
		}
		for i := 1; i < len(g.ents); i++ {
			if g.ents[i].term < g.ents[i-1].term {
				return kv.Corruptf(s.opts.Dir, -1, "terms of group %d go back at index %d", g.id, g.first+uint64(i))
			}
		}
		g.hard = withCommit(h, max(min(h.GetCommit(), g.last()), g.mark.index))
	}
	return nil
}
