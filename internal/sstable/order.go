package sstable

import (
	"bytes"
	"maps"
	"slices"

	"github.com/kvd-db/kvd/internal/kv"
)

// position is the last entry of a walk over a file, and the rule for what may
// follow it. The zero value is before the first entry.
type position struct {
	key   []byte
	seq   kv.SeqNum // 0: before the first entry
	point bool      // a put or delete has this key and number
}

// relation is how an entry relates to the one before it.
type relation int

const (
	outOfOrder relation = iota
	newKey
	newVersion // of the same key
	tied       // same key and number: range tombstones and at most one other entry
)

func (p *position) relation(e *kv.Entry) relation {
	if p.seq == 0 {
		return newKey
	}
	switch c := bytes.Compare(p.key, e.Key); {
	case c < 0:
		return newKey
	case c > 0 || p.seq < e.Seq:
		return outOfOrder
	case p.seq > e.Seq:
		return newVersion
	case p.point && e.Kind != kv.KindRangeDelete:
		return outOfOrder
	}
	return tied
}

// move makes e, which has relation r to the last entry, the last entry.
func (p *position) move(e *kv.Entry, r relation) {
	if r == newKey {
		p.key = append(p.key[:0], e.Key...)
	}
	p.point = e.Kind != kv.KindRangeDelete || r == tied && p.point
	p.seq = e.Seq
}

// census counts the entries of a file for its properties.
type census struct {
	meta       kv.TableMeta
	stats      statsCensus
	tombstones []kv.Entry // the range deletes
	values     map[kv.FileNum]*kv.ValueRef
	// recent caches some of values, at the file number modulo its length: a table points
	// into some dozens of files in random order, and this is cheaper than the map.
	recent [64]*kv.ValueRef
}

// add counts e, which has relation r to the entry before it. It copies the slices that
// it keeps.
func (c *census) add(e *kv.Entry, r relation) {
	c.stats.add(e, r)
	m := &c.meta
	if m.Entries == 0 {
		m.Smallest = bytes.Clone(e.Key)
		m.MinSeq = e.Seq
	}
	m.Entries++
	m.MinSeq, m.MaxSeq = min(m.MinSeq, e.Seq), max(m.MaxSeq, e.Seq)
	if e.Kind != kv.KindPut {
		m.Deletes++
	}
	if e.Kind == kv.KindRangeDelete {
		t := kv.Entry{Key: bytes.Clone(e.Key), Value: bytes.Clone(e.Value), Seq: e.Seq, Kind: e.Kind}
		c.tombstones = append(c.tombstones, t)
	}
	if e.Apart {
		c.addValue(e.Value)
	}
}

// addValue counts a separated value.
func (c *census) addValue(stored []byte) {
	p, _ := kv.ParseValuePointer(stored) // the caller has validated the entry
	recent := &c.recent[p.File%kv.FileNum(len(c.recent))]
	if *recent == nil || (*recent).File != p.File {
		*recent = c.valuesIn(p.File)
	}
	(*recent).Values++
	(*recent).Bytes += uint64(p.Length)
}

// valuesIn returns the counter of values in a file.
func (c *census) valuesIn(file kv.FileNum) *kv.ValueRef {
	ref := c.values[file]
	if ref == nil {
		if c.values == nil {
			c.values = make(map[kv.FileNum]*kv.ValueRef)
		}
		ref = &kv.ValueRef{File: file}
		c.values[file] = ref
	}
	return ref
}

// end completes the count; last is the last key.
func (c *census) end(last []byte) {
	c.stats.end()
	c.meta.Largest = bytes.Clone(last)
	for i := range c.tombstones {
		if key := reach(c.tombstones[i].Value); bytes.Compare(key, c.meta.Largest) > 0 {
			c.meta.Largest = key
		}
	}
	for _, file := range slices.Sorted(maps.Keys(c.values)) {
		c.meta.Values = append(c.meta.Values, *c.values[file])
	}
}

// reach returns the last key that a range tombstone with this end covers, or the
// end itself, because only an end with a trailing zero byte has a key directly before
// it. So two files that cut a range at such a key are disjoint by their bounds.
func reach(end []byte) []byte {
	if n := len(end) - 1; n > 0 && end[n] == 0 {
		return end[:n]
	}
	return end
}
