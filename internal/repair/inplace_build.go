package repair

import (
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/mergeiter"
	"github.com/kvd-db/kvd/internal/sstable"
	"github.com/kvd-db/kvd/internal/vfs"
)

// build makes the new tables of a partition, the oldest run first, because what a newer table has
// to hide depends on what the older ones show.
type build struct {
	*damagedPart
	to   *part // where the new tables go
	tell bool  // lost values are reported

	made      map[kv.FileNum]*kv.TableMeta // by the number of the table that is replaced; nil: by none
	fresh     map[kv.FileNum]bool          // the numbers of the new tables
	apart     *valueWriter
	newValues *kv.ValueFileMeta

	hidden, restored uint64 // keys
	ranges           int    // range tombstones that hide whole gaps
}

func (b *build) run() (err error) {
	b.made, b.fresh = map[kv.FileNum]*kv.TableMeta{}, map[kv.FileNum]bool{}
	b.apart = &valueWriter{p: b.to}
	for _, run := range slices.Backward(b.runs()) {
		for i := range run {
			if r := b.rewrites[run[i].Num]; r != nil {
				if err := b.replace(r); err != nil {
					return errors.Join(fmt.Errorf("%s: %w", r.table.file.Path, err), b.apart.close())
				}
			}
		}
	}
	b.newValues, err = b.apart.finish()
	return err
}

// edit returns the edit of the manifest that puts the new tables in the places of the old ones.
func (b *build) edit() manifest.Edit {
	e := manifest.Edit{Kind: manifest.Replace}
	for num := range b.rewrites {
		e.Removed = append(e.Removed, num)
	}
	slices.Sort(e.Removed)
	for _, num := range e.Removed {
		if m := b.made[num]; m != nil {
			e.Added, e.Places = append(e.Added, *m), append(e.Places, num)
		}
	}
	if b.newValues != nil {
		e.Values = []kv.ValueFileMeta{*b.newValues}
	}
	return e
}

// replace makes the table that takes the place of another.
func (b *build) replace(r *rewrite) (err error) {
	t := &replacing{b: b, r: r, w: b.to.newTable()}
	defer func() { err = errors.Join(err, t.close(err != nil)) }()
	if err := t.prepare(); err != nil {
		return err
	}
	if err := t.run(); err != nil {
		return err
	}
	b.made[r.num()] = nil
	if t.w.entries > 0 {
		m, _, err := t.w.finish()
		if err != nil {
			return err
		}
		b.made[r.num()], b.fresh[m.Num] = &m, true
	}
	return b.read(int64(r.table.want.Size))
}

// open opens the table that has, in the new file list, the place of one of the old.
func (b *build) open(m *kv.TableMeta) (*sstable.Reader, error) {
	fsys, dir := vfs.FS(b.src), b.store
	if b.fresh[m.Num] {
		fsys, dir = b.to.out.fsys, b.to.dir
	}
	f, err := fsys.Open(path.Join(dir, manifest.TableName(m.Num)))
	if err != nil {
		return nil, err
	}
	t, err := sstable.Open(f, b.fileID(m.Num), nil)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return t, nil
}

// older returns what is there, once repaired, of the runs that are older than a table's: the
// tables that overlap it, by run, and the newest version in all of the runs.
func (b *build) older(r *rewrite) (overlapping []manifest.Run, newest kv.SeqNum) {
	want := r.table.want
	for _, run := range b.runs()[r.run+1:] {
		var left manifest.Run
		for _, m := range run {
			if made, replaced := b.made[m.Num]; replaced && made == nil {
				continue
			} else if replaced {
				m = *made
			}
			newest = max(newest, m.MaxSeq)
			if m.Overlaps(want.Smallest, want.Largest) {
				left = append(left, m)
			}
		}
		if len(left) > 0 {
			overlapping = append(overlapping, left)
		}
	}
	return overlapping, newest
}

// rangesIn returns the range tombstones of tables.
func (b *build) rangesIn(runs []manifest.Run) (all []kv.Entry, err error) {
	for _, run := range runs {
		for i := range run {
			t, err := b.open(&run[i])
			if err != nil {
				return nil, err
			}
			for _, e := range t.RangeTombstones().All() {
				all = append(all, cloneEntry(&e))
			}
			if err := t.Close(); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// iterate returns an iterator over runs.
func (b *build) iterate(runs []manifest.Run) kv.Iterator {
	var all []kv.Iterator
	for _, run := range runs {
		all = append(all, run.NewIterator(func(i int) (kv.Iterator, error) {
			t, err := b.open(&run[i])
			if err != nil {
				return nil, err
			}
			return &closingIterator{t.NewIterator(sstable.IterOptions{}), t}, nil
		}))
	}
	return mergeiter.New(all...)
}

// iterateBackup returns an iterator over what the backup has.
func (b *build) iterateBackup() kv.Iterator {
	var all []kv.Iterator
	for _, t := range b.filling {
		all = append(all, b.part.iterate([]*table{t}))
	}
	return mergeiter.New(all...)
}
