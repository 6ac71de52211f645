package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/workload"
)

// coreOptions is the command line of ycsb.
type coreOptions struct {
	trialOptions
	names []string
	cores []workload.Core
}

func newCoreCommand(open opener) *cobra.Command {
	var o coreOptions
	c := &cobra.Command{
		Use:   "ycsb",
		Short: "Run the core workloads of YCSB",
		Long: `Run the core workloads of YCSB (Cooper et al., SoCC 2010).

  A  50 % reads, 50 % updates                 zipfian
  B  95 % reads, 5 % updates                  zipfian
  C  reads                                    zipfian
  D  95 % reads, 5 % insertions               latest
  E  95 % scans of 1 to 100, 5 % insertions   zipfian
  F  50 % reads, 50 % read-modify-writes      zipfian

The records are loaded once; then each workload runs with each number of threads.
A record is one value, so an update replaces all of it. A read-modify-write is a
transaction, which is repeated until it does not conflict.

Every answer is checked, including the order and completeness of scans, and at the
end all records are read: a lost update ends the run with exit code 1.`,
		Example: `  kvbench ycsb --records 1000000 --operations 1000000 --threads 1,2,4,8,16
  kvbench ycsb --workload A,F --duration 30s --durability sync --addr localhost:7070`,
		Args: cobra.NoArgs,
	}
	f := c.Flags()
	f.StringSliceVar(&o.names, "workload", []string{"A", "B", "C", "F", "D", "E"}, "in this order")
	f.Uint64Var(&o.span.Operations, "operations", 0, "end each trial after this many operations instead of --duration")
	o.register(c, "records", 500_000, []int{16}, 30*time.Second)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := o.resolve(c); err != nil {
			return err
		}
		return failed(runTrials(c, &o.trialOptions, open, o.run, printCores))
	}
	return c
}

func (o *coreOptions) resolve(c *cobra.Command) error {
	if o.span.Operations > 0 && !c.Flags().Changed("duration") {
		o.span.Duration = 0
	}
	var errs []error
	for _, name := range o.names {
		core, err := workload.ParseCore(name)
		o.cores = append(o.cores, core)
		errs = append(errs, err)
	}
	if len(o.names) == 0 {
		return errors.New("--workload: want at least one")
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return o.trialOptions.resolve(c)
}

func (o *coreOptions) run(t *trials) error {
	for _, core := range o.cores {
		for _, threads := range o.threads {
			label := trialLabel{Benchmark: "ycsb", Workload: core.Name, Threads: threads}
			trial, err := t.RunCore(t.command.Context(), core, o.with(threads), t.observer(label))
			if err := t.ended(label, trial, err); err != nil || t.over() {
				return err
			}
		}
	}
	return nil
}

func printCores(t *trials, out io.Writer, err error) error {
	return printTrials(t, out, err, fmt.Sprintf("%s records of %s bytes", grouped(float64(t.options.records.Count)),
		grouped(float64(t.options.records.ValueBytes))))
}
