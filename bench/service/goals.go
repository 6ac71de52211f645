package main

import (
	"fmt"
	"slices"

	"github.com/kvd-db/kvd/bench/judge"
)

// goal is what the comparison requires in one row of the final table.
type goal struct {
	judge.Goal[slot]
	ours  string   // which of our contestants
	peers []string // the best of them counts; if none, the figure itself
}

func newGoal(row, cell string, m *metric, want float64, ours string, peers ...string) goal {
	versus := judge.NoPeer
	if len(peers) > 0 {
		versus = judge.BestOfPeers
	}
	return goal{judge.Goal[slot]{Row: row, Cells: []string{cell}, Metric: m, Versus: versus, Want: want}, ours, peers}
}

// judge evaluates the goal; false if the slots have no measurement for it.
func (g *goal) judge(slots []slot) (judge.Verdict[slot], bool) { return g.judgeOf(slots, g.ours) }

// judgeOf evaluates the goal for another of our contestants.
func (g *goal) judgeOf(slots []slot, ours string) (judge.Verdict[slot], bool) {
	return g.Judge(slots, ours, func(name string) bool { return slices.Contains(g.peers, name) })
}

// goals are those of the project. Ratios are our figures over those of the peers.
var goals = slices.Concat(
	getGoals(64, 1.5, 1), getGoals(256, 2.2, 1.8), getGoals(1024, 2.2, 1.8),
	mixGoals(64, 1.4, 1), mixGoals(256, 2, 0.8),
	setGoals(64, 1.2), setGoals(256, 1.7), setGoals(1024, 2),
	[]goal{
		newGoal(bufferedCell, bufferedCell, rate, 1.8, ours4, rueidis),
		newGoal(bufferedCell+", tuned", bufferedCell, rate, 0, ours4, rueidis100, rueidis20),
		newGoal("etcd set, 256 callers", etcdCell, rate, 10, ours4, etcd),
		newGoal("memcached get, 256 callers", memcachedCell, rate, 3, ours4, gomemcache),
		newGoal("get, batches of 16, keys", loneGetCell, rate, 3, ours4x16, ours4),
		newGoal("get, batches of 64, keys", loneGetCell, rate, 5, ours4x64, ours4),
		newGoal("lone get, p50", loneGetCell, callP50, 1.1, ours4, echo),
		newGoal("lone set sync, p50", lonePutCell, callP50, 1.2, ours4, echoAppend),
		newGoal("overload, goodput / peak", overloadCell, goodput, 0.8, ours4),
		newGoal("overload, p99 of accepted / calm", overloadCell, slowdown, 10, ours4),
		newGoal("overload, p99 of refusals", overloadCell, refusedBy, 5, ours4),
		newGoal("overload, peak memory / budget", overloadCell, ofBudget, 1.25, ours4),
		newGoal("overload, back to normal", overloadCell, recovery, 2, ours4),
		newGoal("idle connections held", idleCell, held, idleConnections, ours4Idle),
		newGoal("rate beside idle connections", idleCell, rate, 0, ours4Idle, ours4),
		newGoal("get p99 beside idle connections", idleCell, getP99, 0, ours4Idle, ours4),
		newGoal("server memory with idle connections", idleCell, serverBytes, 0, ours4Idle, ours4),
	},
)

func getGoals(callers int, want, gRPC float64) []goal {
	cell := getCell(callers)
	return []goal{
		newGoal(cell, cell, rate, want, ours4, rueidis),
		newGoal(cell+", p99", cell, getP99, 0.5, ours4, rueidis),
		newGoal(cell+", tuned", cell, rate, 1.2, ours4, rueidis100, rueidis20),
		newGoal(cell+", gRPC only", cell, rate, gRPC, ours4gRPC, rueidis),
	}
}

func mixGoals(callers int, want, setTail float64) []goal {
	cell := mixCell(callers)
	return []goal{
		newGoal(cell, cell, rate, want, ours4, rueidis),
		newGoal(cell+", get p99", cell, getP99, 0.5, ours4, rueidis),
		newGoal(cell+", set p99", cell, setP99, setTail, ours4, rueidis),
		newGoal(cell+", tuned", cell, rate, 0, ours4, rueidis100, rueidis20),
	}
}

func setGoals(callers int, want float64) []goal {
	cell := setCell(callers)
	return []goal{
		newGoal(cell, cell, rate, want, ours4, rueidis),
		newGoal(cell+", tuned", cell, rate, 0, ours4, rueidis100, rueidis20),
	}
}

// otherOurs returns our contestant with the default number of partitions, if it was
// measured beside kvd-4.
func (g *goal) otherOurs() (string, bool) { return ours, g.ours == ours4 && len(g.peers) > 0 }

func (g *goal) String() string { return fmt.Sprintf("%s of %s", g.Row, g.ours) }
