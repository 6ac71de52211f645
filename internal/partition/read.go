package partition

import (
	"time"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/memtable"
	"github.com/kvd-db/kvd/internal/trace"
)

func keyBytes(reads []*kv.Lookup) (size int) {
	for _, r := range reads {
		size += len(r.Key)
	}
	return size
}

// readGroup is the reads of one call that go to one partition.
type readGroup struct {
	section *section     // the reads, and the version to answer them at
	trace   *trace.Batch // nil unless the caller asked for stages
}

// serveReads answers one micro-batch.
func (p *Partition) serveReads(batch []readGroup) {
	tellTaken(batch)
	l := newLookup()
	count := 0
	for _, group := range batch {
		s := *group.section
		s.borrowed = true
		l.add(s)
		count += len(s.reads)
	}
	l.run(true)
	p.stats.reads.Record(uint64(count))
	if l.waited {
		p.reads.Allow(waitingRunners, waitingOps)
	} else {
		p.reads.Allow(readRunners, 0)
	}
	l.release()
}

// tellTaken records when the batch was taken, for callers that asked for stages. It reads
// the clock at most once.
func tellTaken(batch []readGroup) {
	var now time.Time
	for _, group := range batch {
		if group.trace == nil {
			continue
		}
		if now.IsZero() {
			now = time.Now()
		}
		group.trace.Taken.Set(now)
	}
}

// lookupMemory finds the newest entry that a memtable has for a key, a range
// tombstone that covers it among them.
func lookupMemory(s *readState, r *kv.Lookup, at kv.SeqNum, e *kv.Entry) bool {
	if lookupTable(s.active, r, at, e) {
		return true
	}
	for i := range s.sealed {
		if lookupTable(s.sealed[i].table, r, at, e) {
			return true
		}
	}
	return false
}

// lookupEarly finds the newest version of a key that is early. A read that is answered by
// it is one at its number: between published and that number, whatever else was written
// to the key is older. No range tombstone hides it, since one lies in all partitions and
// is never early, and one that is published is older.
func lookupEarly(s *readState, r *kv.Lookup, published kv.SeqNum, beyond Early, e *kv.Entry) bool {
	for t := range s.memtables() {
		for at := beyond.Newest(); t.Get(r.Hash, r.Key, at, e) && e.Seq > published; at = e.Seq - 1 {
			if beyond.Has(e.Seq) {
				return true
			}
		}
	}
	return false
}

func lookupTable(t *memtable.Table, r *kv.Lookup, at kv.SeqNum, e *kv.Entry) bool {
	found := t.Get(r.Hash, r.Key, at, e)
	covered := t.Cover(r.Key, at)
	if covered == 0 || found && e.Seq >= covered {
		return found
	}
	*e = kv.Entry{Seq: covered, Kind: kv.KindRangeDelete}
	return true
}

// answer fills in a read from the entry that was found. It copies the value.
func answer(r *kv.Lookup, e *kv.Entry) {
	if e.Kind != kv.KindPut {
		r.Value = nil
		return
	}
	if !r.Want.Takes(len(e.Value)) {
		r.Found, r.Omitted, r.Value, r.Version, r.Expiry = true, true, nil, e.Seq, e.Expiry
		return
	}
	if !r.Budget.Take(len(e.Value)) {
		refuse(r)
		return
	}
	r.Found = true
	r.Value = append(r.Value, e.Value...)
	if r.Value == nil {
		r.Value = []byte{} // an empty value is a value
	}
	r.Version, r.Expiry = e.Seq, e.Expiry
}

// refuse answers a read whose budget is spent.
func refuse(r *kv.Lookup) { r.Value, r.Err = nil, kv.ErrBudgetSpent }

func (p *Partition) corrupt(err error) {
	p.damaged.add(err)
	p.stats.corruptions.Add(1)
	if p.events != nil && p.events.Corruption != nil {
		p.events.Corruption(err)
	}
}
