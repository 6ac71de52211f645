package compaction

import (
	"bytes"
	"slices"

	"github.com/kvd-db/kvd/internal/kv"
)

// cover holds the range tombstones that cover the current key of a merge. The merge
// reaches each one at its start, and so before everything that it hides.
//
// Its methods are called with keys that never fall, and remove tombstones that end before.
type cover struct {
	tombstones []kv.Entry // newest first; each began at the current key or before it
	nextEnd    []byte     // the smallest of their ends; nil if there are none
}

// add adds a range tombstone that begins at the current key.
func (c *cover) add(t kv.Entry) {
	c.reach(t.Key)
	at, _ := slices.BinarySearchFunc(c.tombstones, t.Seq, func(x kv.Entry, seq kv.SeqNum) int {
		if x.Seq > seq {
			return -1
		}
		return 1
	})
	c.tombstones = slices.Insert(c.tombstones, at, t)
	if c.nextEnd == nil || bytes.Compare(t.Value, c.nextEnd) < 0 {
		c.nextEnd = t.Value
	}
}

// newest returns the sequence number of the newest tombstone not newer than at that
// covers key, or 0.
func (c *cover) newest(key []byte, at kv.SeqNum) kv.SeqNum {
	c.reach(key)
	for i := range c.tombstones {
		if seq := c.tombstones[i].Seq; seq <= at {
			return seq
		}
	}
	return 0
}

// end returns the end of a tombstone that supersedes t from its start on: one that
// is not older, and not newer than at; nil if there is none.
func (c *cover) end(t *kv.Entry, at kv.SeqNum) []byte {
	c.reach(t.Key)
	for i := range c.tombstones {
		if x := &c.tombstones[i]; x.Seq <= at && x.Seq >= t.Seq {
			return x.Value
		}
	}
	return nil
}

// keep removes the tombstones for which stays is false.
func (c *cover) keep(stays func(*kv.Entry) bool) {
	c.tombstones = slices.DeleteFunc(c.tombstones, func(t kv.Entry) bool { return !stays(&t) })
	c.nextEnd = nil
	for i := range c.tombstones {
		if end := c.tombstones[i].Value; c.nextEnd == nil || bytes.Compare(end, c.nextEnd) < 0 {
			c.nextEnd = end
		}
	}
}

// reach removes the tombstones that end at key or before it.
func (c *cover) reach(key []byte) {
	if c.nextEnd != nil && bytes.Compare(c.nextEnd, key) <= 0 {
		c.keep(func(t *kv.Entry) bool { return bytes.Compare(t.Value, key) > 0 })
	}
}

// agenda holds range tombstones that begin later, where a table was cut or
// where a newer one ends, in the order of kv.Compare.
type agenda []kv.Entry

func (a *agenda) add(t kv.Entry) {
	at, _ := slices.BinarySearchFunc(*a, t, func(x, t kv.Entry) int { return kv.Compare(x.Key, x.Seq, t.Key, t.Seq) })
	*a = slices.Insert(*a, at, t)
}

// due returns the first one if it orders not after e, else nil. A nil e is the end of
// the merge.
func (a agenda) due(e *kv.Entry) *kv.Entry {
	if len(a) == 0 || e != nil && kv.Compare(a[0].Key, a[0].Seq, e.Key, e.Seq) > 0 {
		return nil
	}
	return &a[0]
}

// pop removes and returns the first one.
func (a *agenda) pop() kv.Entry {
	t := (*a)[0]
	*a = slices.Delete(*a, 0, 1)
	return t
}
