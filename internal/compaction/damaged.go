package compaction

import (
	"slices"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
)

// A merge cannot read a damaged table, and must not lose what is left of it. So Pick and All leave
// damaged tables where they are, except that range tombstones which cover one drop it unread. A
// damaged delta divides the deltas: those on either side are merged with each other, and
// only the tables of the oldest delta that neither are damaged nor overlap damaged tables of
// the base go into the base.

// broken reports whether a table of the runs is damaged.
func (k *picker) broken(runs ...manifest.Run) bool {
	if k.known.Damaged == nil {
		return false
	}
	return slices.ContainsFunc(runs, func(run manifest.Run) bool {
		return slices.ContainsFunc(run, func(t kv.TableMeta) bool { return k.known.Damaged(t.Num) })
	})
}

// wholeDeltas returns the most deltas that lie next to each other without a damaged one.
func (k *picker) wholeDeltas() []manifest.Run {
	var most []manifest.Run
	for from := 0; from < len(k.v.Deltas); from++ {
		to := from
		for to < len(k.v.Deltas) && !k.broken(k.v.Deltas[to]) {
			to++
		}
		if to-from > len(most) {
			most = k.v.Deltas[from:to]
		}
		from = to
	}
	return most
}

// drains reports whether a part of the oldest delta can be merged into the base: the table
// and those of the base that it overlaps are whole.
func (k *picker) drains(table manifest.Run) bool {
	return !k.broken(table) && !k.broken(k.overlap(table))
}
