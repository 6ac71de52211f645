package commit

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/record"
)

// readMark is what a proposal has read in one partition,
// whether it writes there or not. Until the proposal is visible, a later write to what it
// read is not visible either: else a reader could see that write, which comes after the
// proposal, and then find in another key, perhaps of another partition, that the proposal
// has not happened.
//
// It is in memory alone. What a crash leaves is a prefix of the log, in which no record is
// without those that it follows.
type readMark struct {
	commit *Commit
	keys   []uint64 // hashes, ascending
	ranges []kv.Range
}

// readMarks returns the marks of a proposal's shares, nil for one that has none; nil if none has.
func (p *Proposal) readMarks(c *Commit) []*readMark {
	marks := make([]*readMark, len(p.Shares))
	var ranges []kv.Range // the same in all shares
	for i := range p.Shares {
		r := &p.Shares[i].Reads
		if r.Empty() {
			continue
		}
		m := &readMark{commit: c, keys: make([]uint64, len(r.Keys))}
		for j := range r.Keys {
			m.keys[j] = r.Keys[j].Hash
		}
		slices.Sort(m.keys)
		if len(r.Ranges) > 0 {
			if ranges == nil {
				ranges = cloneRanges(r.Ranges)
			}
			m.ranges = ranges
		}
		marks[i] = m
		c.read = append(c.read, p.Shares[i].Coordinator)
	}
	return marks
}

func cloneRanges(ranges []kv.Range) []kv.Range {
	clone := slices.Clone(ranges)
	for i, r := range clone {
		clone[i] = kv.Range{Start: bytes.Clone(r.Start), End: bytes.Clone(r.End)}
	}
	return clone
}

// concerns reports whether a record of a partition writes what was read. It says yes to
// every range delete.
func (m *readMark) concerns(rec *pending, partition int) bool {
	if rec.rangeDeletes || slices.ContainsFunc(rec.hashes, m.hasKey) {
		return true
	}
	if len(m.ranges) == 0 {
		return false
	}
	found := false
	err := record.Decode(rec.payload, func(op *record.Op) error {
		found = found || op.Partition == partition && m.hasInRange(op.Key)
		return nil
	})
	if err != nil { // as in insert
		panic(fmt.Sprintf("partition %d: own record is malformed: %v", partition, err))
	}
	return found
}

func (m *readMark) hasKey(hash uint64) bool {
	_, found := slices.BinarySearch(m.keys, hash)
	return found
}

func (m *readMark) hasInRange(key []byte) bool {
	return slices.ContainsFunc(m.ranges, func(r kv.Range) bool { return r.Contains(key) })
}

// addMarkLocked adds the mark of a proposal that has just been appended to the log. The
// caller holds appendMu.
func (c *Coordinator) addMarkLocked(m *readMark) {
	c.dropMarksLocked()
	c.line.marks = append(c.line.marks, m)
}

// dropMarksLocked takes the marks of visible proposals out, so that no more stay than
// there are proposals under way.
func (c *Coordinator) dropMarksLocked() {
	c.line.marks = slices.DeleteFunc(c.line.marks, func(m *readMark) bool { return m.commit.joint.Visible() })
}

// precedingLocked returns the proposals that a record must not be visible before. The
// caller holds appendMu, and has just appended the record to the log.
func (c *Coordinator) precedingLocked(rec *pending) (commits []*Commit) {
	if len(c.line.marks) == 0 {
		return nil
	}
	c.dropMarksLocked()
	for _, m := range c.line.marks {
		if m.concerns(rec, c.opts.ID) {
			m.commit.followed.Store(true) // before waits looks whether it is visible: see show
			commits = append(commits, m.commit)
		}
	}
	return commits
}

// waits reports whether a proposal that has read what the record writes is not visible.
func (r *pending) waits() bool {
	return slices.ContainsFunc(r.after, func(c *Commit) bool { return !c.joint.Visible() })
}
