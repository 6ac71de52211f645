package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/workload"
)

// How many callers commit transactions.
const (
	bufferedCallers = 64
	syncCallers     = 256
)

func transactionCell(sync bool) string {
	if sync {
		return fmt.Sprintf("transactions sync, %d callers", syncCallers)
	}
	return fmt.Sprintf("transactions buffered, %d callers", bufferedCallers)
}

// callerBytes is what each caller remembers of what it wrote, at most.
const callerBytes = 1 << 20

// transactionContest has transactions that read two records and write both.
func transactionContest(o *contestOptions, sync bool) *contest {
	callers := bufferedCallers
	if sync {
		callers = syncCallers
	}
	c := o.contest(transactionCell(sync))
	c.setup = newSetup(o.memory, sync)
	c.setup.Records = &workload.Records{Count: uint64(o.keys), ValueBytes: readValueBytes, Seed: 1}
	c.setup.HeapBytes += int64(callers) * callerBytes
	c.cells = []cell{{name: c.name, trial: &trial{
		Shape: workload.Transactions{Reads: 2, Writes: 2},
		Span:  loadgen.Span{Workers: callers, Warmup: o.slot / 4, Duration: o.slot, Interval: time.Second},
	}}}
	return c
}

func newTransactionCommand() *cobra.Command {
	var o contestOptions
	c := &cobra.Command{
		Use:   "txn",
		Short: "Compare transactions that read two records and write both, buffered and synced",
		Long: `Compare transactions that read two records and write both, buffered and synced.

Pebble has no transactions: it reads the newest values and writes a batch, and loses
updates that a transaction of kvd would repeat.`,
		Example: "  compare txn --engines kvd,pebble --keys 100000 --slot 5s",
		Args:    cobra.NoArgs,
	}
	o.register(c.Flags(), []string{ours, ours4, "pebble"}, transactionRecords, 3*time.Second)
	c.RunE = func(c *cobra.Command, _ []string) error {
		return runContests(c, &o, transactionContest(&o, false), transactionContest(&o, true))
	}
	return c
}

// transactionRecords are enough that conflicts are rare.
const transactionRecords = 1_000_000
