package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/workload"
)

func newRunCommand(open opener) *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "run",
		Short: "Run one workload and report throughput, latency and found rate",
		Long: `Run one workload and report throughput, latency and found rate.

Without --data or --addr the engine runs in this process on a new directory
below the current one, which is removed afterwards. Every answer is checked: a
wrong value or a lost key ends the run with exit code 1.`,
		Example: `  kvbench run --mix GET_HEAVY --preload 1000000 --keys 1000000 --duration 30s
  kvbench run --addr localhost:7070 --durability sync --threads 64
  kvbench run --mix PUT_HEAVY --batch-ops 16 --linger 500us --out results.jsonl`,
		Args: cobra.NoArgs,
	}
	o.register(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := o.resolve(c); err != nil {
			return err
		}
		return failed(benchmark(c, &o, open))
	}
	return c
}

// benchmark runs and prints what came of it.
func benchmark(c *cobra.Command, o *options, open opener) error {
	return withTarget(c.Context(), &o.targetOptions, open, func(target workload.Target, info *targetInfo, report *report) error {
		live := newLiveView(c.ErrOrStderr())
		summary, err := workload.Run(c.Context(), target, o.config, workload.Observer{
			Preload:  live.preload,
			Second:   live.second,
			Interval: report.line,
		})
		live.end()
		info.observe(target)
		if summary != nil {
			summary.Target = info
			summary.Environment = loadgen.ReadEnvironment(o.data)
			err = errors.Join(err, report.summary(summary), printSummary(c.OutOrStdout(), summary, info))
		}
		return err
	})
}
