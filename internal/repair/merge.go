package repair

import (
	"bytes"
	"cmp"
	"errors"
	"iter"
	"path"
	"slices"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/record"
	"github.com/kvd-db/kvd/internal/wal"
)

// merge makes one delta of everything in the partition that verifies and, if there is a
// backup, of what that has in the lost ranges of keys.
func (p *part) merge() error {
	logged, err := p.tablesOf(p.records, func(*kv.Entry) bool { return true })
	if err != nil {
		return err
	}
	var tables []*table
	for _, t := range p.tables {
		if t.inTarget {
			tables = append(tables, t)
			if t.whole {
				t.file.Action = Merged
			}
		}
	}
	hidden := p.findApplied()
	known := len(p.report.Losses)
	lost := p.fillable()
	delta, newValues, err := p.mergeOnce(logged, tables, keysOf(lost), hidden)
	if err != nil {
		return err
	}
	if values := p.fillable(); len(values) > len(lost) { // values turned out to be lost
		if err := p.discard(delta, newValues); err != nil {
			return err
		}
		p.report.Losses = p.report.Losses[:known]
		if delta, newValues, err = p.mergeOnce(logged, tables, keysOf(values), hidden); err != nil {
			return err
		}
	}
	for _, t := range append(logged, tables...) {
		if err := p.remove(t); err != nil {
			return err
		}
	}
	p.filled()
	return p.publishMerged(delta, newValues)
}

// mergeOnce writes the delta. For the keys of lost, the backup says what was there at its
// version.
func (p *part) mergeOnce(logged, tables []*table, lost keySet, hidden applied) (manifest.Run, *kv.ValueFileMeta, error) {
	p.shared = nil // the losses of an attempt before are gone
	filling, err := p.fill(lost)
	if err != nil {
		return nil, nil, err
	}
	m := &merging{part: p, ranges: rangesOf(logged, tables, filling), lost: lost, applied: hidden, runs: runsOf(tables)}
	for _, t := range filling {
		m.filling = append(m.filling, []*table{t})
	}
	for _, t := range logged {
		m.logged = append(m.logged, []*table{t})
	}
	delta, err := m.run(cutsOf(append(logged, tables...), p.o.tableBytes))
	if err != nil {
		return nil, nil, errors.Join(err, m.close())
	}
	for _, t := range filling {
		if err := p.remove(t); err != nil {
			return nil, nil, err
		}
	}
	return delta, m.newValues, nil
}

// discard removes the outputs of a merge.
func (p *part) discard(delta manifest.Run, newValues *kv.ValueFileMeta) error {
	for i := range delta {
		if err := p.out.fsys.Remove(path.Join(p.dir, manifest.TableName(delta[i].Num))); err != nil {
			return err
		}
	}
	if newValues == nil {
		return nil
	}
	return p.out.fsys.Remove(path.Join(p.dir, manifest.ValuesName(newValues.Num)))
}

// publishMerged publishes a delta and the new value files that it points into.
func (p *part) publishMerged(delta manifest.Run, newValues *kv.ValueFileMeta) (err error) {
	v := &manifest.Version{Num: p.newNum(), Partition: uint32(p.id), FlushedSeq: max(p.flushed(), p.log.last)}
	if p.version != nil {
		v.MaxSeq = p.version.MaxSeq
	}
	if len(delta) > 0 {
		v.Deltas = []manifest.Run{delta}
	}
	if v.Values, err = p.neededValues(v, newValues); err != nil {
		return err
	}
	_, most := delta.SeqBounds()
	v.MaxSeq = max(v.MaxSeq, most)
	v.FlushedSeq = max(v.FlushedSeq, v.MaxSeq)
	v.NextFile = p.next
	return p.publish(v)
}

// neededValues returns the value files that the tables of a version point into, and removes
// the copies of others.
func (p *part) neededValues(v *manifest.Version, newValues *kv.ValueFileMeta) (needed []kv.ValueFileMeta, err error) {
	refs := v.NeededValues()
	for num, f := range p.values {
		_, need := refs[num]
		switch {
		case f.whole && need:
			needed = append(needed, f.meta)
		case f.whole:
			f.file.Action = Merged
			if err := p.out.fsys.Remove(path.Join(p.dir, manifest.ValuesName(num))); err != nil {
				return nil, err
			}
		}
	}
	if newValues != nil {
		needed = append(needed, *newValues)
	}
	slices.SortFunc(needed, func(a, b kv.ValueFileMeta) int { return cmp.Compare(a.Num, b.Num) })
	return needed, nil
}

// tablesOf writes the partition's operations in the records of a log to tables, each with as
// many as may be in memory. It leaves out entries that keep refuses.
func (p *part) tablesOf(records func(func(wal.Record) error) error, keep func(*kv.Entry) bool) (tables []*table, err error) {
	const entryBytes = 128 // what an entry takes in memory besides key and value
	var entries []kv.Entry
	var size int64
	flush := func() error {
		slices.SortStableFunc(entries, func(a, b kv.Entry) int { return kv.Compare(a.Key, a.Seq, b.Key, b.Seq) })
		t, err := p.tableOf(slices.Values(entries))
		if t != nil {
			tables = append(tables, t)
		}
		entries, size = entries[:0], 0
		return err
	}
	err = records(func(rec wal.Record) error {
		if err := p.ctx.Err(); err != nil {
			return err
		}
		if record.Decode(rec.Payload, func(op *record.Op) error { return p.checkOp(rec, op) }) != nil {
			return nil // writeLog reports it
		}
		err := record.Decode(rec.Payload, func(op *record.Op) error {
			e := kv.Entry{Key: op.Key, Value: op.Value, Seq: rec.Base + kv.SeqNum(op.Unit), Kind: op.Kind, Expiry: op.Expiry}
			if op.Partition != p.id || !keep(&e) {
				return nil
			}
			e.Key, e.Value = bytes.Clone(e.Key), bytes.Clone(e.Value)
			entries = append(entries, e)
			size += int64(e.Size()) + entryBytes
			return nil
		})
		if err == nil && size >= p.o.MemoryBytes {
			err = flush()
		}
		return err
	})
	if err == nil {
		err = flush()
	}
	return tables, err
}

// tableOf writes one table of entries in order; nil if there is none.
func (p *part) tableOf(entries iter.Seq[kv.Entry]) (*table, error) {
	w := p.newTable()
	for e := range entries {
		if err := w.add(&e); err != nil {
			return nil, errors.Join(err, w.discard())
		}
	}
	if w.entries == 0 {
		return nil, nil
	}
	t := &table{inTarget: true}
	var err error
	t.meta, t.ranges, err = w.finish()
	return t, err
}

// runsOf arranges tables in runs whose tables share no key.
func runsOf(tables []*table) (runs [][]*table) {
	tables = slices.Clone(tables)
	slices.SortFunc(tables, func(a, b *table) int { return bytes.Compare(a.meta.Smallest, b.meta.Smallest) })
next:
	for _, t := range tables {
		for i := range runs {
			if last := runs[i][len(runs[i])-1]; bytes.Compare(last.meta.Largest, t.meta.Smallest) < 0 {
				runs[i] = append(runs[i], t)
				continue next
			}
		}
		runs = append(runs, []*table{t})
	}
	return runs
}

// rangesOf returns the range tombstones of all tables, each once, in order.
func rangesOf(groups ...[]*table) (all []kv.Entry) {
	for _, tables := range groups {
		for _, t := range tables {
			all = append(all, t.ranges...)
		}
	}
	slices.SortFunc(all, compareRanges)
	return slices.CompactFunc(all, func(a, b kv.Entry) bool { return compareRanges(a, b) == 0 })
}

func compareRanges(a, b kv.Entry) int {
	if c := kv.Compare(a.Key, a.Seq, b.Key, b.Seq); c != 0 {
		return c
	}
	return bytes.Compare(a.Value, b.Value)
}

// cutsOf returns keys at which to begin a new table, so that tables have about a given size.
// Each ends with a zero byte: then the key directly before it is known, and the bounds of
// tables on whose border a range tombstone is cut are disjoint.
func cutsOf(tables []*table, size int64) (cuts [][]byte) {
	tables = slices.Clone(tables)
	slices.SortFunc(tables, func(a, b *table) int { return bytes.Compare(a.meta.Smallest, b.meta.Smallest) })
	sum := int64(0)
	for _, t := range tables {
		cut := append(bytes.Clone(t.meta.Smallest), 0)
		if sum >= size && len(cut) <= kv.MaxKeyBytes && (len(cuts) == 0 || bytes.Compare(cuts[len(cuts)-1], cut) < 0) {
			cuts = append(cuts, cut)
			sum = 0
		}
		sum += int64(t.meta.Size)
	}
	return cuts
}
