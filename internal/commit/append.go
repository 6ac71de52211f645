package commit

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/trace"
	"github.com/kvd-db/kvd/internal/wal"
)

// collect takes one micro-batch from the inbox, unless one waits for room in the log, and
// appends it to the log. It returns how long to wait for writes that linger.
func (c *Coordinator) collect() (again time.Duration) {
	if c.noRoom.Load() || c.inflightBytes.Load() >= c.opts.InflightBytes {
		return 0
	}
	if len(c.taken) == 0 {
		c.taken, again = c.inbox.Take(c.taken)
	}
	c.commitTaken()
	return again
}

// lead takes what is queued together with a caller's own group, and appends it to the log.
func (c *Coordinator) lead(g *WriteGroup) {
	c.taken, _ = c.inbox.Take(append(c.taken, g))
	c.commitTaken()
}

func (c *Coordinator) commitTaken() {
	if len(c.taken) > 0 {
		c.appended = c.commit() > 0 || c.appended
		c.progress = !c.noRoom.Load()
	}
}

// commit makes the groups taken one record, or two if some ask for a sync and others do
// not, and appends those to the log. It returns the position of the last record; 0 if
// there is none. Groups for which the log has no room yet stay in c.taken.
func (c *Coordinator) commit() (pos wal.Pos) {
	if weaker := c.weakerFirst(); weaker > 0 {
		var ok bool
		if pos, ok = c.commitFirst(weaker); !ok || len(c.taken) == 0 {
			return pos
		}
	}
	last, _ := c.commitFirst(len(c.taken))
	return max(pos, last)
}

// commitFirst commits the first n of the groups taken. If the log has no room yet, it
// leaves them there and reports false; roomWaker then has them tried again.
func (c *Coordinator) commitFirst(n int) (pos wal.Pos, ok bool) {
	pos, err := c.commitGroups(c.taken[:n])
	if err != nil {
		c.noRoom.Store(true)
		c.log.OnRoom(roomWaker{c})
		return 0, false
	}
	c.taken = slices.Delete(c.taken, 0, n)
	return pos, true
}

// roomWaker has the leader try again to append what the log had no room for.
type roomWaker struct{ c *Coordinator }

// Wake implements wal.Waker.
func (w roomWaker) Wake() {
	w.c.noRoom.Store(false)
	w.c.Wake()
}

// RunReady implements wal.Waker.
func (w roomWaker) RunReady() { w.Wake() }

// weakerFirst puts the groups that ask for no sync before the others, each in their
// order, and returns how many they are. (All are concurrent, so any order is right.)
func (c *Coordinator) weakerFirst() (weaker int) {
	for _, g := range c.taken {
		if g.level < kv.DurabilitySync {
			weaker++
		}
	}
	if weaker > 0 && weaker < len(c.taken) {
		slices.SortStableFunc(c.taken, func(a, b *WriteGroup) int {
			return cmp.Compare(min(a.level, kv.DurabilitySync-1), min(b.level, kv.DurabilitySync-1))
		})
	}
	return weaker
}

// commitGroups makes the groups one record, appends that to the log, and returns its
// position; 0 if there is none. The only error is wal.ErrNoRoomYet: nothing has happened
// then.
func (c *Coordinator) commitGroups(groups []*WriteGroup) (wal.Pos, error) {
	rec := c.newPending()
	if anyTimed(groups) {
		rec.trace = new(trace.Batch)
		rec.trace.Taken.Set(time.Now())
	}
	err := c.append(rec, groups)
	if errors.Is(err, wal.ErrNoRoomYet) {
		for _, g := range slices.Concat(rec.groups, rec.refused) {
			g.retract()
		}
		c.recycle(rec)
		return 0, err
	}
	refused, pos := rec.refused, rec.pos // 0 unless it is in the log
	rec.refused = nil
	if err != nil || len(rec.groups) == 0 {
		c.decide(rec, err)
	}
	for _, g := range refused { // they wait for nothing
		g.decide(0, nil)
	}
	return pos, nil
}

// append lays the groups out as one record, appends it to the log and puts it in line. It
// does so under appendMu, because the order of the log decides which writes are new.
func (c *Coordinator) append(rec *pending, groups []*WriteGroup) error {
	c.appendMu.Lock()
	defer c.appendMu.Unlock()
	c.layOutLocked(rec, groups)
	if len(rec.groups) == 0 {
		return nil
	}
	if rec.units > 0 {
		if rec.trace != nil {
			rec.trace.Handed.Set(time.Now())
		}
		base, pos, err := c.log.Append(rec.payload, rec.units, rec.level, c, rec.trace)
		if err != nil {
			return err
		}
		rec.base, rec.pos = base, pos
		for _, conflict := range rec.conflicts {
			conflict.number(rec.last())
		}
		for _, u := range rec.named {
			c.line.ids.add(u.id, base+kv.SeqNum(u.unit), u.content)
		}
	}
	c.stats.duplicates.Add(uint64(rec.duplicates))
	if rec.ops > 0 {
		c.stats.writes.Record(uint64(rec.ops))
	}
	c.enqueueLocked(rec)
	return nil
}

// layOutLocked encodes the groups as one record, leaving out those whose callers
// gave up, those that are refused, and the writes that were applied before.
func (c *Coordinator) layOutLocked(rec *pending, groups []*WriteGroup) {
	for _, g := range groups {
		g.mu.Lock()
		if g.abandoned {
			g.mu.Unlock()
			continue
		}
		if !c.admitLocked(g, rec) {
			rec.refused = append(rec.refused, g)
			g.mu.Unlock()
			continue
		}
		rec.groups = append(rec.groups, g)
		g.trace, g.entered = rec.trace, true
	}
	if rec.ops > 0 {
		rec.encoder.Section(c.opts.ID, rec.ops)
	}
	for _, g := range rec.groups {
		g.encode(rec)
		g.mu.Unlock()
	}
	c.reads.Reset() // the keys are the callers'
	c.written.reset()
	rec.payload = rec.encoder.Bytes()
}

// enqueueLocked puts a record that the log has in line for the tree.
func (c *Coordinator) enqueueLocked(rec *pending) {
	if rec.units > 0 {
		rec.after = c.precedingLocked(rec)
	}
	c.line.inflight = append(c.line.inflight, rec)
	c.line.levels.add(rec, 1)
	c.inflightBytes.Add(int64(len(rec.payload)))
	if rec.units > 0 {
		c.line.last = rec.last()
	}
}

func (c *Coordinator) newPending() *pending {
	if n := len(c.spare); n > 0 {
		rec := c.spare[n-1]
		c.spare[n-1] = nil // so that a record that grows too large to be kept can be collected
		c.spare = c.spare[:n-1]
		return rec
	}
	return &pending{}
}

// recycle keeps a record's memory for the next one. The leader calls it, with records that
// layOutLocked made.
func (c *Coordinator) recycle(rec *pending) {
	const keepBytes, keepRecords = 1 << 20, 16
	if cap(rec.payload) > keepBytes || len(c.spare) >= keepRecords {
		return
	}
	clear(rec.groups)
	rec.encoder.Reset()
	*rec = pending{encoder: rec.encoder, groups: rec.groups[:0], hashes: rec.hashes[:0], named: rec.named[:0]}
	c.spare = append(c.spare, rec)
}
