package repair

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/mergeiter"
	"github.com/kvd-db/kvd/internal/sstable"
)

// maxExactLosses bounds how many losses the report has before lost values are no longer named one by
// one. Further ones of a partition share one range for each value file.
const maxExactLosses = 10_000

// merging merges runs into one, with every version of every key.
type merging struct {
	*part
	logged  [][]*table    // of the log of the damaged store
	runs    [][]*table    // of its tables
	filling [][]*table    // of the backup
	lost    keySet        // for these keys the backup says what was there at its version
	applied applied       // judges puts that the log alone has
	inputs  []kv.Iterator // of runs and filling

	ranges []kv.Entry // range tombstones, not yet written
	rest   []kv.Entry // what was cut off those that were written to the present table

	table     *tableWriter
	apart     *valueWriter
	newValues *kv.ValueFileMeta

	last    kv.Entry // the newest put or delete that was seen: its key and number
	missing *Loss    // of last, if its value could not be read
	value   []byte
	pointer []byte
}

// run writes tables, a new one from each of the keys cuts on.
func (m *merging) run(cuts [][]byte) (delta manifest.Run, err error) {
	m.apart = &valueWriter{p: m.part}
	var logged []kv.Iterator // first, because their values are beside the keys
	for _, run := range m.logged {
		logged = append(logged, m.iterateDamaged(run))
	}
	for _, run := range m.runs {
		m.inputs = append(m.inputs, m.iterateDamaged(run))
	}
	for _, run := range m.filling {
		m.inputs = append(m.inputs, m.iterate(run))
	}
	inputs := append(logged, m.inputs...)
	if len(inputs) == 0 {
		return nil, nil
	}
	it := mergeiter.New(inputs...)
	defer func() { err = errors.Join(err, it.Close()) }()
	it.First()
	for _, end := range append(cuts, nil) {
		meta, err := m.fill(it, end)
		if err != nil {
			return nil, err
		}
		if meta.Entries > 0 {
			delta = append(delta, meta)
		}
	}
	m.giveUp()
	m.newValues, err = m.apart.finish()
	return delta, err
}

// fill writes one table with what comes before the key end; nil: everything. Without an entry
// it makes none.
func (m *merging) fill(it kv.Iterator, end []byte) (meta kv.TableMeta, err error) {
	m.table = m.newTable()
	for ; it.Valid() && (end == nil || bytes.Compare(it.Entry().Key, end) < 0); it.Next() {
		if err := m.ctx.Err(); err != nil {
			return meta, err
		}
		if err := m.add(it.Entry(), end); err != nil {
			return meta, err
		}
	}
	if err := it.Err(); err != nil {
		return meta, err
	}
	if err := m.addRanges(nil, end); err != nil {
		return meta, err
	}
	m.ranges = append(m.rest, m.ranges...)
	slices.SortFunc(m.ranges, compareRanges)
	m.rest = nil
	if m.table.entries > 0 {
		meta, _, err = m.table.finish()
	}
	return meta, err
}

// iterate returns an iterator over a run, of which one table is open at a time.
func (p *part) iterate(run []*table) kv.Iterator {
	var metas manifest.Run
	for _, t := range run {
		metas = append(metas, t.meta)
	}
	return metas.NewIterator(func(i int) (kv.Iterator, error) {
		f, err := p.out.fsys.Open(path.Join(p.dir, manifest.TableName(metas[i].Num)))
		if err != nil {
			return nil, err
		}
		r, err := sstable.Open(f, p.fileID(metas[i].Num), nil)
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		return &closingIterator{r.NewIterator(sstable.IterOptions{}), r}, nil
	})
}

// iterateDamaged is iterate for tables of the damaged store.
func (m *merging) iterateDamaged(run []*table) kv.Iterator {
	if len(m.lost) == 0 {
		return m.iterate(run)
	}
	return &without{Iterator: m.iterate(run), drop: m.replaced}
}

// closingIterator closes its reader too.
type closingIterator struct {
	kv.Iterator
	r *sstable.Reader
}

func (it *closingIterator) Close() error { return errors.Join(it.Iterator.Close(), it.r.Close()) }

// add adds a put or delete, which several runs may have, once. Range tombstones come from
// m.ranges.
func (m *merging) add(e *kv.Entry, end []byte) error {
	if e.Kind == kv.KindRangeDelete {
		return nil
	}
	if m.last.Seq == e.Seq && bytes.Equal(m.last.Key, e.Key) {
		if m.missing == nil {
			return nil
		}
	} else {
		m.giveUp()
		m.last.Key, m.last.Seq = append(m.last.Key[:0], e.Key...), e.Seq
		if m.applied.hides(e) && !m.inTables(e) {
			return nil
		}
	}
	kept, err := m.place(e)
	if err != nil || kept == nil {
		return err
	}
	m.missing = nil
	if err := m.addRanges(kept, end); err != nil {
		return err
	}
	return m.table.add(kept)
}

// inTables reports whether a table has e, which the merge is at.
func (m *merging) inTables(e *kv.Entry) bool {
	return slices.ContainsFunc(m.inputs, func(it kv.Iterator) bool {
		return it.Valid() && it.Entry().Seq == e.Seq && bytes.Equal(it.Entry().Key, e.Key)
	})
}

// place returns e with a pointer into a value file of the new store, if its value is apart;
// nil if the value cannot be read.
func (m *merging) place(e *kv.Entry) (*kv.Entry, error) {
	if !e.Apart {
		return e, nil
	}
	at, _ := kv.ParseValuePointer(e.Value) // the iterator has checked it
	v := m.values[at.File]
	if v != nil && v.whole && v.rest == nil {
		return e, nil
	}
	err := error(kv.Corruptf(manifest.ValuesName(at.File), -1, "the file is missing"))
	if v != nil && v.rest != nil {
		m.value, err = v.rest.Read(at, m.value)
	}
	switch {
	case errors.Is(err, kv.ErrCorrupt):
		m.missing = &Loss{
			Partition: m.id, FirstKey: bytes.Clone(e.Key), FirstVersion: e.Seq, LastVersion: e.Seq, Entries: 1,
			File: path.Join(m.in, manifest.ValuesName(at.File)), Reason: fmt.Sprintf("the value at offset %d does not verify", at.Offset),
		}
		m.missing.LastKey = m.missing.FirstKey
		return nil, nil
	case err != nil:
		return nil, err
	case v.whole: // it is the value that the entry means
		return e, nil
	}
	if m.pointer, err = m.apart.add(m.value, m.pointer[:0]); err != nil {
		return nil, err
	}
	moved := *e
	moved.Value = m.pointer
	return &moved, nil
}

// giveUp reports that no run has the value of the last entry.
func (m *merging) giveUp() {
	l := m.missing
	m.missing = nil
	if l != nil {
		m.loseOne(l)
	}
}

// loseOne reports the loss of one value. Many of them share one range for each value file.
func (p *part) loseOne(l *Loss) {
	n := len(p.report.Losses)
	if n < maxExactLosses {
		p.lose(*l)
		return
	}
	i, ok := p.shared[l.File]
	if !ok {
		if p.shared == nil {
			p.shared = map[string]int{}
		}
		p.shared[l.File] = n
		p.lose(*l)
		return
	}
	all := &p.report.Losses[i]
	if bytes.Compare(l.FirstKey, all.FirstKey) < 0 {
		all.FirstKey = l.FirstKey
	}
	if bytes.Compare(l.LastKey, all.LastKey) > 0 {
		all.LastKey = l.LastKey
	}
	all.FirstVersion, all.LastVersion = min(all.FirstVersion, l.FirstVersion), max(all.LastVersion, l.LastVersion)
	all.Entries += l.Entries
	all.Reason = "values do not verify"
}

// addRanges adds the range tombstones that come before e; all before the key end if e is nil.
func (m *merging) addRanges(e *kv.Entry, end []byte) error {
	for len(m.ranges) > 0 {
		t := m.ranges[0]
		if e != nil && kv.Compare(t.Key, t.Seq, e.Key, e.Seq) > 0 || end != nil && bytes.Compare(t.Key, end) >= 0 {
			return nil
		}
		m.ranges = m.ranges[1:]
		if end != nil && bytes.Compare(t.Value, end) > 0 {
			rest := t
			rest.Key, t.Value = end, end
			m.rest = append(m.rest, rest)
		}
		if err := m.table.add(&t); err != nil {
			return err
		}
	}
	return nil
}

// close closes what an error left open.
func (m *merging) close() error {
	err := m.apart.close()
	if m.table != nil && m.table.file != nil {
		err = errors.Join(err, m.table.file.Close())
	}
	return err
}
