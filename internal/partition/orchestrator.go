package partition

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/record"
	"github.com/kvd-db/kvd/internal/trace"
	"github.com/kvd-db/kvd/internal/wal"
)

// Wake tells the orchestrator that there may be something to do. It never
// blocks. The commit log calls it when it has written or synced.
func (p *Partition) Wake() { p.role.note() }

// Work does what there is to do, unless somebody is at it. The commit log calls it when
// it has synced and has nothing else to do: the orchestrator need not be woken then.
func (p *Partition) Work() {
	if p.role.takeOrNote() {
		p.finish()
	}
}

// orchestrate runs until the inbox is closed and everything taken is decided.
func (p *Partition) orchestrate() {
	defer close(p.stopped)
	linger := time.NewTimer(time.Hour)
	linger.Stop()
	defer linger.Stop()
	defer p.opts.Events.Guard()
	for {
		select {
		case <-p.role.signal:
		case <-linger.C:
		}
		if !p.role.takeOrNote() {
			continue // who has it passes it on
		}
		for more := true; more; more = !p.role.leave() {
			// Those that are about to queue make the batch larger: one yield took 16
			// partitions with 256 writers from 273 k to 361 k synced puts a second.
			runtime.Gosched()
			if again := p.work(); again > 0 {
				linger.Reset(again)
			}
			if p.closing.Load() && p.idle() {
				return // the role is nobody's any more
			}
		}
	}
}

// work does all there is to do now. It returns when to come again for what should
// linger in the inbox; zero: only when there is a note. The caller has the role.
func (p *Partition) work() (again time.Duration) {
	for {
		p.role.sawAll()
		took, wait := p.collect()
		applied := p.applyReady()
		p.sealIfDue()
		again = max(again, wait)
		if !took && !applied {
			return again
		}
	}
}

// tryLead takes the role for the caller of a group, and reports whether it did: only if
// no other goroutine has it, and the group need not wait.
func (p *Partition) tryLead() bool {
	if p.opts.Writes.Linger > 0 || !p.role.tryTake() {
		return false
	}
	if p.closing.Load() || p.inflightBytes.Load() >= p.opts.InflightBytes || len(p.taken) > 0 {
		p.yield()
		return false
	}
	return true
}

// finish does what the log allows now, and gives the role up.
func (p *Partition) finish() {
	p.role.sawAll() // the log's note of what this goroutine has written among them
	p.applyReady()
	p.sealIfDue()
	p.yield()
}

// yield gives the role up, to the orchestrator's goroutine if there is something to
// do for it.
func (p *Partition) yield() {
	if ops, _ := p.inbox.Len(); ops > 0 || len(p.taken) > 0 || p.closing.Load() || !p.role.leave() {
		p.role.pass()
	}
}

// idle reports whether nothing is queued and nothing is under way.
func (p *Partition) idle() bool {
	p.turn.Lock()
	defer p.turn.Unlock()
	ops, _ := p.inbox.Len()
	return ops == 0 && len(p.taken) == 0 && len(p.turn.inflight) == 0
}

// collect takes one micro-batch from the inbox, unless one waits for room in the log,
// and appends it to the log.
func (p *Partition) collect() (took bool, again time.Duration) {
	if p.noRoom.Load() || p.inflightBytes.Load() >= p.opts.InflightBytes {
		return false, 0
	}
	if len(p.taken) == 0 {
		p.taken, again = p.inbox.Take(p.taken)
	}
	if len(p.taken) == 0 {
		return false, again
	}
	if p.commit() > 0 {
		p.log.Flush()
	}
	return !p.noRoom.Load(), again
}

// commit makes the groups taken one record, or two if some ask for a sync and others do
// not, and appends those to the log. It returns the position of the last record; 0 if
// there is none. Groups for which the log has no room yet stay in p.taken.
func (p *Partition) commit() (pos wal.Pos) {
	if weaker := p.weakerFirst(); weaker > 0 {
		var ok bool
		if pos, ok = p.commitFirst(weaker); !ok || len(p.taken) == 0 {
			return pos
		}
	}
	last, _ := p.commitFirst(len(p.taken))
	return max(pos, last)
}

// commitFirst commits the first n of the groups taken. If the log has no room yet, it
// leaves them there and reports false; roomWaker then has the orchestrator try again.
func (p *Partition) commitFirst(n int) (pos wal.Pos, ok bool) {
	pos, err := p.commitGroups(p.taken[:n])
	if err != nil {
		p.noRoom.Store(true)
		p.log.OnRoom(roomWaker{p})
		return 0, false
	}
	p.taken = slices.Delete(p.taken, 0, n)
	return pos, true
}

// roomWaker has the orchestrator try again to append what the log had no room for.
type roomWaker struct{ p *Partition }

// Wake implements wal.Waker.
func (w roomWaker) Wake() {
	w.p.noRoom.Store(false)
	w.p.Wake()
}

// Work implements wal.Waker.
func (w roomWaker) Work() { w.Wake() }

// weakerFirst puts the groups that ask for no sync before the others, each in their
// order, and returns how many they are. (All are concurrent, so any order is right.)
func (p *Partition) weakerFirst() (weaker int) {
	for _, g := range p.taken {
		if g.level < kv.DurabilitySync {
			weaker++
		}
	}
	if weaker > 0 && weaker < len(p.taken) {
		slices.SortStableFunc(p.taken, func(a, b *Group) int {
			return cmp.Compare(min(a.level, kv.DurabilitySync-1), min(b.level, kv.DurabilitySync-1))
		})
	}
	return weaker
}

// commitGroups makes the groups one record, appends that to the log, and returns its position; 0 if there is none. The only error is wal.ErrNoRoomYet:
// nothing has happened then.
func (p *Partition) commitGroups(groups []*Group) (wal.Pos, error) {
	rec := p.newPending()
	if anyTimed(groups) {
		rec.trace = new(trace.Batch)
		rec.trace.Taken.Set(time.Now())
	}
	err := p.append(rec, groups)
	switch {
	case errors.Is(err, wal.ErrNoRoomYet):
		for _, g := range rec.groups {
			g.retract()
		}
		p.recycle(rec)
		return 0, err
	case err != nil:
		p.decide(rec, err)
		return 0, nil
	}
	return rec.pos, nil
}

// append lays the groups out as one record, appends it to the log and puts it in
// line. It does so under the turn, because which writes are new is decided by the
// order of the log.
func (p *Partition) append(rec *pending, groups []*Group) error {
	p.turn.Lock()
	defer p.turn.Unlock()
	p.layOutLocked(rec, groups)
	if len(rec.groups) == 0 {
		return nil
	}
	if rec.units > 0 {
		if rec.trace != nil {
			rec.trace.Handed.Set(time.Now())
		}
		base, pos, err := p.log.Append(rec.payload, rec.units, rec.level, p, rec.trace)
		if err != nil {
			return err
		}
		rec.base, rec.pos = base, pos
		for _, u := range rec.named {
			p.turn.names.add(u.name, base+kv.SeqNum(u.unit), u.content)
		}
	}
	p.stats.duplicates.Add(uint64(rec.duplicates))
	if rec.ops > 0 {
		p.stats.writes.Record(uint64(rec.ops))
	}
	p.enqueueLocked(rec)
	return nil
}

// layOutLocked encodes the groups as one record, leaving out those whose callers
// gave up and the writes that were applied before.
func (p *Partition) layOutLocked(rec *pending, groups []*Group) {
	for _, g := range groups {
		g.mu.Lock()
		if g.abandoned {
			g.mu.Unlock()
			continue
		}
		rec.groups = append(rec.groups, g)
		g.trace, g.entered = rec.trace, true
		g.admit(rec, p.turn.names)
	}
	if rec.ops > 0 {
		rec.encoder.Section(p.id, rec.ops)
	}
	for _, g := range rec.groups {
		g.encode(rec)
		g.mu.Unlock()
	}
	rec.payload = rec.encoder.Bytes()
}

// enqueueLocked puts a record that the log has in line for the memtable.
func (p *Partition) enqueueLocked(rec *pending) {
	if rec.units > 0 {
		rec.after = p.precedingLocked(rec)
	}
	p.turn.inflight = append(p.turn.inflight, rec)
	p.turn.levels.add(rec, 1)
	p.inflightBytes.Add(int64(len(rec.payload)))
	if rec.units > 0 {
		p.turn.last = rec.last()
	}
}

// applyReady inserts, publishes and answers every record at the head of the line
// that is durable enough, and those beyond it that are: see applyEarly. It reports
// whether there was one.
func (p *Partition) applyReady() (progress bool) {
	for {
		rec := p.head()
		if rec == nil {
			return progress
		}
		if err := p.log.Err(); err != nil {
			p.failInflight(err)
			return true
		}
		if rec.units > 0 && !rec.arrived {
			if !p.durable(rec) || rec.waits() {
				return p.applyEarly() || progress
			}
			p.arrive(rec)
		}
		if rec.commit != nil && !rec.commit.visible.Load() {
			return p.applyEarly() || progress // the last participant to insert wakes the others
		}
		if rec.units > 0 {
			p.publish(rec)
		}
		p.pop()
		p.publishEarly()
		p.decide(rec, nil)
		progress = true
	}
}

// durable reports whether the log holds the record as safely as was asked.
func (p *Partition) durable(rec *pending) bool {
	switch rec.level {
	case kv.DurabilityMemory:
		return true
	case kv.DurabilityBuffered:
		return p.log.Written() >= rec.pos
	default:
		return p.log.Synced() >= rec.pos
	}
}

// insert puts the record's operations into the active memtable, where nobody
// sees them before publish.
func (p *Partition) insert(rec *pending) {
	before := p.active.Bytes()
	if len(rec.hashes) > 1 {
		p.active.TouchHashes(rec.hashes) // they wait for memory together
	}
	if err := p.insertRecord(rec.base, rec.payload); err != nil {
		// We laid these bytes out ourselves, in memory.
		panic(fmt.Sprintf("partition %d: own record is malformed: %v", p.id, err))
	}
	p.activePos = rec.pos
	rec.inserted = true
	p.budget.Grew(p, p.active.Bytes()-before)
}

// arrive inserts the record at the head of the line, which is durable. The last of
// several partitions to do so makes the record visible in all of them.
func (p *Partition) arrive(rec *pending) {
	if !rec.inserted {
		p.insert(rec)
	}
	rec.arrived = true
	if rec.commit == nil {
		return
	}
	p.arriving.Store(rec.commit) // before arrive: visible must find it everywhere
	if rec.commit.arrive() {
		p.sequencer.Applied(rec.base, rec.units)
		rec.commit.Wake()
	}
}

// insertRecord inserts this partition's share of a record. Recovery and the
// orchestrator both come here, so a replayed record is applied as it was.
func (p *Partition) insertRecord(base kv.SeqNum, payload []byte) error {
	return record.Decode(payload, func(op *record.Op) error {
		if op.Partition == p.id {
			p.insertOp(base, op)
		}
		return nil
	})
}

func (p *Partition) insertOp(base kv.SeqNum, op *record.Op) {
	p.entry = kv.Entry{
		Key: op.Key, Value: op.Value, Seq: base + kv.SeqNum(op.Unit), Kind: op.Kind, Expiry: op.Expiry,
	}
	p.active.Add(keyhash.Sum(op.Key), &p.entry)
	p.stats.userBytes.Add(uint64(p.entry.Size()))
	p.entry = kv.Entry{} // or it would keep the record in memory
}

// publish makes an inserted record visible to readers of this partition.
func (p *Partition) publish(rec *pending) {
	p.published.Store(uint64(rec.last()))
	if rec.commit != nil {
		p.arriving.Store(nil) // after published: see visible
		return
	}
	p.sequencer.Applied(rec.base, rec.units)
}

// view returns the newest sequence number up to which readers of this partition may see
// everything, and what else they may see. The order of the loads matters: publishEarly
// stores published before it takes numbers out of early.
func (p *Partition) view() (kv.SeqNum, early) {
	set := p.earlySet()
	return p.visible(), set
}

// visible returns the newest sequence number up to which readers of this partition may
// see everything. A record over several partitions counts from the moment its Commit turned
// visible, even if this partition has not published it yet. The order of the two
// loads matters: publish stores published before it clears arriving.
func (p *Partition) visible() kv.SeqNum {
	if c := p.arriving.Load(); c != nil && c.visible.Load() {
		return max(c.seq, kv.SeqNum(p.published.Load()))
	}
	return kv.SeqNum(p.published.Load())
}

// Published returns the newest sequence number whose writer may have been
// answered by this partition.
func (p *Partition) Published() kv.SeqNum {
	at, set := p.view()
	return max(at, set.newest())
}

func (p *Partition) head() *pending {
	p.turn.Lock()
	defer p.turn.Unlock()
	if len(p.turn.inflight) == 0 {
		return nil
	}
	return p.turn.inflight[0]
}

func (p *Partition) pop() {
	p.turn.Lock()
	defer p.turn.Unlock()
	rec := p.turn.inflight[0]
	p.turn.levels.add(rec, -1)
	p.inflightBytes.Add(-int64(len(rec.payload)))
	p.turn.inflight[0] = nil
	p.turn.inflight = p.turn.inflight[1:]
	if len(p.turn.inflight) == 0 {
		p.turn.inflight = nil
	}
}

// decide answers everybody who waits for the record and recycles it.
func (p *Partition) decide(rec *pending, err error) {
	for _, g := range rec.groups {
		g.decide(rec.base, err)
	}
	if rec.commit != nil {
		rec.commit.settle(err)
		return
	}
	p.recycle(rec)
}

// failInflight answers all that is under way with the error that stopped the
// log. A record may have reached the disk: its outcome is unknown.
func (p *Partition) failInflight(cause error) {
	err := fmt.Errorf("%w: %w", kv.ErrUncertain, cause)
	for rec := p.head(); rec != nil; rec = p.head() {
		p.pop()
		p.decide(rec, err)
	}
}

func (p *Partition) newPending() *pending {
	if n := len(p.spare); n > 0 {
		rec := p.spare[n-1]
		p.spare[n-1] = nil // if it grows too large to be kept, nothing else holds it
		p.spare = p.spare[:n-1]
		return rec
	}
	return &pending{}
}

// recycle keeps a record's memory for the next one. Only the orchestrator calls
// it, with records it laid out.
func (p *Partition) recycle(rec *pending) {
	const keepBytes, keepRecords = 1 << 20, 16
	if cap(rec.payload) > keepBytes || len(p.spare) >= keepRecords {
		return
	}
	clear(rec.groups)
	rec.encoder.Reset()
	*rec = pending{encoder: rec.encoder, groups: rec.groups[:0], hashes: rec.hashes[:0], named: rec.named[:0]}
	p.spare = append(p.spare, rec)
}
