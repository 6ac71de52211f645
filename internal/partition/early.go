package partition

import (
	"cmp"
	"slices"

	"github.com/kvd-db/kvd/internal/kv"
)

// early is the numbers of records that readers of single keys see although a record
// before them in the line is not durable yet. Each asked for less than that record did,
// and has it. Immutable; nil is the empty set.
//
// The ranges ascend. Two of them are joined unless a record of the line lies between
// them, so there is at most one more than there are records in the line.
type early []numbers

// numbers is the sequence numbers from first to last.
type numbers struct{ first, last kv.SeqNum }

// with returns the set with the numbers of one record more. line is what stays in line:
// of records that leave it together, none is in it when the first of them is added.
func (s early) with(r numbers, line []*pending) early {
	i := s.search(r.first)
	next := make(early, 0, len(s)+1)
	for _, n := range slices.Concat(s[:i], early{r}, s[i:]) {
		if k := len(next) - 1; k >= 0 && !anyBetween(line, next[k].last, n.first) {
			next[k].last = max(next[k].last, n.last) // n may lie in the range already
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

// search returns the place of the first range that does not begin before n.
func (s early) search(n kv.SeqNum) int {
	i, _ := slices.BinarySearchFunc(s, n, func(r numbers, n kv.SeqNum) int { return cmp.Compare(r.first, n) })
	return i
}

// has reports whether the set has a number.
func (s early) has(n kv.SeqNum) bool {
	i := s.search(n)
	return i < len(s) && s[i].first == n || i > 0 && n <= s[i-1].last
}

// newest returns the largest number of the set, 0 if it is empty.
func (s early) newest() kv.SeqNum {
	if len(s) == 0 {
		return 0
	}
	return s[len(s)-1].last
}

// applyEarly inserts, shows and answers the records of the line that have the durability
// that they asked for, although the head of the line does not. It reports whether there
// was one. The caller has the role.
//
// Records enter the memtable in the order of the log, so what lies before such a record
// is inserted with it, and stays hidden: it is neither published nor early.
func (p *Partition) applyEarly() bool {
	ready, before := p.readyBeyondHead()
	if len(ready) == 0 {
		return false
	}
	for _, rec := range before {
		if rec.units > 0 && !rec.inserted {
			p.insert(rec)
		}
	}
	p.leaveLine(ready)
	p.stats.early.Add(uint64(len(ready)))
	for _, rec := range ready {
		p.sequencer.Applied(rec.base, rec.units)
		if rec.commit != nil {
			rec.commit.show()
		}
		p.decide(rec, nil)
	}
	return true
}

// readyBeyondHead returns the records that are ready early, and all of the line up to
// the last of them.
func (p *Partition) readyBeyondHead() (ready, line []*pending) {
	p.turn.Lock()
	defer p.turn.Unlock()
	if len(p.turn.inflight) == 0 {
		return nil, nil
	}
	if head := p.turn.inflight[0]; !head.arrived && !head.waits() && !p.turn.levels.anyBelow(head.level) {
		return nil, nil
	}
	var hidden []*pending // which not every record may overtake
	for i, rec := range p.turn.inflight {
		switch {
		case rec.mayBeEarly() && p.durable(rec) && !rec.waits() && !rec.overtakes(hidden):
			ready, line = append(ready, rec), p.turn.inflight[:i+1]
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
func (p *Partition) leaveLine(ready []*pending) {
	p.turn.Lock()
	defer p.turn.Unlock()
	for _, rec := range ready {
		p.turn.levels.add(rec, -1)
		p.inflightBytes.Add(-int64(len(rec.payload)))
	}
	p.turn.inflight = slices.DeleteFunc(p.turn.inflight, func(rec *pending) bool { return slices.Contains(ready, rec) })
	set := p.earlySet()
	for _, rec := range ready {
		set = set.with(numbers{rec.base, rec.last()}, p.turn.inflight)
	}
	p.early.Store(&set)
}

// lineBegin returns the first number of the line, or one larger than any if it has none.
func (p *Partition) lineBegin() kv.SeqNum {
	p.turn.Lock()
	defer p.turn.Unlock()
	for _, rec := range p.turn.inflight {
		if rec.units > 0 {
			return rec.base
		}
	}
	return kv.MaxSeqNum + 1
}

func (p *Partition) earlySet() early {
	if set := p.early.Load(); set != nil {
		return *set
	}
	return nil
}

// publishEarly publishes the records that were early and now have nothing before them.
// The head of the line has just been published and taken out.
func (p *Partition) publishEarly() {
	set := p.earlySet()
	if set == nil {
		return
	}
	i := set.search(p.lineBegin())
	if i == 0 {
		return
	}
	p.published.Store(uint64(max(kv.SeqNum(p.published.Load()), set[i-1].last)))
	if rest := set[i:]; len(rest) > 0 {
		p.early.Store(&rest) // after published: see view
	} else {
		p.early.Store(nil)
	}
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
