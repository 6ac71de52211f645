package history

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kvd-db/kvd/internal/kv"
)

// cell is what the map of the replay holds for a key.
type cell struct {
	value   Value
	version kv.SeqNum // of the last write, which may be a delete
	by      *Op
}

// view is an Op to compare when the replay reaches a version.
type view struct {
	at kv.SeqNum
	op *Op
}

// replay applies the writes in the order of their versions and compares every read with
// the map (R2, R3).
//
// For a key that a Get or a Snapshot found absent, it stores the version of the delete
// in the Read, which followTime needs.
func (c *checker) replay() {
	views := c.sortedViews()
	for _, o := range c.commits {
		for len(views) > 0 && views[0].at < o.Version {
			c.compare("R2", views[0].op, views[0].at)
			views = views[1:]
		}
		if o.ReadVersion >= o.Version {
			c.violated("R2", func() string { return fmt.Sprintf("what was read is newer than what was written:\n  %s", o) })
		}
		c.compare("R3", o, o.Version)
		c.apply(o)
	}
	for _, v := range views {
		c.compare("R2", v.op, v.at)
	}
}

// sortedViews returns all Ops that read at a version, in order of the versions.
func (c *checker) sortedViews() []view {
	views := make([]view, 0, len(c.views)+len(c.commits))
	for _, o := range c.views {
		at := o.ReadVersion
		if at == 0 && o.Kind == Get {
			at = o.Reads[0].Version // the value was present when it was written
		}
		views = append(views, view{at, o})
	}
	for _, o := range c.commits {
		if o.ReadVersion != 0 {
			views = append(views, view{o.ReadVersion, o})
		}
	}
	slices.SortFunc(views, func(a, b view) int { return cmp.Compare(a.at, b.at) })
	return views
}

// apply applies the writes of an Op in their order.
func (c *checker) apply(o *Op) {
	for _, w := range o.Writes {
		for k := w.Key; k < w.end(); k++ {
			c.cells[k] = cell{w.Value, o.Version, o}
		}
	}
}

// compare compares what an Op read with the current map.
func (c *checker) compare(rule string, o *Op, at kv.SeqNum) {
	for i := range o.Reads {
		r := &o.Reads[i]
		if !c.cells[r.Key].shows(*r) && !c.mayShow(*r, o) {
			c.wrong(rule, o, at, *r)
		} else if r.Value == Absent && o.Kind != Commit {
			r.Version = c.cells[r.Key].version
		}
	}
	for _, s := range o.Scans {
		seen := s.Seen
		for k := s.From; k < s.To; k++ {
			r := Read{Key: k}
			if len(seen) > 0 && seen[0].Key == k {
				r, seen = seen[0], seen[1:]
			}
			if !c.cells[k].shows(r) {
				c.wrong(rule, o, at, r)
			}
		}
		if len(seen) > 0 {
			c.violated(rule, func() string { return fmt.Sprintf("a scan gave %s where it does not belong:\n  %s", seen[0], o) })
		}
	}
}

// shows reports whether r is a correct read of the cell.
func (c *cell) shows(r Read) bool {
	switch r.Value {
	case Absent:
		return c.value == Absent
	case Unseen:
		return c.value != Absent && (r.Version == 0 || r.Version == c.version)
	}
	return c.value == r.Value && (r.Version == 0 || r.Version == c.version)
}

// mayShow reports whether a read that tells only that its key is present may have seen a write of
// unknown outcome. No client has read its value, so its place is not known; but it has only one,
// between two known writes of the key. It is given the place of the first read that needs it.
// Of several such writes the one that was called last is taken: the others may explain later reads.
func (c *checker) mayShow(r Read, o *Op) bool {
	if r.Value != Unseen || r.Version != 0 {
		return false
	}
	last := c.cells[r.Key].by
	var found *unseen
	for _, u := range c.maybe[r.Key] {
		switch {
		case u.by.Call >= o.Return:
		case u.taken && u.after == last:
			return true
		case !u.taken && (found == nil || u.by.Call > found.by.Call):
			found = u
		}
	}
	if found != nil {
		found.taken, found.after = true, last
	}
	return found != nil
}

// wrong reports an incorrect read.
func (c *checker) wrong(rule string, o *Op, at kv.SeqNum, r Read) {
	c.violated(rule, func() string {
		cell := &c.cells[r.Key]
		what := fmt.Sprintf("at version %d a client read %s, but it was %s:\n  %s", at, r, Read{r.Key, cell.value, cell.version}, o)
		if cell.by != nil {
			what += fmt.Sprintf("\n  last written by %s", cell.by)
		}
		if writer := c.writerOf(r); writer != nil {
			what += fmt.Sprintf("\n  what was seen was written by %s", writer)
		}
		return what
	})
}

// writerOf returns the Op that wrote what a read returned.
func (c *checker) writerOf(r Read) *Op {
	if r.Value == Absent {
		return nil
	}
	return c.commitAt(r.Version)
}
