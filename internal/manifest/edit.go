package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/kvd-db/kvd/internal/kv"
)

// EditKind says where an edit puts its tables.
type EditKind uint8

// The kinds of edits. The zero value is none.
const (
	// Flush adds a delta, the newest, and advances FlushedSeq. Without tables it
	// only advances FlushedSeq.
	Flush EditKind = 1
	// CompactDeltas replaces adjacent deltas by one delta, or none.
	CompactDeltas EditKind = 2
	// CompactBase moves tables of the oldest deltas into the base.
	CompactBase EditKind = 3
	// Replace puts another table, or none, in the place of each of some tables. A repair
	// does so; what it adds may have lost entries of what it removes.
	Replace EditKind = 4
)

var editKindNames = [...]string{Flush: "flush", CompactDeltas: "deltas", CompactBase: "base", Replace: "replace"}

func (k EditKind) String() string {
	if k > 0 && int(k) < len(editKindNames) {
		return editKindNames[k]
	}
	return fmt.Sprintf("edit(%d)", uint8(k))
}

// Edit is a change of a Version. It names files, not positions: a flush may
// have been installed since a compaction chose its tables.
type Edit struct {
	Kind EditKind
	// Removed holds the tables that a compaction read, or that Replace replaces, in any order.
	Removed []kv.FileNum
	// Added holds the tables that were written, in order of their keys but for Replace. A
	// compaction that dropped all it read adds none.
	Added Run
	// Places of Replace: Added[i] takes the place of the removed table Places[i].
	Places []kv.FileNum
	// Values holds the value files that were written. Apply removes those that no table
	// needs any more.
	Values []kv.ValueFileMeta
	// FlushedSeq is the new Version.FlushedSeq. Only Flush has one.
	FlushedSeq kv.SeqNum
	// Position is the new Version.Position; nil: it stays. Only Flush has one.
	Position []byte
}

// Apply returns the Version after an edit, or why the edit does not fit. The
// result shares runs with v; it has v's Num and NextFile, which the Set changes.
// Apply does not change v and does no I/O.
//
// Besides V1 to V9 for the result it checks:
//
// E1. FlushedSeq does not fall. A flush adds only entries newer than the old
// FlushedSeq and not newer than the new one, so none is stored twice.
//
// E2. A compaction removes at least one table, and only tables of v.
//
// E3. CompactDeltas removes whole deltas that are adjacent.
//
// E4. CompactBase takes tables from the deltas beginning with the oldest: it
// takes a table of a delta only if it takes all older deltas whole, and with a
// table it takes every base table that overlaps it. So every older version of a
// key that it read is in a table that it read. This is the condition for dropping a
// tombstone.
//
// E5. What a compaction adds is within what it removes: keys, sequence numbers
// and the number of entries. A range tombstone counts once more for each new table
// but the first, because it may be cut where a table begins.
//
// E6. A compaction needs no more of an existing value file than v does, a flush exactly
// as much. A value file that an edit adds is needed whole.
//
// E7. A table that takes the place of another lies within its keys, and no entry of it is
// newer. Only Replace has Places.
//
// Cost: linear in the tables of v.
func (v *Version) Apply(e Edit) (*Version, error) {
	next := *v
	next.Deltas = slices.Clone(v.Deltas)
	next.FlushedSeq = max(v.FlushedSeq, e.FlushedSeq)
	if e.Position != nil {
		next.Position = e.Position
	}
	_, added := e.Added.SeqBounds()
	next.MaxSeq = max(v.MaxSeq, added)

	var err error
	switch {
	case e.Kind != Replace && len(e.Places) > 0:
		err = errors.New("E7: only a replacement has places")
	case e.Kind == Flush:
		err = next.flush(v, e)
	case e.Kind == CompactDeltas:
		err = next.compactDeltas(e)
	case e.Kind == CompactBase:
		err = next.compactBase(e)
	case e.Kind == Replace:
		err = next.replace(e)
	default:
		err = errors.New("unknown kind")
	}
	if err == nil {
		err = next.takeValues(v, e)
	}
	if err == nil {
		err = next.check()
	}
	if err != nil {
		return nil, fmt.Errorf("edit %s of %s: %w", e.Kind, ManifestName(v.Num), err)
	}
	return &next, nil
}

func (v *Version) flush(old *Version, e Edit) error {
	if len(e.Removed) > 0 {
		return errors.New("E2: a flush removes no tables")
	}
	if e.FlushedSeq < old.FlushedSeq {
		return fmt.Errorf("E1: flushed seq falls from %d to %d", old.FlushedSeq, e.FlushedSeq)
	}
	if len(e.Added) == 0 {
		return nil
	}
	if first, last := e.Added.SeqBounds(); first <= old.FlushedSeq || last > e.FlushedSeq {
		return fmt.Errorf("E1: entries %d to %d, want %d to %d", first, last, old.FlushedSeq+1, e.FlushedSeq)
	}
	v.Deltas = slices.Insert(v.Deltas, 0, e.Added)
	return nil
}

func (v *Version) compactDeltas(e Edit) error {
	gone, err := e.removed()
	if err != nil {
		return err
	}
	first, count := -1, 0
	var read []Run
	for i, run := range v.Deltas {
		kept, taken := gone.split(run)
		switch {
		case len(taken) == 0:
		case len(kept) > 0:
			return fmt.Errorf("E3: delta %d loses %d of its %d tables", i, len(taken), len(run))
		case first >= 0 && first+count != i:
			return fmt.Errorf("E3: deltas %d and %d are removed, but not those between", first, i)
		default:
			if first < 0 {
				first = i
			}
			count++
			read = append(read, run)
		}
	}
	if err := gone.allFound(); err != nil {
		return err
	}
	v.Deltas = slices.Delete(v.Deltas, first, first+count)
	if len(e.Added) > 0 {
		v.Deltas = slices.Insert(v.Deltas, first, e.Added)
	}
	return e.within(read)
}

func (v *Version) compactBase(e Edit) error {
	gone, err := e.removed()
	if err != nil {
		return err
	}
	kept, base := gone.split(v.Base)
	read := []Run{base}
	for whole := true; whole && len(v.Deltas) > 0; {
		oldest := len(v.Deltas) - 1
		left, taken := gone.split(v.Deltas[oldest])
		for i := range taken {
			t := &taken[i]
			if n := len(kept.Overlapping(t.Smallest, t.Largest)); n > 0 {
				return fmt.Errorf("E4: table %06d is removed, but not %d tables of the base that it overlaps", t.Num, n)
			}
		}
		read = append(read, taken)
		if whole = len(left) == 0; whole {
			v.Deltas = v.Deltas[:oldest]
		} else {
			v.Deltas[oldest] = left
		}
	}
	if err := gone.allFound(); err != nil {
		return fmt.Errorf("E4: removes more than tables of the base and of the oldest deltas: %w", err)
	}
	v.Base = slices.Concat(kept, e.Added)
	slices.SortFunc(v.Base, func(a, b kv.TableMeta) int { return bytes.Compare(a.Smallest, b.Smallest) })
	return e.within(read)
}

func (v *Version) replace(e Edit) error {
	gone, err := e.removed()
	if err != nil {
		return err
	}
	if len(e.Places) != len(e.Added) {
		return fmt.Errorf("E7: %d tables for %d places", len(e.Added), len(e.Places))
	}
	added := make(map[kv.FileNum]*kv.TableMeta, len(e.Added))
	for i, num := range e.Places {
		if _, removed := gone[num]; !removed || added[num] != nil {
			return fmt.Errorf("E7: table %06d takes the place of table %06d, which is not removed, or is replaced twice", e.Added[i].Num, num)
		}
		added[num] = &e.Added[i]
	}
	deltas := v.Deltas[:0]
	for _, run := range v.Deltas {
		if run, err = gone.replaceIn(run, added); err != nil {
			return err
		}
		if len(run) > 0 {
			deltas = append(deltas, run)
		}
	}
	v.Deltas = deltas
	if v.Base, err = gone.replaceIn(v.Base, added); err != nil {
		return err
	}
	return gone.allFound()
}

// replaceIn returns the run with the tables that are added in the places of those that are
// removed, and checks E7.
func (r removal) replaceIn(run Run, added map[kv.FileNum]*kv.TableMeta) (Run, error) {
	var next Run
	for i := range run {
		old := &run[i]
		if _, ok := r[old.Num]; !ok {
			next = append(next, *old)
			continue
		}
		r[old.Num] = true
		t := added[old.Num]
		if t == nil {
			continue
		}
		if bytes.Compare(t.Smallest, old.Smallest) < 0 || bytes.Compare(t.Largest, old.Largest) > 0 || t.MaxSeq > old.MaxSeq {
			return nil, fmt.Errorf("E7: new table %06d, up to %d, is not within table %06d, up to %d", t.Num, t.MaxSeq, old.Num, old.MaxSeq)
		}
		next = append(next, *t)
	}
	return next, nil
}

// within checks E5 against the tables that the compaction read.
func (e *Edit) within(read []Run) error {
	var smallest, largest []byte
	var first, last kv.SeqNum
	var entries, deletes uint64
	for _, run := range read {
		if len(run) == 0 {
			continue
		}
		lo, hi := run.SeqBounds()
		if entries == 0 || lo < first {
			first = lo
		}
		last = max(last, hi)
		if entries == 0 || bytes.Compare(run[0].Smallest, smallest) < 0 {
			smallest = run[0].Smallest
		}
		if end := run[len(run)-1].Largest; bytes.Compare(end, largest) > 0 {
			largest = end
		}
		entries += run.Entries()
		deletes += run.Deletes()
	}
	for i := range e.Added {
		t := &e.Added[i]
		if bytes.Compare(t.Smallest, smallest) < 0 || bytes.Compare(t.Largest, largest) > 0 {
			return fmt.Errorf("E5: new table %06d leaves the keys of the old ones", t.Num)
		}
		if t.MinSeq < first || t.MaxSeq > last {
			return fmt.Errorf("E5: new table %06d has sequence numbers %d to %d, the old ones %d to %d",
				t.Num, t.MinSeq, t.MaxSeq, first, last)
		}
	}
	cuts := uint64(max(len(e.Added), 1) - 1)
	if n := e.Added.Entries(); n > entries+cuts*deletes {
		return fmt.Errorf("E5: %d entries were made of %d, with %d tombstones cut %d times", n, entries, deletes, cuts)
	}
	return nil
}

// removal holds the tables that an edit removes: false until found in the Version.
type removal map[kv.FileNum]bool

func (e *Edit) removed() (removal, error) {
	if len(e.Removed) == 0 {
		return nil, errors.New("E2: a compaction removes at least one table")
	}
	if e.FlushedSeq != 0 {
		return nil, errors.New("E1: a compaction does not move the flushed seq")
	}
	if e.Position != nil {
		return nil, errors.New("E1: a compaction does not move the position")
	}
	gone := make(removal, len(e.Removed))
	for _, num := range e.Removed {
		gone[num] = false
	}
	if len(gone) < len(e.Removed) {
		return nil, errors.New("E2: a table is removed twice")
	}
	return gone, nil
}

// split divides a run into the tables that stay and those that the edit removes, and
// marks the latter found.
func (r removal) split(run Run) (kept, taken Run) {
	for i := range run {
		if _, ok := r[run[i].Num]; ok {
			r[run[i].Num] = true
			taken = append(taken, run[i])
		} else {
			kept = append(kept, run[i])
		}
	}
	return kept, taken
}

func (r removal) allFound() error {
	for num, found := range r {
		if !found {
			return fmt.Errorf("E2: table %06d is not there to be removed", num)
		}
	}
	return nil
}
