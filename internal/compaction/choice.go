package compaction

import (
	"fmt"
	"slices"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
)

// Choice is a merge that is worth doing: what to read and where it goes. It
// borrows the runs of the Version that it was chosen from.
//
// C1. Its edit fits that Version, and every later one that flushes lead to: one
// choice of a partition is done at a time.
type Choice struct {
	// Kind is manifest.CompactDeltas or manifest.CompactBase.
	Kind manifest.EditKind
	// Deltas are read, the newest first: whole deltas for CompactDeltas, a part
	// of the oldest for CompactBase.
	Deltas []manifest.Run
	// Base are the tables of the base that are read. Only CompactBase has any.
	Base manifest.Run
	// Rewrite are value files whose values, as far as the inputs need them, are written
	// anew, so that the files can go. Others are not touched.
	Rewrite []kv.FileNum
	// Drop says that all inputs go without being read: nothing in them can be seen by
	// any reader, and nothing that they hide either.
	Drop bool
	// Reason says why, in one of the words below, for events and tests.
	Reason string
}

// Reasons of choices.
const (
	ReasonTier       = "tier"       // deltas of similar size
	ReasonTooMany    = "too many"   // more deltas than Policy.MaxDeltas
	ReasonSize       = "size"       // the oldest delta is large against the base
	ReasonSpace      = "space"      // all deltas together are large against the base
	ReasonTombstones = "tombstones" // tombstones are worth their way into the base, or out of it
	ReasonGarbage    = "garbage"    // too much of what lies in value files is garbage
	ReasonCovered    = "covered"    // range tombstones hide all that some tables have
	ReasonDead       = "dead"       // all in some tables of the base has expired or is a tombstone
	ReasonAll        = "all"        // asked for by All
)

// Inputs returns the runs to read, the newest first.
func (c *Choice) Inputs() []manifest.Run {
	runs := append([]manifest.Run(nil), c.Deltas...)
	if len(c.Base) > 0 {
		runs = append(runs, c.Base)
	}
	return runs
}

// Bytes returns the size of all inputs.
func (c *Choice) Bytes() uint64 {
	var sum uint64
	for _, run := range c.Inputs() {
		sum += run.Bytes()
	}
	return sum
}

// ReadBytes returns the size of the inputs that are read.
func (c *Choice) ReadBytes() uint64 {
	if c.Drop {
		return 0
	}
	return c.Bytes()
}

// Entries returns the count of the entries of all inputs.
func (c *Choice) Entries() uint64 {
	var sum uint64
	for _, run := range c.Inputs() {
		sum += run.Entries()
	}
	return sum
}

// Tables returns the numbers of all inputs.
func (c *Choice) Tables() []kv.FileNum {
	var nums []kv.FileNum
	for _, run := range c.Inputs() {
		for i := range run {
			nums = append(nums, run[i].Num)
		}
	}
	return nums
}

// RewriteBytes returns the bytes of the values that are written anew, at most.
func (c *Choice) RewriteBytes() uint64 {
	var sum uint64
	for _, run := range c.Inputs() {
		for i := range run {
			for _, ref := range run[i].Values {
				if slices.Contains(c.Rewrite, ref.File) {
					sum += ref.Bytes
				}
			}
		}
	}
	return sum
}

// Edit returns the edit that puts the outputs in the place of the inputs.
func (c *Choice) Edit(r *Result) manifest.Edit {
	return manifest.Edit{Kind: c.Kind, Removed: c.Tables(), Added: r.Tables, Values: r.Values}
}

func (c *Choice) String() string {
	s := fmt.Sprintf("%s (%s) of %d deltas and %d tables of the base: %v", c.Kind, c.Reason, len(c.Deltas), len(c.Base), c.Tables())
	if c.Drop {
		s += ", unread"
	}
	if len(c.Rewrite) > 0 {
		s += fmt.Sprintf(", emptying %v", c.Rewrite)
	}
	return s
}
