package commit

import (
	"slices"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/partition"
)

// with returns a set with the numbers of one record more. line is what stays in line:
// of records that leave it together, none is in it when the first of them is added. Two
// ranges of the set are joined unless a record of the line lies between them, so there is
// at most one more than there are records in the line.
func with(s partition.Early, r partition.Numbers, line []*pending) partition.Early {
	i := s.Search(r.First)
	next := make(partition.Early, 0, len(s)+1)
	for _, n := range slices.Concat(s[:i], partition.Early{r}, s[i:]) {
		if k := len(next) - 1; k >= 0 && !anyBetween(line, next[k].Last, n.First) {
			next[k].Last = max(next[k].Last, n.Last) // n may lie in the range already
		} else {
			next = append(next, n)
		}
	}
	return next
}

// anyBetween reports whether a record of the line has numbers between two.
func anyBetween(line []*pending, after, before kv.SeqNum) bool {
	return slices.ContainsFunc(line, func(rec *pending) bool {
		return rec.units > 0 && after < rec.base && rec.base < before
	})
}

// applyEarly inserts, shows and answers the records of the line that have the durability
// that they asked for, although the head of the line does not. It reports whether there
// was one. The caller is the leader.
//
// Records enter the memtable in the order of the log, so what lies before such a record
// is inserted with it, and stays hidden: it is neither published nor early.
func (c *Coordinator) applyEarly() bool {
	ready, before := c.readyBeyondHead()
	if len(ready) == 0 {
		return false
	}
	for _, rec := range before {
		if rec.units > 0 && !rec.inserted {
			c.insert(rec)
		}
	}
	c.leaveLine(ready)
	c.stats.early.Add(uint64(len(ready)))
	for _, rec := range ready {
		c.opts.Applied.Applied(rec.base, rec.units)
		if rec.commit != nil {
			rec.commit.show()
		}
		c.decide(rec, nil)
	}
	return true
}

// readyBeyondHead returns the records that are ready early, and all of the line up to
// the last of them.
func (c *Coordinator) readyBeyondHead() (ready, line []*pending) {
	c.appendMu.Lock()
	defer c.appendMu.Unlock()
	if len(c.line.inflight) == 0 {
		return nil, nil
	}
	if head := c.line.inflight[0]; !head.arrived && !head.waits() && !c.line.levels.anyBelow(head.level) {
		return nil, nil
	}
	var hidden []*pending // which not every record may overtake
	for i, rec := range c.line.inflight {
		switch {
		case rec.mayBeEarly() && c.durable(rec) && !rec.waits() && !rec.overtakes(hidden):
			ready, line = append(ready, rec), c.line.inflight[:i+1]
		case rec.together:
			hidden = append(hidden, rec)
		}
	}
	return ready, slices.Clone(line)
}

// mayBeEarly reports whether the record may be shown and answered before what is in line
// before it. It must concern this partition alone: one over several must be shown in all
// of them by one store, and what lies before it in each of them need not be ready. It must
// delete no range, which lookupEarly does not look for. And it must answer no write that
// was sent again: the first attempt may be one of those before it.
func (r *pending) mayBeEarly() bool {
	return r.units > 0 && r.duplicates == 0 && !r.rangeDeletes && (r.commit == nil || len(r.commit.participants) == 1)
}

// overtakes reports whether the record writes a key that is written by one of those before
// it that concern several keys at once. Else a reader could see the record, which comes
// after the batch or the transaction, and then find in another key that those have not
// happened. (Of a single write before it no reader can tell.) What those have read is in a
// readMark. What the record itself has read is in none of those, or it would have been
// refused.
func (r *pending) overtakes(hidden []*pending) bool {
	return slices.ContainsFunc(hidden, func(before *pending) bool {
		return slices.ContainsFunc(r.hashes, before.concerns)
	})
}

// leaveLine takes records out of the line and shows them, in this order: what changedLocked
// does not find in line it must find in a memtable, and both hold before that.
func (c *Coordinator) leaveLine(ready []*pending) {
	c.appendMu.Lock()
	defer c.appendMu.Unlock()
	for _, rec := range ready {
		c.line.levels.add(rec, -1)
		c.inflightBytes.Add(-int64(len(rec.payload)))
	}
	c.line.inflight = slices.DeleteFunc(c.line.inflight, func(rec *pending) bool { return slices.Contains(ready, rec) })
	for _, rec := range ready {
		c.early = with(c.early, partition.Numbers{First: rec.base, Last: rec.last()}, c.line.inflight)
	}
	c.tree.ShowEarly(c.early)
}

// lineBegin returns the first number of the line, or one larger than any if it has none.
func (c *Coordinator) lineBegin() kv.SeqNum {
	c.appendMu.Lock()
	defer c.appendMu.Unlock()
	for _, rec := range c.line.inflight {
		if rec.units > 0 {
			return rec.base
		}
	}
	return kv.MaxSeqNum + 1
}

// publishEarly publishes the records that were early and now have nothing before them.
// The head of the line has just been published and taken out.
func (c *Coordinator) publishEarly() {
	if len(c.early) == 0 {
		return
	}
	i := c.early.Search(c.lineBegin())
	if i == 0 {
		return
	}
	c.published = max(c.published, c.early[i-1].Last)
	c.tree.Publish(c.published)
	c.early = c.early[i:]
	if len(c.early) == 0 {
		c.early = nil
	}
	c.tree.ShowEarly(c.early) // after Publish
}

// levelCounts counts the records of a line that may be early, by the durability that
// they asked for.
type levelCounts [kv.DurabilitySync + 1]int

func (c *levelCounts) add(rec *pending, n int) {
	if rec.mayBeEarly() {
		c[rec.level] += n
	}
}

// anyBelow reports whether a record asked for less than level. If none did, none can be
// ready before one of that level.
func (c *levelCounts) anyBelow(level kv.Durability) bool {
	for _, n := range c[:level] {
		if n > 0 {
			return true
		}
	}
	return false
}
