package repair

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sort"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
	"github.com/kvd-db/kvd/internal/sstable"
)

// damagedPart is a partition that is repaired where it is. The directory of its part is in the
// scratch directory.
type damagedPart struct {
	*part
	store    string // its directory in the store
	rewrites map[kv.FileNum]*rewrite
	filling  []*table // what the backup has of the keys that the rewritten tables may have lost
	planned  *build
}

// rewrite is a table that a new one, or none, replaces.
type rewrite struct {
	table  *table
	run    int  // of damagedPart.runs
	whole  bool // only values that it points to are damaged
	usable bool // what verifies in the file is of this table
	found  sstable.Salvaged
	gaps   []gap      // in order, disjoint
	ranges []kv.Entry // range tombstones that verify
	// blind: a range tombstone may be lost, so any key of the gap may have been deleted.
	blind bool
}

// gap is a range of keys, [start, end), whose newest versions in the table may be lost.
type gap struct{ start, end []byte }

// following returns the smallest key after a key. It may be longer than a key can be.
func following(key []byte) []byte { return append(bytes.Clone(key), 0) }

// loses reports whether the newest version of a key that the table had may be lost. inFile: the
// file has a version of it that verifies.
func (r *rewrite) loses(key []byte, inFile bool) bool {
	i := sort.Search(len(r.gaps), func(i int) bool { return bytes.Compare(r.gaps[i].end, key) > 0 })
	if i == len(r.gaps) || bytes.Compare(key, r.gaps[i].start) < 0 {
		return false
	}
	return inFile || r.blind || r.found.MayContain(key)
}

// guesses reports whether the filter is of no use to tell which keys of the gaps are lost.
func (r *rewrite) guesses() bool { return r.blind || !r.found.HasFilter() }

// examine finds out what is left of a damaged table. cause is what is wrong with it.
func (p *damagedPart) examine(r *rewrite, cause error) error {
	want := r.table.want
	all := []gap{{want.Smallest, following(want.Largest)}}
	found, usable, err := p.readDamaged(r.table, cause, func(e *kv.Entry) error {
		r.noteRange(e)
		return nil
	})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		r.table.file.Damage = append(r.table.file.Damage, Damage{Offset: -1, Reason: errMissing.Error()})
		p.loseTable(r.table, errMissing.Error())
		r.gaps = all
		return nil
	case err != nil:
		return err
	case !usable:
		r.gaps, r.ranges = all, nil
		return nil
	}
	r.found, r.usable = found, true
	switch {
	case found.Entries == want.Entries:
	case len(found.Gaps) == 0: // which should be impossible
		r.gaps, r.blind = all, true
	default:
		for i := range found.Gaps {
			r.gaps = append(r.gaps, gapOf(&found.Gaps[i], want))
		}
		if r.blind = r.table.blind; r.blind {
			r.gaps = []gap{{r.gaps[0].start, all[0].end}}
		}
	}
	return nil
}

// gapOf returns the keys that a part of a file may have had.
func gapOf(g *sstable.Gap, want *kv.TableMeta) gap {
	keys := gap{want.Smallest, following(want.Largest)}
	if g.After != nil {
		keys.start = following(g.After)
	}
	switch {
	case g.Before != nil && g.Exclusive:
		keys.end = g.Before
	case g.Before != nil:
		keys.end = following(g.Before)
	}
	return keys
}

// noteRange keeps a range tombstone.
func (r *rewrite) noteRange(e *kv.Entry) {
	if e.Kind == kv.KindRangeDelete {
		r.ranges = append(r.ranges, cloneEntry(e))
	}
}

func cloneEntry(e *kv.Entry) kv.Entry {
	c := *e
	c.Key, c.Value = bytes.Clone(e.Key), bytes.Clone(e.Value)
	return c
}

// examineWhole reads the range tombstones of a table that points into a damaged value file.
func (p *damagedPart) examineWhole(r *rewrite) error {
	f, err := p.src.Open(p.source(manifest.TableName(r.table.want.Num)))
	if err != nil {
		return err
	}
	t, err := sstable.Open(f, p.fileID(r.table.want.Num), nil)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	for _, e := range t.RangeTombstones().All() {
		r.noteRange(&e)
	}
	return t.Close()
}

// plan makes the new tables in the scratch directory, to count what is kept, lost and restored.
func (p *damagedPart) plan() error {
	if err := p.out.fsys.MkdirAll(p.dir); err != nil {
		return err
	}
	if p.backup != nil {
		var keys keySet
		for _, r := range p.rewrites {
			if p.needsLost(r.table.want) {
				keys = append(keys, [2][]byte{r.table.want.Smallest, r.table.want.Largest})
				continue
			}
			for _, g := range r.gaps {
				keys = append(keys, [2][]byte{g.start, g.end})
			}
		}
		var err error
		if p.filling, err = p.fill(keys.union()); err != nil {
			return err
		}
		p.report.Filled -= p.fills // that was what the backup has, and not what is missing here
	}
	p.planned = &build{damagedPart: p, to: p.part, tell: true}
	if err := p.planned.run(); err != nil {
		return err
	}
	p.filled()
	in := p.report.InPlace
	in.Replaced += len(p.rewrites)
	in.Hidden += p.planned.hidden
	in.Ranges += p.planned.ranges
	p.report.Filled += p.planned.restored
	return nil
}

// needsLost reports whether a table points into a damaged value file.
func (p *damagedPart) needsLost(m *kv.TableMeta) bool {
	return slices.ContainsFunc(m.Values, func(ref kv.ValueRef) bool { return p.values[ref.File] != nil })
}

// closeValues closes what is open of the damaged value files.
func (p *damagedPart) closeValues() error {
	var errs []error
	for _, v := range p.values {
		if v.rest != nil {
			errs = append(errs, v.rest.Close())
		}
	}
	return errors.Join(errs...)
}

// loseOlder adds to what a table has lost the older versions of the keys: they are hidden, also
// where the table had no newer one.
func (p *damagedPart) loseOlder(r *rewrite) {
	for i := range p.report.Losses {
		if l := &p.report.Losses[i]; l.File == r.table.file.Path {
			l.FirstVersion = 1
		}
	}
}

// loseValue reports that the value of an entry is lost.
func (p *damagedPart) loseValue(e *kv.Entry, at kv.ValuePointer) {
	file := p.entry(manifest.ValuesName(at.File)).Path
	l := Loss{
		Partition: p.id, FirstKey: bytes.Clone(e.Key), FirstVersion: e.Seq, LastVersion: e.Seq, Entries: 1,
		File: file, Reason: fmt.Sprintf("the value at offset %d does not verify", at.Offset),
	}
	l.LastKey = l.FirstKey
	p.loseOne(&l)
}
