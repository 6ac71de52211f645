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

// goals are those of the project. Ratios are our rates over those of the peers.
var goals = slices.Concat(
	putGoals(128, map[int]float64{1: 1.3, 16: 1.4, 64: 1.8, 256: 2.8}),
	putGoals(1024, map[int]float64{1: 1.2, 16: 1.4, 64: 2, 256: 2.5}),
	mixGoals("PUT_HEAVY", 2), mixGoals("GET_HEAVY", 3), mixGoals("DELETE_HEAVY", 2.5), mixGoals("BALANCED", 2.5),
	[]goal{
		newGoal("get p50 in PUT_HEAVY, 4 threads", []string{mixCell("PUT_HEAVY", 4)}, getP50, judge.NoPeer, 10),
		newGoal("get p99 in PUT_HEAVY, 4 threads", []string{mixCell("PUT_HEAVY", 4)}, getP99, judge.NoPeer, 200),
		newGoal("PUT_HEAVY long, user bytes / disk rate", []string{longPutHeavy}, ofDisk, judge.NoPeer, 0.5),
		newGoal("PUT_HEAVY long, written / user bytes", []string{longPutHeavy}, amplified, judge.NoPeer, 2.2),
		newGoal("load", []string{loadCell}, opsPerSecond, judge.BestOfPeers, 3),
		newGoal("get uniform", []string{getCell("uniform")}, opsPerSecond, judge.BestOfPeers, 2.5),
		newGoal("get zipfian", []string{getCell("zipfian")}, opsPerSecond, judge.BestOfPeers, 2.5),
		newGoal("get absent", []string{getCell("absent")}, opsPerSecond, judge.BestOfPeers, 6),
		newGoal("get batches of 16", []string{getCell("batches of 16")}, opsPerSecond, judge.BestOfPeers, 2),
		newGoal("get batches of 16", []string{getCell("batches of 16")}, opsPerSecond, "pebble", 5),
		newGoal("scan of everything", []string{scanCell(shapeForward)}, opsPerSecond, judge.BestOfPeers, 0),
		newGoal("scan of everything, backward", []string{scanCell(shapeBackward)}, opsPerSecond, judge.BestOfPeers, 0),
		newGoal("scans of 50", []string{scanCell(shapeShort)}, opsPerSecond, judge.BestOfPeers, 0),
		newGoal("longest stall in any mix", mixCells(), stall, judge.NoPeer, 100),
		newGoal("rate merging / quiet, GET_HEAVY", []string{mergingCell}, merging, judge.NoPeer, 0.8),
		newGoal("slowest / median second, 32 threads", []string{enduranceCell}, steadiness, judge.NoPeer, 0.5),
		newGoal("peak memory / budget in any mix", mixCells(), resident, judge.NoPeer, 1.25),
	},
)

func newGoal(row string, cells []string, m *metric, versus string, want float64) goal {
	return goal{Row: row, Cells: cells, Metric: m, Versus: versus, Want: want}
}

func putGoals(valueBytes int, want map[int]float64) (all []goal) {
	for _, n := range putWriters {
		name := putCell(valueBytes, n)
		all = append(all, newGoal(name, []string{name}, opsPerSecond, judge.BestOfPeers, want[n]))
	}
	return all
}

func mixGoals(mix string, want float64) (all []goal) {
	for _, n := range mixThreads {
		name := mixCell(mix, n)
		all = append(all, newGoal(name, []string{name}, opsPerSecond, judge.BestOfPeers, want))
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
