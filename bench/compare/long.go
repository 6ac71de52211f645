package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/workload"
)

// longRun is a run whose effects need time to appear.
type longRun struct {
	name    string
	contest func(*plan) *contest
}

var longRuns = []longRun{
	{"put-heavy", (*plan).longPutHeavy},
	{"merging", (*plan).mergingGetHeavy},
	{"endurance", (*plan).enduring},
}

func longRunNames() (names []string) {
	for _, r := range longRuns {
		names = append(names, r.name)
	}
	return names
}

func newLongCommand() *cobra.Command {
	p := longPlan
	var o contestOptions
	var only []string
	var seconds int
	c := &cobra.Command{
		Use:   "long",
		Short: "Run what shows itself only with time, each by itself",
		Long: `Run what shows itself only with time, each by itself, on an empty store:

  put-heavy  PUT_HEAVY, 4 threads, 5 minutes: user bytes a second beside what the
             disk takes, and what is written for them
  merging    GET_HEAVY, 4 threads, 5 minutes: the rate while compactions go on
             beside that while none does
  endurance  PUT_HEAVY, 32 threads on 16 partitions, 10 minutes, the heap limited
             to 1.125 GiB: the slowest second beside the median one`,
		Example: "  compare long --only merging --seconds 120",
		Args:    cobra.NoArgs,
	}
	f := c.Flags()
	f.StringSliceVar(&only, "only", longRunNames(), "which ones")
	f.IntVar(&seconds, "seconds", 0, "how long each runs; 0: as above")
	f.StringSliceVar(&o.engines, "engines", p.long.engines, "engines to compare in put-heavy; the other runs are of kvd alone")
	f.IntVar(&o.keys, "keys", p.long.keys, "keys that are chosen of")
	f.Int64Var(&o.memory, "memory", p.long.memory, "MiB of memtables and caches of each engine; endurance has 1,024")
	o.registerPlace(f)
	c.RunE = func(c *cobra.Command, _ []string) error {
		o.rounds, o.fresh, o.slot = p.long.rounds, p.long.fresh, p.long.slot
		if seconds < 0 {
			return fmt.Errorf("runs of %d seconds, want at least 1", seconds)
		}
		if seconds > 0 {
			o.slot = time.Duration(seconds) * time.Second
			p.quiet, p.endurance = o.slot, o.slot
		}
		p.long = o
		var contests []*contest
		for _, name := range only {
			i := slices.Index(longRunNames(), name)
			if i < 0 {
				return fmt.Errorf("no run is named %q; choose of %q", name, longRunNames())
			}
			contests = append(contests, longRuns[i].contest(&p))
		}
		return runContests(c, &o, contests...)
	}
	return c
}

// enduranceThreads is the number of threads with which the store of the articles
// stopped after 20 seconds.
const enduranceThreads = 32

// longPutHeavy measures the cost of background work once there is much of it.
func (p *plan) longPutHeavy() *contest {
	c := mixContest(&p.long, workload.Mixes[0], mixValueBytes, mixThreads[0])
	c.name, c.cells[0].name, c.disk = longPutHeavy, longPutHeavy, true
	return c
}

// mergingGetHeavy measures the cost of compactions while they run.
func (p *plan) mergingGetHeavy() *contest {
	o := p.long
	o.engines, o.slot = []string{ours}, p.quiet
	c := mixContest(&o, workload.Mixes[1], mixValueBytes, mixThreads[0])
	c.name, c.cells[0].name, c.pulse = mergingCell, mergingCell, true
	return c
}

// enduring puts a high load on many partitions with little memory. The soft limit of
// the heap is that of every run, less than the 1.5 GiB of the articles.
func (p *plan) enduring() *contest {
	o := p.long
	o.engines, o.slot, o.memory = []string{ours16}, p.endurance, 1024
	c := mixContest(&o, workload.Mixes[0], mixValueBytes, enduranceThreads)
	c.name, c.cells[0].name = enduranceCell, enduranceCell
	return c
}
