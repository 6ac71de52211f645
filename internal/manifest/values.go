package manifest

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kvd-db/kvd/internal/kv"
)

// ValueBytes returns the bytes of the separated values of the run, which are in value
// files.
func (r Run) ValueBytes() uint64 {
	var sum uint64
	for i := range r {
		for _, ref := range r[i].Values {
			sum += ref.Bytes
		}
	}
	return sum
}

// NeededValues returns what the tables together need of each value file. The rest of
// a file is garbage.
//
// Cost: linear in the value files that each table points into.
func (v *Version) NeededValues() map[kv.FileNum]kv.ValueRef {
	needed := make(map[kv.FileNum]kv.ValueRef, len(v.Values))
	for t := range v.Tables() {
		for _, ref := range t.Values {
			sum := needed[ref.File]
			needed[ref.File] = kv.ValueRef{File: ref.File, Values: sum.Values + ref.Values, Bytes: sum.Bytes + ref.Bytes}
		}
	}
	return needed
}

// ValueBytes returns the bytes of all values in value files, and of those that no
// table needs any more.
func (v *Version) ValueBytes() (all, garbage uint64) {
	for i := range v.Values {
		all += v.Values[i].Bytes
	}
	needed := v.Base.ValueBytes()
	for _, run := range v.Deltas {
		needed += run.ValueBytes()
	}
	return all, all - needed
}

// ValueFileBytes returns the size of all value files.
func (v *Version) ValueFileBytes() uint64 {
	var sum uint64
	for i := range v.Values {
		sum += v.Values[i].Size
	}
	return sum
}

// takeValues sets v.Values to the value files of old and of the edit that a table of v
// needs, and checks E6.
func (v *Version) takeValues(old *Version, e Edit) error {
	before, after := old.NeededValues(), v.NeededValues()
	v.Values = nil
	for i := range old.Values {
		num := old.Values[i].Num
		was, is := before[num], after[num]
		if is.Values > was.Values || is.Bytes > was.Bytes || e.Kind == Flush && is != was {
			return fmt.Errorf("E6: of value file %06d %d values were needed, %d bytes, and now %d, %d bytes",
				num, was.Values, was.Bytes, is.Values, is.Bytes)
		}
		if is.Values > 0 {
			v.Values = append(v.Values, old.Values[i])
		}
	}
	for i := range e.Values {
		m := &e.Values[i]
		if is := after[m.Num]; is.Values != m.Values || is.Bytes != m.Bytes {
			return fmt.Errorf("E6: new value file %06d has %d values, %d bytes, and %d are needed, %d bytes",
				m.Num, m.Values, m.Bytes, is.Values, is.Bytes)
		}
		v.Values = append(v.Values, *m)
	}
	slices.SortFunc(v.Values, func(a, b kv.ValueFileMeta) int { return cmp.Compare(a.Num, b.Num) })
	return nil
}

// checkValues checks V8.
func (v *Version) checkValues() error {
	needed := v.NeededValues()
	for i := range v.Values {
		m := &v.Values[i]
		ref := needed[m.Num]
		switch {
		case i > 0 && m.Num <= v.Values[i-1].Num:
			return fmt.Errorf("V8: value file %06d follows %06d", m.Num, v.Values[i-1].Num)
		case m.Values == 0 || m.Bytes < m.Values || m.Size <= m.Bytes:
			return fmt.Errorf("V8: value file %06d has %d bytes, %d values of %d bytes", m.Num, m.Size, m.Values, m.Bytes)
		case ref.Values == 0:
			return fmt.Errorf("V8: no table needs value file %06d", m.Num)
		case ref.Values > m.Values || ref.Bytes > m.Bytes:
			return fmt.Errorf("V8: value file %06d has %d values, %d bytes, and %d are needed, %d bytes",
				m.Num, m.Values, m.Bytes, ref.Values, ref.Bytes)
		}
		delete(needed, m.Num)
	}
	for num := range needed {
		return fmt.Errorf("V8: value file %06d is needed and not there", num)
	}
	return nil
}
