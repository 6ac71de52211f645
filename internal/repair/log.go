package repair

import (
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/record"
	"github.com/kvd-db/kvd/internal/wal"
)

const logSuffix = ".wal" // of segments

// logState is what is known of the commit log.
type logState struct {
	whole bool // recovery accepts it
	last  kv.SeqNum
	next  kv.SeqNum
	gaps  []wal.Gap
	lost  map[int]bool // the gaps that concern any partition
}

// surveyLog reads the log once, to learn what of it can be used.
func (r *repair) surveyLog() error {
	dir := descriptor.LogDir(r.dir)
	report, err := wal.Verify(r.src, dir, r.descriptor.StoreID, func(rec wal.Record) error {
		return r.read(int64(len(rec.Payload)))
	})
	if err != nil {
		return err
	}
	for name, f := range r.files {
		if path.Dir(name) == descriptor.LogName && path.Ext(name) == logSuffix {
			f.Action = Salvaged
		}
	}
	if report.Problem == nil {
		r.log = logState{whole: true, last: report.LastSeq, next: report.NextSeq}
		if report.DroppedBytes == 0 && !r.endsEarly() {
			r.unusedSegments(&report)
			return nil
		}
	}
	found, err := wal.Salvage(r.src, dir, r.descriptor.StoreID, func(wal.Record) error { return r.ctx.Err() })
	if err != nil {
		return err
	}
	if r.log.whole && found.Records == report.Records && !r.endsEarly() {
		r.unusedSegments(&report)
		r.note("%d bytes at the end of the commit log are no whole write. They were left out, as recovery does. They are what a crash left of the last write, which was not acknowledged as synced. If the file was damaged instead, that write is lost.",
			report.DroppedBytes)
		return nil
	}
	r.log = logState{last: found.LastSeq, next: found.NextSeq, gaps: found.Gaps, lost: map[int]bool{}}
	for i := range found.Gaps {
		for _, p := range found.Gaps[i].Places {
			f := r.file(descriptor.Inside(r.dir, p.File))
			f.Damage = append(f.Damage, Damage{p.Offset, p.Bytes, p.Reason})
		}
	}
	switch {
	case r.endsEarly() && !slices.ContainsFunc(found.Gaps, func(g wal.Gap) bool { return g.Open }):
		r.loseLog(found.LastSeq+1, kv.Corruptf(dir, -1, "the log ends at number %d, but tables hold everything up to %d: its end is missing", found.LastSeq, r.mostFlushed()))
	case len(found.Gaps) == 0 && report.Problem != nil: // the order of whole frames is impossible
		r.loseLog(1, report.Problem)
	}
	return nil
}

// endsEarly reports whether a partition had flushed numbers that the log has not given out.
func (r *repair) endsEarly() bool { return r.mostFlushed() >= max(r.log.next, 1) }

// unusedSegments notes the segments that recovery would remove.
func (r *repair) unusedSegments(report *wal.Report) {
	for _, seg := range report.Files {
		if f := r.files[descriptor.Inside(r.dir, seg.Name)]; f != nil && !seg.Live {
			f.Action = Unused
		}
	}
}

// loseLog adds a gap that concerns the log as a whole, from a number on.
func (r *repair) loseLog(from kv.SeqNum, problem error) {
	f := r.file(descriptor.LogName)
	f.Action = Salvaged
	r.damaged(f, problem)
	r.log.gaps = append(r.log.gaps, wal.Gap{
		Places: []wal.Place{{File: descriptor.LogDir(r.dir), Reason: f.Damage[len(f.Damage)-1].Reason}}, From: from, To: kv.MaxSeqNum, Open: true,
	})
}

// records calls fn for every record of the log that can be used, in order.
func (r *repair) records(fn func(wal.Record) error) (err error) {
	dir := descriptor.LogDir(r.dir)
	if r.log.whole {
		_, err = wal.Verify(r.src, dir, r.descriptor.StoreID, fn)
	} else {
		_, err = wal.Salvage(r.src, dir, r.descriptor.StoreID, fn)
	}
	return err
}

// checkOp reports whether an operation of a record fits into the store.
func (r *repair) checkOp(rec wal.Record, op *record.Op) error {
	if op.Partition >= r.descriptor.Partitions || op.Unit >= rec.Units {
		return fmt.Errorf("record %d: operation of unit %d of %d for partition %d of %d", rec.Base, op.Unit, rec.Units, op.Partition, r.descriptor.Partitions)
	}
	return nil
}

// writeLog writes the log of the new store, and reports what the old one lost.
func (r *repair) writeLog() error {
	dir := descriptor.LogDir(r.out.dir)
	if err := r.out.mkdir(dir); err != nil {
		return err
	}
	b := wal.NewRebuild(r.out.fsys, dir, r.descriptor.StoreID)
	from, left := r.neededFrom(), 0
	err := r.records(func(rec wal.Record) error {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		if err := record.Decode(rec.Payload, func(op *record.Op) error { return r.checkOp(rec, op) }); err != nil {
			r.loseRecord(rec, err)
			return nil
		}
		if rec.Last() < from {
			left++
			return nil
		}
		r.report.Records++
		return b.Add(rec)
	})
	if err != nil {
		return errors.Join(err, b.Abort())
	}
	if err := b.Finish(max(r.log.next, r.log.last+1, r.maxSeq+1, r.mostFlushed()+1)); err != nil {
		return err
	}
	r.noteGaps()
	if left > 0 {
		r.note("The new log does not have the %d whole records before number %d: the tables of the new store have all that counts of them. Request ids in them are lost.", left, from)
	}
	return nil
}

func (r *repair) mostFlushed() (most kv.SeqNum) {
	for _, p := range r.parts {
		most = max(most, p.flushed())
	}
	return most
}

// loseRecord reports a record whose frame verifies, but whose content is no record of this
// store.
func (r *repair) loseRecord(rec wal.Record, err error) {
	for id := range r.descriptor.Partitions {
		r.lose(Loss{Partition: id, FirstVersion: rec.Base, LastVersion: rec.Last(), File: descriptor.LogName, Reason: err.Error()})
	}
}

// loseGaps reports what may be missing in the partition because of damage to the log. What it
// had flushed is in its tables.
func (p *part) loseGaps() {
	if p.version == nil {
		return // everything may be missing, which findOther has reported
	}
	for i := range p.log.gaps {
		g := &p.log.gaps[i]
		first := max(g.From, p.version.FlushedSeq+1)
		if first > g.To {
			continue
		}
		p.log.lost[i] = true
		file, reason := p.describe(g)
		p.lose(Loss{Partition: p.id, FirstVersion: first, LastVersion: g.To, File: file, Reason: reason})
	}
}

// describe returns where a gap is, and why.
func (r *repair) describe(g *wal.Gap) (file, reason string) {
	if len(g.Places) == 0 {
		return descriptor.LogName, "records are missing here"
	}
	p := g.Places[0]
	reason = p.Reason
	if p.Bytes > 0 {
		reason = fmt.Sprintf("%s at offset %d, %d bytes", p.Reason, p.Offset, p.Bytes)
	}
	if n := len(g.Places); n > 1 {
		reason = fmt.Sprintf("%s, and %d more places", reason, n-1)
	}
	return descriptor.Inside(r.dir, p.File), reason
}

// noteGaps describes the damage to the log.
func (r *repair) noteGaps() {
	for i := range r.log.gaps {
		g := &r.log.gaps[i]
		file, reason := r.describe(g)
		switch {
		case !g.Lost():
			r.note("%s: %s. No record was there.", file, reason)
		case !r.log.lost[i]:
			r.note("%s: %s. No partition whose manifest is known needs the records from there, numbers %d to %d: they are in tables. Request ids in them are lost: a client that sends such a write again may have it applied twice.",
				file, reason, g.From, g.To)
		case g.Open:
			r.note("%s: %s. Nothing after that can be read, so how many records from number %d on are lost is not known.", file, reason, g.From)
		default:
			r.note("%s: %s. At most %d records with numbers %d to %d are lost; those after them were read. A batch or transaction with one of these numbers may be there in part if one of its partitions had written it to a table. Request ids in the lost records are lost too.",
				file, reason, g.Records, g.From, g.To)
		}
	}
}
