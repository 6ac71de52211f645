package repair

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
)

// replacing makes one new table: what verifies in the old one, what the backup has of the keys that
// are lost, and tombstones that hide these keys in older tables.
type replacing struct {
	b *build
	r *rewrite
	w *tableWriter

	newest kv.SeqNum // in the older runs
	base   bool      // the table is in the base or in the oldest delta

	gapKeys      candidates
	inGaps       lookup     // moved by gapKeys
	beside       lookup     // for keys of which the value is lost
	rangeDeletes []kv.Entry // that hide whole gaps
	around       around

	file *stream // what verifies in the old table
}

// lookup says what the older tables and the backup have.
type lookup struct{ older, backup *survivors } // nil: there is none

// all returns those that there are.
func (l *lookup) all() (all []*survivors) {
	for _, s := range []*survivors{l.older, l.backup} {
		if s != nil {
			all = append(all, s)
		}
	}
	return all
}

func (r *rewrite) num() kv.FileNum { return r.table.want.Num }

// prepare opens what the new table depends on besides the old one.
func (t *replacing) prepare() error {
	runs := t.b.runs()
	t.base = t.r.run >= len(runs)-2 // V7 exempts the oldest delta
	older, newest := t.b.older(t.r)
	t.newest = newest
	ranges, err := t.b.rangesIn(older)
	if err != nil {
		return err
	}
	covers := kv.NewRangeTombstones(append(ranges, t.r.ranges...))
	t.around = t.b.around(t.r, older, covers)
	for _, l := range []*lookup{&t.inGaps, &t.beside} {
		if len(older) > 0 {
			l.older = &survivors{it: t.b.iterate(older), covers: covers}
		}
		if len(t.b.filling) > 0 {
			l.backup = &survivors{it: t.b.iterateBackup(), covers: kv.NewRangeTombstones(rangesOf(t.b.filling))}
		}
	}
	if t.b.tell && t.b.backup == nil && len(older) > 0 && len(t.r.gaps) > 0 {
		t.b.loseOlder(t.r)
	}
	t.gapKeys.sources = t.inGaps.all()
	for _, g := range t.r.gaps {
		if t.b.backup == nil && t.r.guesses() && len(g.end) <= kv.MaxKeyBytes && len(g.start) <= kv.MaxKeyBytes {
			if overlapsAny(older, g) {
				t.b.ranges++
				t.rangeDeletes = append(t.rangeDeletes, kv.Entry{Key: g.start, Value: g.end, Seq: t.r.table.want.MaxSeq, Kind: kv.KindRangeDelete})
			}
			continue
		}
		t.gapKeys.gaps = append(t.gapKeys.gaps, g)
	}
	return nil
}

func overlapsAny(runs []manifest.Run, g gap) bool {
	return slices.ContainsFunc(runs, func(run manifest.Run) bool { return len(run.Overlapping(g.start, g.end)) > 0 })
}

// close closes what is open; the table too, and removes it, if it has failed.
func (t *replacing) close(failed bool) error {
	if t.file != nil {
		t.file.stop()
	}
	errs := []error{t.around.close()}
	for _, s := range append(t.inGaps.all(), t.beside.all()...) {
		errs = append(errs, s.it.Close())
	}
	if failed {
		errs = append(errs, t.w.discard())
	}
	return errors.Join(errs...)
}

// run writes the table, key by key.
func (t *replacing) run() (err error) {
	if t.file, err = newStream(t.old); err != nil {
		return err
	}
	for {
		key, err := t.nextKey()
		if key == nil || err != nil {
			return err
		}
		if err := t.b.ctx.Err(); err != nil {
			return err
		}
		if err := t.writeKey(bytes.Clone(key)); err != nil {
			return err
		}
	}
}

// old passes on the entries of the old table that verify.
func (t *replacing) old(yield func(kv.Entry, error) bool) {
	if !t.r.usable {
		return
	}
	found, err := t.b.salvage(t.r.num(), yield)
	expected := t.r.found.Entries
	if t.r.whole {
		expected = t.r.table.want.Entries
	}
	if err == nil && found.Entries != expected {
		err = fmt.Errorf("it has %d readable entries now, and %d before: more of it is damaged; repair again", found.Entries, expected)
	}
	if err != nil && !errors.Is(err, errEnough) {
		yield(kv.Entry{}, err)
	}
}

// nextKey returns the smallest key that comes next in any source; nil: there is none.
func (t *replacing) nextKey() ([]byte, error) {
	least, err := t.gapKeys.key()
	if t.file.more && (least == nil || bytes.Compare(t.file.head.Key, least) < 0) {
		least = t.file.head.Key
	}
	if len(t.rangeDeletes) > 0 && (least == nil || bytes.Compare(t.rangeDeletes[0].Key, least) < 0) {
		least = t.rangeDeletes[0].Key
	}
	return least, err
}

// writeKey writes what the new table has of a key.
func (t *replacing) writeKey(key []byte) error {
	var out []kv.Entry
	if len(t.rangeDeletes) > 0 && bytes.Equal(t.rangeDeletes[0].Key, key) {
		out, t.rangeDeletes = append(out, t.rangeDeletes[0]), t.rangeDeletes[1:]
	}
	versions, err := t.versions(key)
	if err != nil {
		return err
	}
	inFile := slices.ContainsFunc(versions, func(e kv.Entry) bool { return e.Kind != kv.KindRangeDelete })
	lost, found, hideAt := t.r.loses(key, inFile), &t.inGaps, t.r.table.want.MaxSeq
	newest := true
	for i := range versions {
		e := &versions[i]
		if e.Kind == kv.KindRangeDelete {
			out = append(out, *e)
			continue
		}
		readable := false
		if !lost {
			if readable, err = t.readValue(e, newest); err != nil {
				return err
			}
		}
		switch {
		case readable:
			out = append(out, *e)
		case !lost && newest:
			lost, found, hideAt = true, &t.beside, e.Seq
			for _, s := range found.all() {
				if err := s.forward(key); err != nil {
					return err
				}
			}
		}
		newest = false
	}
	if lost {
		e, err := t.restore(key, hideAt, found)
		if err != nil {
			return err
		}
		if e != nil {
			out = append(out, *e)
		}
	}
	slices.SortStableFunc(out, func(a, b kv.Entry) int { return kv.Compare(a.Key, a.Seq, b.Key, b.Seq) })
	for i := range out {
		if err := t.w.add(&out[i]); err != nil {
			return err
		}
	}
	return t.gapKeys.pass(key)
}

// versions returns what the old table has of a key, and moves behind it.
func (t *replacing) versions(key []byte) (all []kv.Entry, err error) {
	for t.file.more && bytes.Equal(t.file.head.Key, key) {
		all = append(all, cloneEntry(&t.file.head))
		if err := t.file.advance(); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// readValue reports whether the value of an entry can be read. A value in a damaged file goes to a
// new one, to which the entry then points.
func (t *replacing) readValue(e *kv.Entry, newest bool) (bool, error) {
	if !e.Apart {
		return true, nil
	}
	at, _ := kv.ParseValuePointer(e.Value) // the table has checked it
	v := t.b.values[at.File]
	if v == nil {
		return true, nil
	}
	err := error(kv.Corruptf(v.file.Path, -1, "the file is missing"))
	var value []byte
	if v.rest != nil {
		value, err = v.rest.Read(at, nil)
	}
	switch {
	case errors.Is(err, kv.ErrCorrupt):
		if newest && t.b.tell {
			t.b.loseValue(e, at)
		}
		return false, nil
	case err != nil:
		return false, err
	}
	e.Value, err = t.b.apart.add(value, nil)
	return err == nil, err
}

// restore returns what the new table has of a key of which the newest version is lost; nil:
// nothing, and what other tables have shows. The backup says what was there at its version. What
// older tables have counts if the backup has it too, or if it is newer than the backup. Otherwise
// it was overwritten or deleted since, and is hidden by a tombstone at the number hideAt.
func (t *replacing) restore(key []byte, hideAt kv.SeqNum, found *lookup) (*kv.Entry, error) {
	have, want := found.older.at(key), found.backup.at(key)
	if want != nil && want.Seq > hideAt {
		want = nil // a newer table or the log has it
	}
	switch {
	case have != nil && t.b.backup != nil && have.Seq > t.b.backup.version:
		return nil, nil
	case have != nil && want != nil && have.Seq == want.Seq:
		return nil, nil
	case want != nil && (have == nil || want.Seq > have.Seq) && (t.base || want.Seq > t.newest):
		if have == nil {
			if newest, err := t.around.newest(key); newest >= want.Seq || err != nil {
				return nil, err
			}
		}
		t.b.restored++
		e := cloneEntry(want)
		return &e, nil
	case have != nil:
		t.b.hidden++
		return &kv.Entry{Key: key, Seq: hideAt, Kind: kv.KindDelete}, nil
	}
	return nil, nil
}
