package compaction

import (
	"cmp"
	"slices"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
)

const (
	// lowGarbage is a fraction of Policy.MaxGarbage: emptying value files stops there, and
	// above it a merge that is due anyway takes part in emptying them.
	lowGarbage = 0.8
	// maxRewriteFiles bounds the value files that one merge empties, and so the
	// memory for reading them.
	maxRewriteFiles = 64
	// rewriteFactor times Policy.DrainBytes bounds the bytes of values that one merge
	// rewrites, except for the first value file.
	rewriteFactor = 4
)

// weight is the size of a table including its values in value files. Deleting or
// overwriting its entries frees that much.
func weight(t *kv.TableMeta) uint64 {
	sum := t.Size
	for _, ref := range t.Values {
		sum += ref.Bytes
	}
	return sum
}

func weightOf(run manifest.Run) uint64 { return run.Bytes() + run.ValueBytes() }

// tooMuchGarbage reports whether garbage is more than a share of all bytes in value
// files.
func tooMuchGarbage(all, garbage uint64, share float64) bool {
	return float64(garbage) > share*float64(all)
}

// condemned returns the value files to empty: those with the smallest needed share, as
// many as are necessary to reach the low bound. Each has garbage, and none is damaged.
func (k *picker) condemned() []kv.FileNum {
	low := lowGarbage * float64(k.p.MaxGarbage) / 100
	all, garbage := k.v.ValueBytes()
	if !tooMuchGarbage(all, garbage, low) {
		return nil
	}
	needed := k.v.NeededValues()
	files := slices.Clone(k.v.Values)
	share := func(m *kv.ValueFileMeta) float64 { return float64(needed[m.Num].Bytes) / float64(m.Bytes) }
	slices.SortFunc(files, func(a, b kv.ValueFileMeta) int {
		return cmp.Or(cmp.Compare(share(&a), share(&b)), cmp.Compare(a.Num, b.Num))
	})
	var worst []kv.FileNum
	for i := range files {
		if k.known.Damaged != nil && k.known.Damaged(files[i].Num) {
			continue
		}
		freed := files[i].Bytes - needed[files[i].Num].Bytes
		if freed == 0 || !tooMuchGarbage(all, garbage, low) {
			break
		}
		all, garbage = all-freed, garbage-freed
		worst = append(worst, files[i].Num)
	}
	return worst
}

// carry makes a choice empty condemned value files as a side effect. A merge into the base
// rewrites what its inputs need of them, because drains reach every table of the base in
// time; a merge of deltas only handles files that it empties completely.
func (k *picker) carry(c Choice) Choice {
	condemned := k.condemned()
	if len(condemned) == 0 {
		return c
	}
	needed := k.v.NeededValues()
	here := make(map[kv.FileNum]uint64)
	for _, run := range c.Inputs() {
		for i := range run {
			for _, ref := range run[i].Values {
				here[ref.File] += ref.Bytes
			}
		}
	}
	var moved uint64
	for _, num := range condemned {
		bytes := here[num]
		switch {
		case bytes == 0 || c.Kind == manifest.CompactDeltas && c.Reason != ReasonGarbage && bytes < needed[num].Bytes:
			continue
		case len(c.Rewrite) == maxRewriteFiles || len(c.Rewrite) > 0 && moved+bytes > rewriteFactor*k.p.DrainBytes:
			return c
		}
		c.Rewrite = append(c.Rewrite, num)
		moved += bytes
	}
	return c
}

// collect picks tables to rewrite only to empty the value file with the most garbage:
// adjacent tables of the base up to DrainBytes, or one delta. Each such merge leaves fewer
// pointers into the file, until it can be removed.
func (k *picker) collect() (Choice, bool) {
	all, garbage := k.v.ValueBytes()
	if !tooMuchGarbage(all, garbage, float64(k.p.MaxGarbage)/100) {
		return Choice{}, false
	}
	for _, num := range k.condemned() {
		if c, ok := k.empty(num); ok {
			return c, true
		}
	}
	return Choice{}, false
}

// empty picks tables that point into a value file.
func (k *picker) empty(num kv.FileNum) (Choice, bool) {
	first, last := -1, -1
	for i := range k.v.Base {
		if first >= 0 && k.broken(k.v.Base[i:i+1]) {
			break
		}
		if pointsInto(&k.v.Base[i], num) && !k.broken(k.v.Base[i:i+1]) {
			if first < 0 {
				first = i
			}
			if first == i || k.v.Base[first:i+1].Bytes() <= k.p.DrainBytes {
				last = i
			}
		}
	}
	if first >= 0 {
		return Choice{Kind: manifest.CompactBase, Base: k.v.Base[first : last+1], Reason: ReasonGarbage}, true
	}
	for i := len(k.v.Deltas) - 1; i >= 0; i-- {
		run := k.v.Deltas[i]
		points := slices.ContainsFunc(run, func(t kv.TableMeta) bool { return pointsInto(&t, num) })
		if points && !k.broken(run) {
			return Choice{Kind: manifest.CompactDeltas, Deltas: k.v.Deltas[i : i+1], Reason: ReasonGarbage}, true
		}
	}
	return Choice{}, false
}

func pointsInto(t *kv.TableMeta, num kv.FileNum) bool {
	return slices.ContainsFunc(t.Values, func(ref kv.ValueRef) bool { return ref.File == num })
}
