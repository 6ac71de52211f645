package partition

import (
	"context"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/trace"
)

// ReadShare is the reads of one call that go to one partition.
type ReadShare struct {
	Partition *Partition
	Reads     []*kv.Lookup
}

// TwoPhaseLookup answers the reads of one call in two phases: Cached answers what memory
// has, Rest the others. It takes one version of each partition when it begins and keeps it,
// with the memtables and files that it is read from, until End. So all reads of one
// partition are answered at one version, in whichever phase.
//
// It borrows the shares, their reads and their keys until End. Used by one goroutine.
type TwoPhaseLookup struct{ l *lookup }

// BeginLookup begins a lookup at the newest visible version of each partition.
func BeginLookup(shares []ReadShare) TwoPhaseLookup {
	l := newLookup()
	for _, s := range shares {
		l.addVisible(s.Partition, s.Reads)
	}
	return TwoPhaseLookup{l}
}

// BeginLookupAt begins a lookup at one version of all partitions, which must be that of a
// live snapshot until End, and at one time of the store's clock.
func BeginLookupAt(shares []ReadShare, at kv.SeqNum, now uint64) TwoPhaseLookup {
	l := newLookup()
	clock := func() uint64 { return now }
	for _, s := range shares {
		l.add(section{p: s.Partition, state: s.Partition.acquire(), at: at, now: clock, reads: s.Reads})
	}
	return TwoPhaseLookup{l}
}

// Cached answers the reads that memory has the answers to, and reports whether these are
// all. It never waits, so it bypasses the micro-batches. It is called before Rest, at most
// once.
//
// Cost: the processor's cache misses overlap, because the reads of all partitions take
// each step together.
func (t TwoPhaseLookup) Cached() (all bool) { return t.l.cached() }

// Left returns the reads of a share that are not answered yet, borrowed until End.
func (t TwoPhaseLookup) Left(share int) []*kv.Lookup { return t.l.sections[share].reads }

// Rest answers the reads of a share that are left, in a micro-batch with the reads of other
// callers. It fails only if ctx ends before the reads are part of a micro-batch; then it
// has answered none. Unless c is nil, Rest notes in it when they were taken.
func (t TwoPhaseLookup) Rest(ctx context.Context, share int, c *trace.Batch) error {
	s := &t.l.sections[share]
	if len(s.reads) == 0 {
		return nil
	}
	err := s.p.reads.Do(ctx, readGroup{section: s, trace: c}, len(s.reads), keyBytes(s.reads))
	if err == nil {
		s.reads = nil
	}
	return err
}

// RestAlone answers the reads of all shares that are left, without other callers.
func (t TwoPhaseLookup) RestAlone() {
	t.l.run(true)
	for i := range t.l.sections {
		s := &t.l.sections[i]
		s.count(len(s.reads))
		s.reads = nil
	}
}

// End releases the versions, and adds what Cached answered to the statistics.
func (t TwoPhaseLookup) End() {
	for i := range t.l.sections {
		s := &t.l.sections[i]
		s.count(s.hits)
	}
	t.l.release()
}

// Discard is End for a caller that does not use the answers.
func (t TwoPhaseLookup) Discard() { t.l.release() }

// LookupAt answers reads at one version in one phase: see BeginLookupAt.
func LookupAt(shares []ReadShare, at kv.SeqNum, now uint64) {
	t := BeginLookupAt(shares, at, now)
	t.RestAlone()
	t.End()
}

// count adds answered reads to the statistics.
func (s *section) count(answered int) {
	if answered > 0 {
		s.p.stats.reads.Record(uint64(answered))
	}
}
