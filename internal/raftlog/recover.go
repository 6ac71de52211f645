package raftlog

import (
	"fmt"
	"path"

	"github.com/kvd-db/kvd/internal/kv"
)

// discard removes the log of a creation that was interrupted.
func (s *recovery) discard() error {
	for _, g := range s.order {
		if g.last() > 0 || g.hard.GetTerm() > 0 {
			return kv.Corruptf(s.opts.Dir, -1, "the log of a new replica has entries or votes already: its description is lost")
		}
	}
	for i := len(s.nums) - 1; i >= 0; i-- {
		if err := s.remove(s.nums[i]); err != nil {
			return err
		}
	}
	s.groups, s.order, s.number, s.low = map[uint32]*Group{}, nil, 1, 0
	return nil
}

// create makes an empty log.
func (s *recovery) create() error {
	fsys := s.opts.FS
	if err := fsys.MkdirAll(s.opts.Dir); err != nil {
		return err
	}
	if err := fsys.SyncDir(path.Dir(s.opts.Dir)); err != nil {
		return err
	}
	f, err := s.createSegment(1)
	if err != nil {
		return err
	}
	s.files[1], s.low, s.report = f, 1, Recovery{Segments: 1}
	if err := s.begin(1); err != nil {
		return err
	}
	return s.sync()
}

// goOn makes the log that was read ready for writes. Every step leaves a log with the same
// contents.
func (s *recovery) goOn() error {
	if err := s.rewriteTail(); err != nil {
		return err
	}
	s.synced = s.address()
	for _, num := range s.nums { // after the sync of the mark that says that they are not needed
		if num < s.low {
			if err := s.remove(num); err != nil {
				return err
			}
		}
	}
	keep := 0
	if s.ended {
		keep = 1
	}
	for i := len(s.unused) - 1; i >= keep; i-- {
		if err := s.remove(s.unused[i]); err != nil {
			return err
		}
	}
	if err := s.opts.FS.SyncDir(s.opts.Dir); err != nil {
		return err
	}
	if s.ended {
		if err := s.clear(s.active + 1); err != nil {
			return err
		}
		if err := s.begin(s.active + 1); err != nil {
			return err
		}
	} else if err := s.goOnHere(); err != nil {
		return err
	}
	return s.sync()
}

// goOnHere continues in the last segment.
func (s *recovery) goOnHere() error {
	if !s.used {
		return s.begin(s.active)
	}
	return s.restate()
}

// rewriteTail makes durable what was read after the place up to which the log was surely
// synced, and cuts off what follows it.
func (s *recovery) rewriteTail() error {
	f := s.files[s.active]
	from := int64(0)
	if s.claim.segment == s.active {
		from = min(s.claim.off, s.off)
	}
	b := make([]byte, s.off-from)
	if len(b) > 0 {
		if _, err := f.ReadAt(b, from); err != nil {
			return fmt.Errorf("read %s at offset %d: %w", f.Name(), from, err)
		}
		if _, err := f.WriteAt(b, from); err != nil {
			return err
		}
	}
	if s.size > s.off {
		if err := f.Truncate(s.off); err != nil {
			return err
		}
	}
	return f.Sync()
}

// clear removes all but the header of a segment, durably.
func (s *recovery) clear(num uint64) error {
	f := s.files[num] // readUnused has opened it
	if err := f.Truncate(segmentHeaderBytes); err != nil {
		return err
	}
	return f.Sync()
}
