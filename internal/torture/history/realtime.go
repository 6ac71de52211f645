package history

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/kvd-db/kvd/internal/kv"
)

// event is a call or a return.
type event struct {
	at     int64
	op     *Op
	isCall bool
}

// mark is a version, and the Op that made it known.
type mark struct {
	version kv.SeqNum
	by      *Op
}

func (m *mark) raise(version kv.SeqNum, by *Op) {
	if version > m.version {
		*m = mark{version, by}
	}
}

// timeline is what is known at one point of the run.
type timeline struct {
	c    *checker
	all  mark         // the newest version that was acknowledged, or at which a read was answered
	keys []mark       // for each key, the newest write that was acknowledged or seen
	seen map[*Op]bool // writes of several keys of which a client has seen one
}

// followTime walks through all calls and returns in order of time (R4, R5).
func (c *checker) followTime() {
	events := make([]event, 0, 2*(len(c.commits)+len(c.views)))
	for _, ops := range [][]*Op{c.commits, c.views} {
		for _, o := range ops {
			events = append(events, event{o.Call, o, true})
			if o.Outcome == Done {
				events = append(events, event{o.Return, o, false})
			}
		}
	}
	slices.SortFunc(events, func(a, b event) int {
		if c := cmp.Compare(a.at, b.at); c != 0 {
			return c
		}
		// At equal times calls come first: no Op precedes another.
		return cmp.Compare(btoi(b.isCall), btoi(a.isCall))
	})
	t := &timeline{c: c, keys: make([]mark, len(c.cells)), seen: make(map[*Op]bool)}
	for _, e := range events {
		if e.isCall {
			t.called(e.op)
		} else {
			t.returned(e.op)
		}
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// called compares an Op with what was known when it was called.
func (t *timeline) called(o *Op) {
	switch o.Kind {
	case Commit:
		if o.Version <= t.all.version {
			t.late("R4", o, t.all, "a write has no later version than what was known before it was called")
		}
		return
	case Snapshot:
		if o.ReadVersion < t.all.version {
			t.late("R4", o, t.all, "a snapshot is older than what was known before it was called")
		}
	}
	for r := range o.seen() {
		if known := t.keys[r.Key]; r.Version < known.version {
			t.late("R5", o, known, fmt.Sprintf("a read of key %d is older than what was known of it before it was called", r.Key))
		}
	}
}

func (t *timeline) late(rule string, o *Op, known mark, what string) {
	t.c.violated(rule, func() string { return fmt.Sprintf("%s, %d:\n  %s\n  after %s", what, known.version, o, known.by) })
}

// returned records what is known once the Op has returned.
func (t *timeline) returned(o *Op) {
	if o.Kind == Commit {
		t.all.raise(o.Version, o)
		t.know(o, o)
		return
	}
	t.all.raise(o.ReadVersion, o)
	for r := range o.seen() {
		t.keys[r.Key].raise(r.Version, o)
		if w := t.c.commitAt(r.Version); w != nil && (len(w.Writes) > 1 || w.Writes[0].End != 0) && !t.seen[w] {
			t.seen[w] = true
			t.know(w, o)
		}
	}
}

// know raises the marks of all keys that an Op wrote.
func (t *timeline) know(o, by *Op) {
	for _, w := range o.Writes {
		for k := w.Key; k < w.end(); k++ {
			t.keys[k].raise(o.Version, by)
		}
	}
}
