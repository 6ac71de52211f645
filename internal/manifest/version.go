package manifest

import (
	"bytes"
	"fmt"
	"iter"
	"strings"

	"github.com/kvd-db/kvd/internal/kv"
)

// Version is the set of files that make up a partition at one moment. It is
// immutable and safe for concurrent use.
//
// V1. A run is sorted and disjoint: the largest key of a table is less than the
// smallest of the next, so no key is in two tables of a run.
//
// V2. A delta has at least one table. The base may have none, and so may the
// Version.
//
// V3. Num and the numbers of the tables and value files are positive, distinct and
// less than NextFile.
//
// V4. Every table has bytes, entries and keys that are not empty, no more
// tombstones than entries, and sequence numbers that are not zero.
//
// V5. No entry is newer than MaxSeq, and MaxSeq is not newer than FlushedSeq.
//
// V6. Deltas are ordered in time: each entry of a delta is newer than every
// entry of an older delta.
//
// V7. Each entry of a delta other than the oldest is newer than every entry of
// the base. The oldest delta is exempt: while it is drained into the base step by
// step, the base holds some of its keys and the delta the others. For any one key
// the delta is still newer than the base.
//
// V8. Values is ordered by number. Of each value file some table needs a value, and the
// tables together need no more than it has; each value file that a table needs is listed.
//
// V9. Position has at most 64 KiB.
type Version struct {
	// Num is the number of the manifest that records this Version.
	Num kv.FileNum
	// Partition is the partition that the files belong to.
	Partition uint32
	// NextFile is a ceiling: no file of that number or a larger one was made
	// when this Version was current.
	NextFile kv.FileNum
	// FlushedSeq: every write of the partition up to this number is in the
	// tables, so recovery need not replay it from the commit log.
	FlushedSeq kv.SeqNum
	// MaxSeq is the largest number that any table of the partition ever held,
	// dropped entries included.
	MaxSeq kv.SeqNum
	// Position is where in a replicated log the tables stand, as their owner encodes it: they
	// hold every write of the partition up to there, and perhaps later ones, up to
	// FlushedSeq. Nil if the log is the node's own.
	Position []byte
	// Deltas are sorted runs newer than the base, the newest first.
	Deltas []Run
	// Base is the oldest sorted run.
	Base Run
	// Values are the value files that the tables point into.
	Values []kv.ValueFileMeta
}

// Files iterates over all files that the Version names: tables and value files.
func (v *Version) Files() iter.Seq2[FileKind, kv.FileNum] {
	return func(yield func(FileKind, kv.FileNum) bool) {
		for t := range v.Tables() {
			if !yield(FileTable, t.Num) {
				return
			}
		}
		for i := range v.Values {
			if !yield(FileValues, v.Values[i].Num) {
				return
			}
		}
	}
}

// Tables iterates over all tables: deltas, newest first, then the base.
func (v *Version) Tables() iter.Seq[*kv.TableMeta] {
	return func(yield func(*kv.TableMeta) bool) {
		for _, run := range v.runs() {
			for i := range run {
				if !yield(&run[i]) {
					return
				}
			}
		}
	}
}

// runs returns the deltas, newest first, and the base.
func (v *Version) runs() []Run {
	return append(v.Deltas[:len(v.Deltas):len(v.Deltas)], v.Base)
}

// Bytes returns the size of all tables.
func (v *Version) Bytes() uint64 { return v.Base.Bytes() + v.DeltaBytes() }

// DeltaBytes returns the size of the tables of all deltas.
func (v *Version) DeltaBytes() uint64 {
	var sum uint64
	for _, run := range v.Deltas {
		sum += run.Bytes()
	}
	return sum
}

// Entries returns how many entries the tables hold: all versions of all keys,
// tombstones included.
func (v *Version) Entries() uint64 {
	sum := v.Base.Entries()
	for _, run := range v.Deltas {
		sum += run.Entries()
	}
	return sum
}

// String describes the Version for people, a line per run.
func (v *Version) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s partition %d, next file %d, flushed up to %d, max seq %d\n",
		ManifestName(v.Num), v.Partition, v.NextFile, v.FlushedSeq, v.MaxSeq)
	for i, run := range v.Deltas {
		fmt.Fprintf(&b, "delta %d: %s\n", i, run)
	}
	fmt.Fprintf(&b, "base: %s\n", v.Base)
	needed := v.NeededValues()
	for i := range v.Values {
		m := &v.Values[i]
		fmt.Fprintf(&b, "values %06d: %d of %d values needed, %d of %d B\n", m.Num, needed[m.Num].Values, m.Values, needed[m.Num].Bytes, m.Bytes)
	}
	return b.String()
}

// String lists the tables of the run.
func (r Run) String() string {
	if len(r) == 0 {
		return "empty"
	}
	var b strings.Builder
	for i := range r {
		if i > 0 {
			b.WriteByte(' ')
		}
		t := &r[i]
		fmt.Fprintf(&b, "%06d[%q..%q seq %d..%d, %d/%d deletes, %d B]",
			t.Num, t.Smallest, t.Largest, t.MinSeq, t.MaxSeq, t.Deletes, t.Entries, t.Size)
	}
	return b.String()
}

// check returns the invariant that the Version breaks, nil if none.
func (v *Version) check() error {
	if err := v.checkNumbers(); err != nil {
		return err
	}
	if len(v.Position) > maxPosition {
		return fmt.Errorf("V9: a position of %d bytes", len(v.Position))
	}
	if v.MaxSeq > v.FlushedSeq || v.FlushedSeq > kv.MaxSeqNum {
		return fmt.Errorf("V5: max seq %d, flushed seq %d", v.MaxSeq, v.FlushedSeq)
	}
	for i, run := range v.Deltas {
		if len(run) == 0 {
			return fmt.Errorf("V2: delta %d is empty", i)
		}
	}
	for _, run := range v.runs() {
		if err := v.checkRun(run); err != nil {
			return err
		}
	}
	if err := v.checkValues(); err != nil {
		return err
	}
	return v.checkOrder()
}

func (v *Version) checkNumbers() error {
	seen := map[kv.FileNum]bool{v.Num: true}
	if v.Num == 0 || v.Num >= v.NextFile {
		return fmt.Errorf("V3: manifest number %d, next file %d", v.Num, v.NextFile)
	}
	for kind, num := range v.Files() {
		if num == 0 || num >= v.NextFile {
			return fmt.Errorf("V3: number %d of a %s, next file %d", num, kind, v.NextFile)
		}
		if seen[num] {
			return fmt.Errorf("V3: number %d is used twice", num)
		}
		seen[num] = true
	}
	return nil
}

func (v *Version) checkRun(run Run) error {
	for i := range run {
		t := &run[i]
		switch {
		case t.Size == 0 || t.Entries == 0 || t.Deletes > t.Entries:
			return fmt.Errorf("V4: table %06d has %d bytes, %d entries, %d tombstones", t.Num, t.Size, t.Entries, t.Deletes)
		case len(t.Smallest) == 0 || bytes.Compare(t.Smallest, t.Largest) > 0:
			return fmt.Errorf("V1: table %06d has no first key, or one after its last", t.Num)
		case t.MinSeq == 0 || t.MinSeq > t.MaxSeq:
			return fmt.Errorf("V4: table %06d has sequence numbers %d to %d", t.Num, t.MinSeq, t.MaxSeq)
		case t.MaxSeq > v.MaxSeq:
			return fmt.Errorf("V5: table %06d has sequence number %d, max seq is %d", t.Num, t.MaxSeq, v.MaxSeq)
		case i > 0 && bytes.Compare(run[i-1].Largest, t.Smallest) >= 0:
			return fmt.Errorf("V1: table %06d does not end before the next one, %06d, begins", run[i-1].Num, t.Num)
		}
	}
	return nil
}

func (v *Version) checkOrder() error {
	if len(v.Deltas) == 0 {
		return nil
	}
	_, baseMax := v.Base.SeqBounds()
	for i, run := range v.Deltas[:len(v.Deltas)-1] {
		oldest, _ := run.SeqBounds()
		if _, before := v.Deltas[i+1].SeqBounds(); oldest <= before {
			return fmt.Errorf("V6: delta %d begins at sequence number %d, the older one ends at %d", i, oldest, before)
		}
		if oldest <= baseMax {
			return fmt.Errorf("V7: delta %d begins at sequence number %d, the base ends at %d", i, oldest, baseMax)
		}
	}
	return nil
}
