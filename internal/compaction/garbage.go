package compaction

import (
	"cmp"
	"slices"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
)

const (
	// lowGarbage, of what Policy.MaxGarbage admits, is where emptying value files ends,
	// and from where on a merge that goes by anyway takes part in it.
	lowGarbage = 0.8
	// maxRewriteFiles bounds the value files that one merge empties, and with it the
	// memory for reading them.
	maxRewriteFiles = 64
	// rewriteFactor times Policy.DrainBytes is about how much of values one merge writes
	// anew.
	rewriteFactor = 4
)

// weight is what a table holds, its values in value files included. What is deleted
// or overwritten frees that much.
func weight(t *kv.TableMeta) uint64 {
	sum := t.Size
	for _, ref := range t.Values {
		sum += ref.Bytes
	}
	return sum
}

func weightOf(run manifest.Run) uint64 { return run.Bytes() + run.ValueBytes() }

// tooMuchGarbage reports whether more than a share of all bytes in value files is
// garbage.
func tooMuchGarbage(all, garbage uint64, share float64) bool {
	return float64(garbage) > share*float64(all)
}

// condemned returns the value files to be emptied: those with the least needed of
// what they hold, as many as it takes to come down to the low bound. None is without
// garbage.
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
		freed := files[i].Bytes - needed[files[i].Num].Bytes
		if freed == 0 || !tooMuchGarbage(all, garbage, low) {
			break
		}
		all, garbage = all-freed, garbage-freed
		worst = append(worst, files[i].Num)
	}
	return worst
}

// carry makes a choice empty condemned value files on its way: a merge into the base
// what its inputs need of them, for every table of the base gets its turn; a merge of
// deltas only files that it empties for good.
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

// collect picks tables to be written anew only to empty the value file with the most
// garbage: neighbours in the base as far as DrainBytes goes, or one delta. Each time
// that leaves fewer pointers into it, until it goes.
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
		if pointsInto(&k.v.Base[i], num) {
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
		if points {
			return Choice{Kind: manifest.CompactDeltas, Deltas: k.v.Deltas[i : i+1], Reason: ReasonGarbage}, true
		}
	}
	return Choice{}, false
}

func pointsInto(t *kv.TableMeta, num kv.FileNum) bool {
	return slices.ContainsFunc(t.Values, func(ref kv.ValueRef) bool { return ref.File == num })
}
