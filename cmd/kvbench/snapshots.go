package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/report"
	"github.com/kvd-db/kvd/internal/workload"
)

// snapshotOptions is the command line of snapshots.
type snapshotOptions struct {
	trialOptions
	rounds int

	compared []comparison
}

func newSnapshotsCommand(open opener) *cobra.Command {
	var o snapshotOptions
	c := &cobra.Command{
		Use:   "snapshots",
		Short: "Measure how much one snapshot per second slows writers",
		Long: `Measure how much one snapshot per second slows writers.

Workers put uniformly drawn records, alternately without snapshots and while each
second a snapshot is taken and the previous one released. The result is the median
ratio of the rounds. Each snapshot is read when it is taken and again before it is
released, and must not have changed. The figures are printed, and written to the file of
--out; there is no page.`,
		Example: `  kvbench snapshots --threads 16 --rounds 5 --duration 20s --durability sync
  kvbench snapshots --addr localhost:7070 --records 1000000 --out snapshots.jsonl`,
		Args: cobra.NoArgs,
	}
	c.Flags().IntVar(&o.rounds, "rounds", 5, "how often both are measured")
	o.objectiveOptions.register(c, "put")
	o.trialOptions.register(c, "records", 100_000, []int{16}, 10*time.Second)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := o.resolve(c); err != nil {
			return err
		}
		return failed(judgedTrials(c, &o.trialOptions, open, o.run, o.print))
	}
	return c
}

func (o *snapshotOptions) resolve(c *cobra.Command) error {
	if err := o.trialOptions.resolve(c, workload.SnapshotOperations()); err != nil {
		return err
	}
	if o.span.Duration <= time.Second {
		return fmt.Errorf("--duration %v: want more than 1s, for a snapshot a second", o.span.Duration)
	}
	return checkRepeats("rounds", o.rounds)
}

func (o *snapshotOptions) run(t *trials) error {
	for _, threads := range o.threads {
		label := trialLabel{Benchmark: "snapshots", Workload: "snapshots", Threads: threads}
		under, err := t.RunSnapshots(t.command.Context(), o.rounds, o.with(threads), t.observer(label))
		if under == nil {
			return err
		}
		if err := errors.Join(err, t.endedAll(label, under.Trials)); err != nil {
			return err
		}
		what := report.Plural(threads, "writer") + " beside a snapshot a second"
		o.compared = append(o.compared, comparison{what, &under.Puts, nil})
		if err := t.compared(label, under); err != nil || t.over() {
			return err
		}
	}
	return nil
}

func (o *snapshotOptions) print(t *trials, out io.Writer, err error) error {
	what := fmt.Sprintf("Puts of %s records of %s bytes", grouped(float64(o.records.Count)), grouped(float64(o.records.ValueBytes)))
	return errors.Join(printComparisons(out, o.compared), printTrials(t, out, err, what))
}
