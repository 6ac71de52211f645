package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/workload"
)

// The cross of threads and partitions.
var (
	crossThreads = []int{1, 2, 4, 8, 16, 32}
	crossEngines = []string{ours, "kvd-1", ours4, ours16}
	crossMixes   = []workload.Mix{workload.Mixes[0], workload.Mixes[1]} // PUT_HEAVY, GET_HEAVY
)

func crossCell(mix string, threads int) string {
	return fmt.Sprintf("%s by partitions, %d threads", mix, threads)
}

// crossContest runs a mix with several numbers of threads, in each round, on a new store
// for each slot.
func crossContest(o *contestOptions, mix workload.Mix) *contest {
	c := mixContest(o, mix, mixValueBytes, crossThreads[0])
	c.name, c.fresh, c.byRound = mix.Name+" by threads and partitions", true, true
	run := c.cells[0].run
	c.cells = nil
	for _, n := range crossThreads {
		threads := *run
		threads.Workers = n
		c.cells = append(c.cells, cell{name: crossCell(mix.Name, n), run: &threads})
	}
	return c
}

// Twice the threads must not be slower than half of them. The cells and contestants of
// that comparison are derived from the measured ones.
const (
	moreThreads  = "twice the threads"
	fewerThreads = "the threads"
)

func twiceCell(mix, engine string, threads int) string {
	return fmt.Sprintf("%s, %s, %d threads and twice", mix, engine, threads)
}

// twiceCells returns the cells that compare an engine with itself.
func twiceCells(mix, engine string) (names []string) {
	for _, n := range crossThreads[:len(crossThreads)-1] {
		names = append(names, twiceCell(mix, engine, n))
	}
	return names
}

// derive adds the slots of the comparisons of an engine with itself.
func derive(slots []slot) []slot {
	derived := slices.Clone(slots)
	for _, s := range slots {
		for _, mix := range crossMixes {
			for i, n := range crossThreads {
				if s.Cell != crossCell(mix.Name, n) {
					continue
				}
				as := s
				if i > 0 {
					as.Cell, as.Engine = twiceCell(mix.Name, s.Engine, crossThreads[i-1]), moreThreads
					derived = append(derived, as)
				}
				if i < len(crossThreads)-1 {
					as.Cell, as.Engine = twiceCell(mix.Name, s.Engine, n), fewerThreads
					derived = append(derived, as)
				}
			}
		}
	}
	return derived
}

func newThreadsCommand() *cobra.Command {
	var o contestOptions
	c := &cobra.Command{
		Use:   "threads",
		Short: "Compare kvd with itself, by the number of threads and of partitions",
		Args:  cobra.NoArgs,
	}
	o.register(c.Flags(), crossEngines, mixKeys, 5*time.Second)
	c.RunE = func(c *cobra.Command, _ []string) error {
		var contests []*contest
		for _, mix := range crossMixes {
			contests = append(contests, crossContest(&o, mix))
		}
		return runContests(c, &o, contests...)
	}
	return c
}
