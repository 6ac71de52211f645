package compaction

import (
	"fmt"
	"slices"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/manifest"
)

// Choice is a merge that is worth doing: its inputs and where its outputs go. It
// borrows the runs of the Version that it was chosen from.
//
// C1. Its edit fits that Version, and every later one that only flushes separate from
// it: a partition executes one choice at a time.
type Choice struct {
	// Kind is manifest.CompactDeltas or manifest.CompactBase.
	Kind manifest.EditKind
	// Deltas are read, the newest first: whole deltas for CompactDeltas, a part
	// of the oldest for CompactBase.
	Deltas []manifest.Run
	// Base holds the tables of the base that are read. Only CompactBase has any.
	Base manifest.Run
	// Rewrite holds the value files whose values, as far as the inputs need them, are
	// rewritten, so that the files can be removed. Values in other files are not touched.
	Rewrite []kv.FileNum
	// Drop: all inputs are dropped without being read, because no reader can see anything
	// in them or anything that they hide.
	Drop bool
	// Reason is one of the constants below, for events and tests.
	Reason string
}

// Reasons of choices.
const (
	ReasonTier       = "tier"       // deltas of similar size
	ReasonTooMany    = "too many"   // more deltas than Policy.MaxDeltas
	ReasonSize       = "size"       // the oldest delta is large against the base
	ReasonSpace      = "space"      // all deltas together are large against the base
	ReasonTombstones = "tombstones" // tombstones are worth a merge into the base, or out of it
	ReasonGarbage    = "garbage"    // too much of the bytes in value files is garbage
	ReasonCovered    = "covered"    // range tombstones hide everything in some tables
	ReasonDead       = "dead"       // everything in some tables of the base has expired or is a tombstone
	ReasonAll        = "all"        // chosen by All
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

// Entries returns the number of entries of all inputs.
func (c *Choice) Entries() uint64 {
	var sum uint64
	for _, run := range c.Inputs() {
		sum += run.Entries()
	}
	return sum
}

// Tables returns the file numbers of all inputs.
func (c *Choice) Tables() []kv.FileNum {
	var nums []kv.FileNum
	for _, run := range c.Inputs() {
		for i := range run {
			nums = append(nums, run[i].Num)
		}
	}
	return nums
}

// RewriteBytes returns an upper bound of the bytes of the values that are rewritten.
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

// Edit returns the edit that replaces the inputs by the outputs.
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
