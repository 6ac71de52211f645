package judge

import (
	"fmt"
	"math"
	"slices"
)

// Goal is what a comparison requires of our contestant in one row of the final table.
type Goal[S Slot] struct {
	Row    string
	Cells  []string // of several, the worst counts
	Metric *Metric[S]
	Versus string  // BestOfPeers, a peer, or NoPeer: the figure itself counts
	Want   float64 // at least, or at most if less is better; 0: only shown
}

// BestOfPeers is the peer with the best median in the same cell.
const (
	BestOfPeers = "best"
	NoPeer      = ""
)

// Verdict is one row of the final table.
type Verdict[S Slot] struct {
	*Goal[S]
	Contestant string // of ours, whose figure it is
	Cell       string // of the goal's cells, the one that counts
	Peer       string // empty if the figure itself counts
	Figure     Spread
	Reached    bool
}

// Judge evaluates a goal for one of our contestants; false if the slots have no
// measurement for it.
func (g *Goal[S]) Judge(slots []S, contestant string, isPeer func(string) bool) (v Verdict[S], ok bool) {
	for _, cell := range g.Cells {
		if next, any := g.judgeCell(slots, cell, contestant, isPeer); any && (!ok || g.worse(next.Figure.Median, v.Figure.Median)) {
			v, ok = next, true
		}
	}
	return v, ok
}

func (g *Goal[S]) judgeCell(slots []S, cell, contestant string, isPeer func(string) bool) (v Verdict[S], ok bool) {
	v = Verdict[S]{Goal: g, Contestant: contestant, Cell: cell}
	values := Numbers(Series(slots, cell, contestant, g.Metric))
	if len(values) == 0 {
		return v, false
	}
	switch {
	case g.Versus == NoPeer:
		v.Figure = NewSpread(values)
		if g.Metric.Worst {
			v.Figure.Median = v.Figure.Most
		}
	default:
		v.Peer = g.Versus
		if g.Versus == BestOfPeers {
			v.Peer = Best(slots, cell, g.Metric, isPeer)
		}
		if !slices.Contains(Contestants(slots, cell), v.Peer) {
			return v, false
		}
		v.Figure = Ratios(slots, cell, contestant, v.Peer, g.Metric)
		if math.IsNaN(v.Figure.Median) {
			return v, false
		}
	}
	v.Reached = !g.worse(v.Figure.Median, g.limit())
	return v, true
}

// limit is Want in the unit of the metric, or a ratio.
func (g *Goal[S]) limit() float64 {
	if g.Versus == NoPeer {
		return g.Want * g.Metric.Scale
	}
	return g.Want
}

// worse compares two figures of the goal, ratios of ours over theirs included.
func (g *Goal[S]) worse(a, b float64) bool {
	if g.Metric.Less {
		return a > b
	}
	return a < b
}

// Answer returns whether the goal is reached, as it is printed.
func (v *Verdict[S]) Answer() string {
	switch {
	case v.Want == 0:
		return "-"
	case v.Reached:
		return "yes"
	}
	return "NO"
}

// Spelled returns the figure and the goal as they are printed.
func (v *Verdict[S]) Spelled() (figure, want string) {
	unit, scale, sign := "x", 1.0, ">="
	if v.Versus == NoPeer {
		unit, scale = " "+v.Metric.Unit, v.Metric.Scale
		if v.Metric.Unit == "" {
			unit = ""
		}
	}
	if v.Metric.Less {
		sign = "<="
	}
	figure = fmt.Sprintf("%.2f%s (%.2f-%.2f)", v.Figure.Median/scale, unit, v.Figure.Least/scale, v.Figure.Most/scale)
	if v.Want == 0 {
		return figure, "-"
	}
	return figure, fmt.Sprintf("%s %g%s", sign, v.Want, unit)
}
