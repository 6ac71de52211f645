package main

import (
	"slices"

	"github.com/kvd-db/kvd/bench/judge"
)

// Cells of the whole comparison that have no command of their own.
const (
	longPutHeavy  = "PUT_HEAVY, 4 threads, long"
	mergingCell   = "GET_HEAVY, 4 threads, long"
	enduranceCell = "PUT_HEAVY, 16 partitions, 32 threads"
)

// goal is what the comparison requires in one row of the final table.
type goal struct {
	judge.Goal[slot]
	ours  string   // which of our engines
	peers []string // of which the best counts; nil: all
}

// judge evaluates the goal; false if the slots have no measurement for it.
func (g *goal) judge(slots []slot) (verdict, bool) { return g.judgeOf(slots, g.ours) }

// judgeOf evaluates the goal for another of our engines.
func (g *goal) judgeOf(slots []slot, ours string) (verdict, bool) {
	return g.Judge(slots, ours, func(name string) bool {
		if g.peers == nil {
			return isPeer(name)
		}
		return slices.Contains(g.peers, name)
	})
}

// otherOurs returns our engine with 4 partitions, which may have been measured beside
// the default store.
func (g *goal) otherOurs() (string, bool) { return ours4, g.ours == ours }

// notSlower is the least ratio of rates that counts as not slower: rounds differ by more
// than the rest.
const notSlower = 0.95

// goals are those of the project. Ratios are our rates over those of the peers.
var goals = slices.Concat(
	putGoals(128, map[int]float64{1: 1.3, 16: 1.4, 64: 1.8, 256: 2.8}),
	putGoals(1024, map[int]float64{1: 1.2, 16: 1.4, 64: 2.2, 256: 2.5}),
	mixGoals("PUT_HEAVY", 2.2), mixGoals("GET_HEAVY", 3), mixGoals("DELETE_HEAVY", 2.5), mixGoals("BALANCED", 2.5),
	[]goal{
		newGoal("get p50 in PUT_HEAVY, 4 threads", mixCell("PUT_HEAVY", 4), getP50, judge.NoPeer, 10),
		newGoal("get p99 in PUT_HEAVY, 4 threads", mixCell("PUT_HEAVY", 4), getP99, judge.NoPeer, 200),
		newGoal("PUT_HEAVY long, user bytes / disk rate", longPutHeavy, ofDisk, judge.NoPeer, 0.5),
		newGoal("PUT_HEAVY long, written / user bytes", longPutHeavy, amplified, judge.NoPeer, 1.5),
		newGoal(loadCell, loadCell, opsPerSecond, judge.BestOfPeers, 3),
		newGoal(singleLoadCell, singleLoadCell, opsPerSecond, judge.BestOfPeers, 0),
		newGoal("get uniform", getCell("uniform"), opsPerSecond, judge.BestOfPeers, 2.5),
		newGoal("get zipfian", getCell("zipfian"), opsPerSecond, judge.BestOfPeers, 2),
		newGoal("get absent", getCell("absent"), opsPerSecond, judge.BestOfPeers, 4),
		newGoal("get batches of 16", getCell("batches of 16"), opsPerSecond, judge.BestOfPeers, 2),
		newGoal("get batches of 16", getCell("batches of 16"), opsPerSecond, judge.BestOfPeers, 5).beside(pebbles...),
		newGoal("transactions buffered", transactionCell(false), opsPerSecond, judge.BestOfPeers, 1.2).beside(pebbles...),
		newGoal("transactions sync", transactionCell(true), opsPerSecond, judge.BestOfPeers, 1.5).beside(pebbles...),
		newGoal("scans of 50, 2 threads", scanCell(shapePair, false), opsPerSecond, judge.BestOfPeers, 0.8).beside(pebbles...),
		newGoal("scans of 50, 2 threads, 16 partitions", scanCell(shapePair, false), opsPerSecond, judge.BestOfPeers, 0.5).of(ours16).beside(pebbles...),
		newGoal("scan of everything", scanCell(shapeForward, false), opsPerSecond, judge.BestOfPeers, 1.2).beside(pebbles...),
		newGoal("scan of everything, not settled", scanCell(shapeForward, true), opsPerSecond, judge.BestOfPeers, 1.2).beside(pebbles...),
		newGoal("scans of 50, 2 threads", scanCell(shapePair, false), opsPerSecond, judge.BestOfPeers, 0),
		newGoal("scans of 50", scanCell(shapeShort, false), opsPerSecond, judge.BestOfPeers, 0),
		newGoal("scan of everything", scanCell(shapeForward, false), opsPerSecond, judge.BestOfPeers, 0),
		newGoal("scan of everything, backward", scanCell(shapeBackward, false), opsPerSecond, judge.BestOfPeers, 0),
		newGoal(scanMixCell, scanMixCell, opsPerSecond, judge.BestOfPeers, 1).beside(pebbles...),
		newGoal(scanMixCell+", 16 partitions", scanMixCell, opsPerSecond, judge.BestOfPeers, 0.8).of(ours16).beside(pebbles...),
		newGoal(coldCell(coldUniform), coldCell(coldUniform), opsPerSecond, judge.BestOfPeers, 2).beside(pebbles...),
		newGoal(coldCell(coldZipf), coldCell(coldZipf), opsPerSecond, judge.BestOfPeers, 1.3).beside(pebbles...),
		newGoal("cold get, disk bytes / page of a block", coldCell(coldUniform), ofPages, judge.NoPeer, 1.1),
		newGoal("longest stall in any mix", "", stall, judge.NoPeer, 100).in(mixCells()...),
		newGoal("rate merging / quiet, GET_HEAVY", mergingCell, merging, judge.NoPeer, 0.8),
		newGoal("slowest / median second, 32 threads", enduranceCell, steadiness, judge.NoPeer, 0.5).of(ours16),
		newGoal("peak memory / budget in any mix", "", resident, judge.NoPeer, 1.25).in(mixCells()...),
	},
	crossGoals("PUT_HEAVY"), crossGoals("GET_HEAVY"),
)

func newGoal(row, cell string, m *metric, versus string, want float64) goal {
	return goal{Goal: judge.Goal[slot]{Row: row, Cells: []string{cell}, Metric: m, Versus: versus, Want: want}, ours: ours}
}

// of, in and beside return the goal for another of our engines, for several cells, and
// with some peers alone.
func (g goal) of(ours string) goal         { g.ours = ours; return g }
func (g goal) in(cells ...string) goal     { g.Cells = cells; return g }
func (g goal) beside(peers ...string) goal { g.peers = peers; return g }

func putGoals(valueBytes int, want map[int]float64) (all []goal) {
	for _, n := range putWriters {
		name := putCell(valueBytes, n)
		all = append(all, newGoal(name, name, opsPerSecond, judge.BestOfPeers, want[n]))
	}
	return all
}

func mixGoals(mix string, want float64) (all []goal) {
	for _, n := range mixThreads {
		name := mixCell(mix, n)
		all = append(all, newGoal(name, name, opsPerSecond, judge.BestOfPeers, want))
	}
	return all
}

// crossGoals wants the default store to be no slower than one with another number of
// partitions, and no store to be slower with twice the threads.
func crossGoals(mix string) (all []goal) {
	var cells []string
	for _, n := range crossThreads {
		cells = append(cells, crossCell(mix, n))
	}
	all = append(all, newGoal(mix+" beside 1, 4, 16 partitions, worst of 1 to 32 threads", "", opsPerSecond, judge.BestOfPeers, notSlower).
		in(cells...).beside(crossEngines[1:]...))
	for _, engine := range crossEngines {
		all = append(all, newGoal(mix+", twice the threads, worst, "+engine, "", opsPerSecond, judge.BestOfPeers, notSlower).
			in(twiceCells(mix, engine)...).of(moreThreads).beside(fewerThreads))
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
