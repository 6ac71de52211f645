package compaction

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
)

// RangeTombstones returns the range tombstones of a table, nil if it has none. The
// manifest only counts them among the deletes; their ends are known once the table is
// open.
type RangeTombstones func(kv.FileNum) *kv.RangeTombstones

// covers returns the range tombstones of some runs that no snapshot precedes, ordered by
// their starts.
func (k *picker) covers(runs ...manifest.Run) []kv.Entry {
	var tombstones []kv.Entry
	for _, run := range runs {
		for i := range run {
			if k.known.Ranges == nil || run[i].Deletes == 0 {
				continue
			}
			for _, t := range k.known.Ranges(run[i].Num).All() {
				if t.Seq <= k.known.OldestSnapshot {
					tombstones = append(tombstones, t)
				}
			}
		}
	}
	slices.SortFunc(tombstones, func(a, b kv.Entry) int { return bytes.Compare(a.Key, b.Key) })
	return tombstones
}

// covered estimates the bytes of the base that the range tombstones of some runs
// cover and that a merge could drop now: it ignores tombstones that a snapshot
// precedes.
//
// Cost: linear in the tables of the runs; n log n in the range tombstones.
func (k *picker) covered(runs ...manifest.Run) uint64 {
	tombstones := k.covers(runs...)
	var sum uint64
	for len(tombstones) > 0 { // one connected range of keys per iteration
		start, end := tombstones[0].Key, tombstones[0].Value
		n := 1
		for ; n < len(tombstones) && bytes.Compare(tombstones[n].Key, end) <= 0; n++ {
			if bytes.Compare(tombstones[n].Value, end) > 0 {
				end = tombstones[n].Value
			}
		}
		sum += bytesWithin(k.v.Base, start, end)
		tombstones = tombstones[n:]
	}
	return sum
}

// maxCovers bounds the range tombstones that dropCovered considers. With more, whole
// tables are rarely covered, and the search takes long.
const maxCovers = 4096

// dropCovered picks the tables of the base, or else a delta, in which range tombstones
// hide everything from every reader, to be dropped unread.
//
// Everything that such a table hides in older runs has smaller sequence numbers than the
// table, so the same range tombstones hide it too. They remain until a merge has read what
// they cover: they are newer than the table, and so in another one.
func (k *picker) dropCovered() (Choice, bool) {
	covers := k.covers(append(slices.Clone(k.v.Deltas), k.v.Base)...)
	if len(covers) == 0 || len(covers) > maxCovers {
		return Choice{}, false
	}
	c := Choice{Kind: manifest.CompactBase, Drop: true, Reason: ReasonCovered}
	for i := range k.v.Base {
		if hidden(&k.v.Base[i], covers) {
			c.Base = append(c.Base, k.v.Base[i])
		}
	}
	if len(c.Base) > 0 {
		return c, true
	}
	for i, run := range k.v.Deltas {
		if !slices.ContainsFunc(run, func(t kv.TableMeta) bool { return !hidden(&t, covers) }) {
			return Choice{Kind: manifest.CompactDeltas, Deltas: k.v.Deltas[i : i+1], Drop: true, Reason: ReasonCovered}, true
		}
	}
	return Choice{}, false
}

// hidden reports whether range tombstones that are newer than every entry of a table
// together cover every key of it. covers is ordered by start.
func hidden(t *kv.TableMeta, covers []kv.Entry) bool {
	reached := t.Smallest // all keys before it are covered
	for i := range covers {
		c := &covers[i]
		switch {
		case bytes.Compare(c.Key, reached) > 0:
			if c.Seq > t.MaxSeq {
				return false // no later one begins earlier
			}
		case c.Seq <= t.MaxSeq || bytes.Compare(c.Value, reached) <= 0:
		case bytes.Compare(c.Value, t.Largest) > 0:
			return true
		default:
			reached = c.Value
		}
	}
	return false
}

// bytesWithin estimates how many bytes of a run, its values in value files included,
// have keys in [start, end).
func bytesWithin(run manifest.Run, start, end []byte) uint64 {
	var sum uint64
	within := run.Overlapping(start, end)
	for i := range within {
		t := &within[i]
		sum += uint64(float64(weight(t)) * (share(t, end) - share(t, start)))
	}
	return sum
}

// share estimates the part of a table with keys less than key, as if the keys were
// evenly spread between its bounds: exact for a key outside, a guess for one inside.
func share(t *kv.TableMeta, key []byte) float64 {
	switch {
	case bytes.Compare(key, t.Smallest) <= 0:
		return 0
	case bytes.Compare(key, t.Largest) > 0:
		return 1
	}
	same := 0 // length of the common prefix of all keys of the table
	for same < len(t.Smallest) && t.Smallest[same] == t.Largest[same] {
		same++
	}
	number := func(key []byte) float64 {
		var first [8]byte
		copy(first[:], key[same:])
		return float64(binary.BigEndian.Uint64(first[:]))
	}
	low, high := number(t.Smallest), number(t.Largest)
	if high <= low {
		return 0
	}
	return (number(key) - low) / (high - low)
}
