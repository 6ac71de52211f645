package history

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/kvd-db/kvd/internal/kv"
)

// Violation is an answer that a strictly serializable store cannot give.
type Violation struct {
	Rule string // as in the package comment, such as "R1"
	What string // with the Ops involved
}

func (v Violation) String() string { return v.Rule + ": " + v.What }

// Report is the result of Check.
type Report struct {
	Commits   int // that were applied
	Refused   int
	Resolved  int // of unknown outcome, but a value was read
	Unseen    int // of unknown outcome, and no value was read
	Gets      int
	Snapshots int
	Scans     int

	// Count is the number of violations; Violations holds the first of them.
	Count      int
	Violations []Violation
}

// maxViolations bounds Report.Violations: one bug causes thousands.
const maxViolations = 20

func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d commits (%d of unknown outcome that were seen, %d that were not), %d refused, %d gets, %d snapshots, %d scans, %d violations",
		r.Commits, r.Resolved, r.Unseen, r.Refused, r.Gets, r.Snapshots, r.Scans, r.Count)
	for _, v := range r.Violations {
		fmt.Fprintf(&b, "\n%s", v)
	}
	return b.String()
}

// Check checks the logs of all clients of a run, whose keys are below keys. It takes
// ownership of the Ops and modifies them.
//
// Cost: a sort of the Ops, and some 50 bytes of memory for each.
func Check(keys int, logs ...*Log) *Report {
	c := &checker{report: &Report{}, cells: make([]cell, keys)}
	c.gather(logs)
	c.replay()
	c.followTime()
	return c.report
}

// checker is the state of one Check.
type checker struct {
	report  *Report
	commits []*Op // that were applied, by version
	views   []*Op // Gets and Snapshots
	unknown []*Op
	cells   []cell
	// maybe has by key the writes of unknown outcome that put it, and of which no value was read.
	maybe map[Key][]*unseen
}

// unseen is a put of one key by an Op of unknown outcome.
type unseen struct {
	by    *Op
	taken bool // a read is explained by it: it has a place
	after *Op  // the known write of the key right before its place; nil: none
}

// violated counts a violation. It calls what only if the report has room for the text.
func (c *checker) violated(rule string, what func() string) {
	if c.report.Count++; c.report.Count <= maxViolations {
		c.report.Violations = append(c.report.Violations, Violation{rule, what()})
	}
}

// gather sorts the Ops by kind and decides which of those with an unknown outcome were
// applied.
func (c *checker) gather(logs []*Log) {
	for _, l := range logs {
		for i := range l.ops {
			o := &l.ops[i]
			switch {
			case o.Outcome == Refused:
				c.report.Refused++
			case o.Kind == Commit && o.Outcome == Unknown:
				c.unknown = append(c.unknown, o)
			case o.Kind == Commit:
				c.commits = append(c.commits, o)
			case o.Kind == Snapshot:
				c.report.Snapshots++
				c.report.Scans += len(o.Scans)
				c.views = append(c.views, o)
			default:
				c.report.Gets++
				c.views = append(c.views, o)
			}
		}
	}
	if len(c.unknown) > 0 {
		c.resolve()
	}
	c.report.Commits = len(c.commits)
	slices.SortFunc(c.commits, func(a, b *Op) int { return cmp.Compare(a.Version, b.Version) })
	for i, o := range c.commits {
		if o.Version == 0 || i > 0 && o.Version == c.commits[i-1].Version {
			c.violated("R1", func() string {
				return fmt.Sprintf("two writes, or one and none, have version %d:\n  %s\n  %s", o.Version, c.commits[max(i, 1)-1], o)
			})
		}
	}
}

// resolve finds the values of writes with an unknown outcome among those that were
// read. A read of such a value also gives its version.
func (c *checker) resolve() {
	by := make(map[Value]*Op)
	c.maybe = make(map[Key][]*unseen)
	for _, o := range c.unknown {
		for _, w := range o.Writes {
			if w.Value != Absent {
				by[w.Value] = o
			}
		}
	}
	for _, ops := range [][]*Op{c.views, c.commits} {
		for _, o := range ops {
			for r := range o.seen() {
				if writer := by[r.Value]; writer != nil && writer.Version == 0 {
					writer.Version = r.Version
				}
			}
		}
	}
	for _, o := range c.unknown {
		if o.Version == 0 {
			c.report.Unseen++
			for _, w := range o.Writes {
				if w.Value != Absent {
					c.maybe[w.Key] = append(c.maybe[w.Key], &unseen{by: o})
				}
			}
			continue
		}
		c.report.Resolved++
		c.commits = append(c.commits, o)
	}
}

// seen yields every read of an Op, including those of scans.
func (o *Op) seen() func(yield func(*Read) bool) {
	return func(yield func(*Read) bool) {
		for i := range o.Reads {
			if !yield(&o.Reads[i]) {
				return
			}
		}
		for i := range o.Scans {
			for j := range o.Scans[i].Seen {
				if !yield(&o.Scans[i].Seen[j]) {
					return
				}
			}
		}
	}
}

// commitAt returns the write with a version, nil if there is none.
func (c *checker) commitAt(version kv.SeqNum) *Op {
	i, ok := slices.BinarySearchFunc(c.commits, version, func(o *Op, v kv.SeqNum) int { return cmp.Compare(o.Version, v) })
	if !ok {
		return nil
	}
	return c.commits[i]
}
