package repair

import (
	"slices"

	"github.com/kvd-db/kvd/internal/kv"
)

// applied says which puts in the log count although no table has them.
//
// Of what a partition had flushed, a put may be in the log and in no table because a delete or
// a newer put hid it, and a merge dropped both. A whole log has that newer record too. If it
// is in a lost part of the log, the put would be back, although all of the partition's tables
// may be whole. So a put that is older than a lost part counts only if a table has it, or if a
// lost part of a table may have had it.
type applied struct {
	upTo kv.SeqNum // of the lost parts of the log, what the partition had flushed; 0: none
	lost []Loss    // of the partition's tables
}

// findApplied returns what applies to the partition. It extends the losses of its tables: a
// put that counts because of one of them may have been deleted by a lost record.
func (p *part) findApplied() (a applied) {
	for i := range p.log.gaps {
		if g := &p.log.gaps[i]; g.Lost() && g.From <= p.flushed() {
			a.upTo = max(a.upTo, min(g.To, p.flushed()))
		}
	}
	if a.upTo == 0 {
		return a
	}
	for i := range p.report.Losses {
		if l := &p.report.Losses[i]; l.Partition == p.id && l.FirstVersion <= a.upTo {
			a.lost = append(a.lost, *l)
			l.LastVersion = max(l.LastVersion, a.upTo)
		}
	}
	return a
}

// hides reports whether an entry does not count unless a table has it.
func (a *applied) hides(e *kv.Entry) bool {
	return e.Kind == kv.KindPut && e.Seq <= a.upTo && !slices.ContainsFunc(a.lost, func(l Loss) bool {
		return l.Covers(l.Partition, e.Key, e.Seq)
	})
}

// neededFrom returns the number from which on the new store needs the log. Its partitions have
// flushed everything before, and a later part of the log is lost: to a later repair, which
// cannot see that, the log shall not show what that part deleted.
func (r *repair) neededFrom() (from kv.SeqNum) {
	flushed := kv.MaxSeqNum
	for _, p := range r.parts {
		flushed = min(flushed, p.newFlushed)
	}
	for i := range r.log.gaps {
		if g := &r.log.gaps[i]; g.Lost() && g.From-1 <= flushed {
			from = max(from, g.From)
		}
	}
	return from
}
