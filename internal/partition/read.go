package partition

import (
	"context"
	"time"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/memtable"
	"github.com/kvd-db/kvd/internal/trace"
)

// Lookup answers independent reads of the newest visible state, in a micro-batch
// with whatever else this partition is asked in the same moment.
//
// Each read has its own answer and its own error. Lookup itself fails only if
// ctx ends before the reads are part of a batch; then nothing was read. Unless c is
// nil, it is told when they were taken.
func (p *Partition) Lookup(ctx context.Context, reads []*kv.Lookup, c *trace.Batch) error {
	return p.reads.Do(ctx, readGroup{reads, c}, len(reads), keyBytes(reads))
}

// TryLookup is Lookup that does not wait for other lookups. It reports false, and has read
// nothing, if the partition serves as many micro-batches as it may.
func (p *Partition) TryLookup(reads []*kv.Lookup, c *trace.Batch) bool {
	return p.reads.TryDo(readGroup{reads, c}, len(reads), keyBytes(reads))
}

func keyBytes(reads []*kv.Lookup) (size int) {
	for _, r := range reads {
		size += len(r.Key)
	}
	return size
}

// readGroup is the reads of one call that go to one partition.
type readGroup struct {
	reads []*kv.Lookup
	trace *trace.Batch // nil unless the caller asks when they were taken
}

// serveReads answers one micro-batch.
func (p *Partition) serveReads(batch []readGroup) {
	tellTaken(batch)
	reads := batch[0].reads
	if len(batch) > 1 {
		reads = make([]*kv.Lookup, 0, 2*len(batch))
		for _, group := range batch {
			reads = append(reads, group.reads...)
		}
	}
	l := newLookup()
	l.addVisible(p, reads)
	l.run(true)
	p.stats.reads.Record(uint64(len(reads)))
	l.release()
}

// tellTaken tells those who ask that they were taken, with one look at the clock.
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

// ReadShare is the reads of one call that go to one partition.
type ReadShare struct {
	Partition *Partition
	Reads     []*kv.Lookup
	// Together says that all of Reads are to be answered at one version: LookupCached
	// answers all of them or none.
	Together bool
}

// LookupCached answers, as Lookup, what memory has. It never waits, so it goes past the
// micro-batches. It leaves in the shares what is not answered yet, for Lookup.
//
// Cost: the misses of the processor's caches overlap, which is why it takes the reads
// of all partitions together.
func LookupCached(shares []ReadShare) {
	l := newLookup()
	for _, s := range shares {
		l.addVisible(s.Partition, s.Reads)
	}
	l.run(false)
	for i := range shares {
		s := &shares[i]
		all := len(s.Reads)
		if s.Together && l.misses(i) {
			continue // Lookup answers all of them, at a version of its own
		}
		s.Reads = l.unanswered(i, s.Reads[:0])
		if answered := all - len(s.Reads); answered > 0 {
			s.Partition.stats.reads.Record(uint64(answered))
		}
	}
	l.release()
}

// LookupAt answers reads at one version, which must be that of a live snapshot,
// and at one time of the store's clock.
func LookupAt(shares []ReadShare, at kv.SeqNum, now uint64) { lookupAt(shares, at, now, true) }

// LookupCachedAt is LookupAt if memory has all answers. Otherwise it reports false, and no
// answer counts. It never waits.
func LookupCachedAt(shares []ReadShare, at kv.SeqNum, now uint64) bool {
	return lookupAt(shares, at, now, false)
}

func lookupAt(shares []ReadShare, at kv.SeqNum, now uint64, disk bool) (answered bool) {
	l := newLookup()
	defer l.release()
	clock := func() uint64 { return now }
	for _, s := range shares {
		l.add(section{p: s.Partition, state: s.Partition.acquire(), at: at, now: clock, reads: s.Reads})
	}
	l.run(disk)
	for i := range shares {
		if l.misses(i) {
			return false
		}
	}
	for _, s := range shares {
		s.Partition.stats.reads.Record(uint64(len(s.Reads)))
	}
	return true
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

// answer fills in what an entry says. The value is copied.
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
	p.stats.corruptions.Add(1)
	if p.events != nil && p.events.Corruption != nil {
		p.events.Corruption(err)
	}
}
