package main

import (
	"fmt"
	"slices"
)

// goal is what the comparison wants of our engine in one row of the final table.
type goal struct {
	row    string
	cells  []string // of several, the worst counts
	metric *metric
	versus string  // bestOfPeers, a peer, or nobody: the figure itself counts
	want   float64 // at least, or at most if less is better; 0: only shown
}

// bestOfPeers is whichever peer had the best median in the same cell.
const (
	bestOfPeers = "best"
	nobody      = ""
)

// Cells of the whole comparison that are not of a command of their own.
const (
	longPutHeavy  = "PUT_HEAVY, 4 threads, long"
	mergingCell   = "GET_HEAVY, 4 threads, long"
	enduranceCell = "PUT_HEAVY, 16 partitions, 32 threads"
)

// goals are those of the project. Ratios are rates of ours over theirs.
var goals = slices.Concat(
	putGoals(128, map[int]float64{1: 1.3, 16: 1.4, 64: 1.8, 256: 2.8}),
	putGoals(1024, map[int]float64{1: 1.2, 16: 1.4, 64: 2, 256: 2.5}),
	mixGoals("PUT_HEAVY", 2), mixGoals("GET_HEAVY", 3), mixGoals("DELETE_HEAVY", 2.5), mixGoals("BALANCED", 2.5),
	[]goal{
		{"get p50 in PUT_HEAVY, 4 threads", []string{mixCell("PUT_HEAVY", 4)}, getP50, nobody, 10},
		{"get p99 in PUT_HEAVY, 4 threads", []string{mixCell("PUT_HEAVY", 4)}, getP99, nobody, 200},
		{"PUT_HEAVY long, user bytes / disk rate", []string{longPutHeavy}, ofDisk, nobody, 0.5},
		{"PUT_HEAVY long, written / user bytes", []string{longPutHeavy}, amplified, nobody, 2.2},
		{"load", []string{loadCell}, opsPerSecond, bestOfPeers, 3},
		{"get uniform", []string{getCell("uniform")}, opsPerSecond, bestOfPeers, 2.5},
		{"get zipfian", []string{getCell("zipfian")}, opsPerSecond, bestOfPeers, 2.5},
		{"get absent", []string{getCell("absent")}, opsPerSecond, bestOfPeers, 6},
		{"get batches of 16", []string{getCell("batches of 16")}, opsPerSecond, bestOfPeers, 2},
		{"get batches of 16", []string{getCell("batches of 16")}, opsPerSecond, "pebble", 5},
		{"scan of everything", []string{scanCell(shapeForward)}, opsPerSecond, bestOfPeers, 0},
		{"scan of everything, backward", []string{scanCell(shapeBackward)}, opsPerSecond, bestOfPeers, 0},
		{"scans of 50", []string{scanCell(shapeShort)}, opsPerSecond, bestOfPeers, 0},
		{"longest stall in any mix", mixCells(), stall, nobody, 100},
		{"rate merging / quiet, GET_HEAVY", []string{mergingCell}, merging, nobody, 0.8},
		{"slowest / median second, 32 threads", []string{enduranceCell}, steadiness, nobody, 0.5},
		{"peak memory / budget in any mix", mixCells(), resident, nobody, 1.25},
	},
)

func putGoals(valueBytes int, want map[int]float64) (all []goal) {
	for _, n := range putWriters {
		name := putCell(valueBytes, n)
		all = append(all, goal{name, []string{name}, opsPerSecond, bestOfPeers, want[n]})
	}
	return all
}

func mixGoals(mix string, want float64) (all []goal) {
	for _, n := range mixThreads {
		name := mixCell(mix, n)
		all = append(all, goal{name, []string{name}, opsPerSecond, bestOfPeers, want})
	}
	return all
}

func mixCells() []string {
	names := []string{longPutHeavy, mergingCell, enduranceCell}
	for _, mix := range mixNames() {
		for _, n := range mixThreads {
			names = append(names, mixCell(mix, n))
		}
	}
	return names
}

// verdict is one row of the final table.
type verdict struct {
	*goal
	engine  string // of ours, whose figure it is
	peer    string // empty if the figure itself counts
	figure  spread
	reached bool
}

// judge returns what the slots say of a goal for one of our engines; false if they
// say nothing.
func (g *goal) judge(slots []slot, engine string) (v verdict, ok bool) {
	for _, cell := range g.cells {
		if next, any := g.judgeCell(slots, cell, engine); any && (!ok || g.worse(next.figure.median, v.figure.median)) {
			v, ok = next, true
		}
	}
	return v, ok
}

func (g *goal) judgeCell(slots []slot, cell, engine string) (v verdict, ok bool) {
	v = verdict{goal: g, engine: engine}
	values := numbers(series(slots, cell, engine, g.metric))
	if len(values) == 0 {
		return v, false
	}
	switch {
	case g.versus == nobody:
		v.figure = newSpread(values)
		if g.metric.worst {
			v.figure.median = v.figure.most
		}
	default:
		v.peer = g.versus
		if g.versus == bestOfPeers {
			v.peer = bestPeer(slots, cell, g.metric)
		}
		if !slices.Contains(enginesIn(slots, cell), v.peer) {
			return v, false
		}
		v.figure = ratios(slots, cell, engine, v.peer, g.metric)
	}
	v.reached = !g.worse(v.figure.median, g.limit())
	return v, true
}

// limit is want in the unit of the metric, or a ratio.
func (g *goal) limit() float64 {
	if g.versus == nobody {
		return g.want * g.metric.scale
	}
	return g.want
}

// worse compares two figures of the goal.
func (g *goal) worse(a, b float64) bool {
	if g.versus == nobody && g.metric.less {
		return a > b
	}
	return a < b
}

// spelled returns the figure and the goal as they are printed.
func (v *verdict) spelled() (figure, want string) {
	unit, scale, sign := "x", 1.0, ">="
	if v.versus == nobody {
		unit, scale = " "+v.metric.unit, v.metric.scale
		if v.metric.less {
			sign = "<="
		}
	}
	if v.metric.unit == "" {
		unit = ""
	}
	figure = fmt.Sprintf("%.2f%s (%.2f-%.2f)", v.figure.median/scale, unit, v.figure.least/scale, v.figure.most/scale)
	if v.want == 0 {
		return figure, "-"
	}
	return figure, fmt.Sprintf("%s %g%s", sign, v.want, unit)
}
