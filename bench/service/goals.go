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
	mixGoals(64, 1.4, 1, 1.4), mixGoals(256, 2, 0.8, 1.6), mixGoals(1024, 0, 0, 1.4),
	setGoals(64, 1.2, 1.4), setGoals(256, 1.7, 1.6), setGoals(1024, 2, 1.4),
	bufferedGoals(64, 0), bufferedGoals(256, 1.8), bufferedGoals(1024, 0),
	updateGoals(64, 0, 0), updateGoals(256, 40, 8000),
	conditionalGoals(16), conditionalGoals(256),
	memoryGoals(512),
	[]goal{
		newGoal("etcd set, 256 callers", etcdCell, rate, 10, ours, etcd),
		newGoal(clusterSet, clusterSet, rate, 8, oursCluster, etcdCluster),
		newGoal(clusterSet+", beside one node", clusterSet, rate, 0, oursCluster, ours),
		newGoal(clusterGet, clusterGet, rate, 8, oursCluster, etcdCluster),
		newGoal(clusterGet+", beside one node", clusterGet, rate, 0, oursCluster, ours),
		newGoal(clusterLone+", p50", clusterLone, callP50, 1.3, oursCluster, etcdCluster),
		newGoal(clusterLone+", p50, beside one node", clusterLone, callP50, 0, oursCluster, ours),
		newGoal("memcached get, 256 callers", memcachedCell, rate, 3, ours, gomemcache),
		newGoal("get, batches of 16, keys", loneGetCell, rate, 3, oursx16, ours),
		newGoal("get, batches of 64, keys", loneGetCell, rate, 5, oursx64, ours),
		newGoal("lone get, p50", loneGetCell, callP50, 1, ours, rueidis),
		newGoal("lone get, p50", loneGetCell, callP50, 1.1, ours, echo),
		newGoal("lone set sync, p50", lonePutCell, callP50, 1, ours, rueidis),
		newGoal("lone set sync, p50", lonePutCell, callP50, 1.2, ours, echoAppend),
		newGoal("overload, goodput / peak", overloadCell, goodput, 0.8, ours),
		newGoal("overload, p99 of accepted / calm", overloadCell, slowdown, 10, ours),
		newGoal("overload, p99 of refusals", overloadCell, refusedBy, 5, ours),
		newGoal("overload, peak memory / budget", overloadCell, ofBudget, 1.25, ours),
		newGoal("overload, back to normal", overloadCell, recovery, 2, ours),
		newGoal("idle connections held", idleCell, held, idleConnections, oursIdle),
		newGoal("rate beside idle connections", idleCell, rate, 0, oursIdle, ours),
		newGoal("get p99 beside idle connections", idleCell, getP99, 0, oursIdle, ours),
		newGoal("server memory with idle connections", idleCell, serverBytes, 0, oursIdle, ours),
	},
)

func getGoals(callers int, want, gRPC float64) []goal {
	cell := getCell(callers)
	return []goal{
		newGoal(cell, cell, rate, want, ours, rueidis),
		newGoal(cell+", p99", cell, getP99, 0.5, ours, rueidis),
		newTunedGoal(cell, "", rate, 1.5),
		newGoal(cell+", gRPC only", cell, rate, gRPC, oursgRPC, rueidis),
	}
}

// mixGoals has those beside rueidis as it is, and beside the tuned one.
func mixGoals(callers int, want, setTail, tuned float64) []goal {
	cell := mixCell(callers)
	return []goal{
		newGoal(cell, cell, rate, want, ours, rueidis),
		newGoal(cell+", get p99", cell, getP99, 0.5, ours, rueidis),
		newGoal(cell+", set p99", cell, setP99, setTail, ours, rueidis),
		newTunedGoal(cell, "", rate, tuned),
		newTunedGoal(cell, ", get p99", getP99, 0.5),
		newTunedGoal(cell, ", set p99", setP99, 1),
	}
}

func setGoals(callers int, want, tuned float64) []goal {
	cell := setCell(callers)
	return []goal{
		newGoal(cell, cell, rate, want, ours, rueidis),
		newTunedGoal(cell, "", rate, tuned),
	}
}

func bufferedGoals(callers int, want float64) []goal {
	cell := bufferedCell(callers)
	return []goal{
		newGoal(cell, cell, rate, want, ours, rueidis),
		newTunedGoal(cell, "", rate, 1.2),
	}
}

// newTunedGoal compares with the better of the two tuned configurations of rueidis.
func newTunedGoal(cell, what string, m *metric, want float64) goal {
	return newGoal(cell+what+", tuned", cell, m, want, ours, rueidis100, rueidis20)
}

// updateGoals wants a rate in thousands and, unless 0, a median in microseconds, of transactions that
// read and write one key, of those that only read it, and of reads of a snapshot.
func updateGoals(callers int, perSecond, micros float64) (all []goal) {
	for _, of := range []struct {
		who, cell string
		p50       *metric
	}{{oursUpdate, updateCell(callers), setP50}, {oursView, viewCell(callers), getP50}, {oursSnapshot, viewCell(callers), getP50}} {
		row := fmt.Sprintf("%s, %d callers", of.who, callers)
		all = append(all, newGoal(row, of.cell, rate, perSecond, of.who))
		if micros > 0 {
			all = append(all, newGoal(row+", p50", of.cell, of.p50, micros, of.who))
		}
		all = append(all, newGoal(row+", beside plain calls", of.cell, rate, 0, of.who, ours))
	}
	return all
}

func conditionalGoals(callers int) (all []goal) {
	for _, who := range []string{oursIfVersion, oursIfValue} {
		all = append(all, newGoal(fmt.Sprintf("%s sync, %d callers, beside plain sets", who, callers), conditionalCell(callers), rate, 0.8, who, ours))
	}
	return all
}

// memoryGoals wants a memory of the server, in MiB, once it has been filled and written
// for a while, and at the end of any cell with the same load as Redis.
func memoryGoals(want float64) []goal {
	const row = "server memory"
	worst := newGoal(row+", worst of get, mix, set, buffered", memoryCell, serverBytes, want, ours)
	for _, n := range getCallers {
		worst.Cells = append(worst.Cells, getCell(n))
	}
	for _, n := range mixCallers {
		worst.Cells = append(worst.Cells, mixCell(n))
	}
	for _, n := range setCallers {
		worst.Cells = append(worst.Cells, setCell(n))
	}
	for _, n := range bufferedCallers {
		worst.Cells = append(worst.Cells, bufferedCell(n))
	}
	return []goal{
		newGoal(row+", just filled", memoryCell, serverBytes, want, ours),
		newGoal(row+", just filled", memoryCell, serverBytes, 0, ours, rueidis),
		worst,
	}
}

// otherOurs returns our contestant with 4 partitions, which may have been measured beside
// the default store.
func (g *goal) otherOurs() (string, bool) { return ours4, g.ours == ours }

func (g *goal) String() string { return fmt.Sprintf("%s of %s", g.Row, g.ours) }
