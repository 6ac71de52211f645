package partition

import (
	"bytes"
	"context"
	"errors"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/memtable"
)

// Lookup answers independent reads of the newest visible state, in a micro-batch
// with whatever else this partition is asked in the same moment.
//
// Each read has its own answer and its own error. Lookup itself fails only if
// ctx ends before the reads are part of a batch; then nothing was read.
func (p *Partition) Lookup(ctx context.Context, reads []*kv.Lookup) error {
	size := 0
	for _, r := range reads {
		size += len(r.Key)
	}
	return p.reads.Do(ctx, reads, len(reads), size)
}

// serveReads answers one micro-batch.
func (p *Partition) serveReads(batch [][]*kv.Lookup) {
	reads := batch[0]
	if len(batch) > 1 {
		reads = make([]*kv.Lookup, 0, 2*len(batch))
		for _, group := range batch {
			reads = append(reads, group...)
		}
	}
	s, at := p.acquireVisible()
	defer s.release()
	if bugStaleRead {
		at = max(at, 1) - 1
	}
	p.walk(s, reads, at, p.opts.Now)
	p.stats.readBatches.Add(1)
	p.stats.reads.Add(uint64(len(reads)))
}

// LookupAt answers reads at one version, which must be that of a live snapshot,
// and at one time of the store's clock.
func (p *Partition) LookupAt(reads []*kv.Lookup, at kv.SeqNum, now uint64) {
	s := p.acquire()
	defer s.release()
	p.walk(s, reads, at, func() uint64 { return now })
	p.stats.reads.Add(uint64(len(reads)))
}

// walk answers reads from the newest source to the oldest. The clock is asked only
// for entries that expire.
func (p *Partition) walk(s *readState, reads []*kv.Lookup, at kv.SeqNum, now func() uint64) {
	if s.closed {
		for _, r := range reads {
			*r = kv.Lookup{Key: r.Key, Hash: r.Hash, Budget: r.Budget, Err: p.closedError()}
		}
		return
	}
	var stack [1]*kv.Lookup
	open := stack[:0] // not answered yet
	if len(reads) > 1 {
		open = make([]*kv.Lookup, 0, len(reads))
	}
	if len(reads) > 1 { // the misses of the processor's caches overlap
		s.active.Touch(reads)
		for i := range s.sealed {
			s.sealed[i].table.Touch(reads)
		}
	}
	var e kv.Entry
	for _, r := range reads {
		*r = kv.Lookup{Key: r.Key, Hash: r.Hash, Budget: r.Budget, Value: r.Value[:0], ReadVersion: at}
		if r.Budget.Spent() {
			refuse(r)
			continue
		}
		if p.lookupMemory(s, r, at, &e) {
			answer(r, &e)
			continue
		}
		open = append(open, r)
	}
	if len(open) > 0 {
		p.lookupTables(s.levels, open, at)
	}
	for _, r := range reads {
		if r.Expiry != 0 && r.Expiry <= now() {
			*r = kv.Lookup{Key: r.Key, Hash: r.Hash, Budget: r.Budget, ReadVersion: at}
		}
		if errors.Is(r.Err, kv.ErrCorrupt) {
			p.corrupt(r.Err)
		}
	}
}

// lookupMemory finds the newest entry that a memtable has for a key, a range
// tombstone that covers it among them.
func (p *Partition) lookupMemory(s *readState, r *kv.Lookup, at kv.SeqNum, e *kv.Entry) bool {
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

// find returns the index of the table of the run that may hold key, -1 if none.
func (r *run) find(key []byte) int {
	i := r.metas.Seek(key)
	if i == len(r.metas) || bytes.Compare(key, r.metas[i].Smallest) < 0 {
		return -1
	}
	return i
}
