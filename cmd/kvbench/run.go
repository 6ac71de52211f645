package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

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

// keyHolder is a target that can tell whether it holds a key.
type keyHolder interface {
	holdsKeys(ctx context.Context) (bool, error)
}

// refuseUsed is an error if the store holds keys: the run would write among them, and
// find what another run left.
func refuseUsed(ctx context.Context, target workload.Target, o *targetOptions) error {
	holder, ok := target.(keyHolder)
	if !ok {
		return nil
	}
	used, err := holder.holdsKeys(ctx)
	if err != nil {
		return fmt.Errorf("look whether the store is empty: %w", err)
	}
	if used {
		return fmt.Errorf("the store of %s is not empty; the run would write and delete keys there, and measure what others left: "+
			"name another one, or pass --reuse", cmp.Or(o.addr, o.data))
	}
	return nil
}

// benchmark runs and prints what came of it.
func benchmark(c *cobra.Command, o *options, open opener) error {
	return withTarget(&o.targetOptions, open, func(target workload.Target, info *targetInfo, report *report) error {
		if !o.reuse {
			if err := refuseUsed(c.Context(), target, &o.targetOptions); err != nil {
				return err
			}
		}
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
			summary.Environment = workload.ReadEnvironment(o.data)
			err = errors.Join(err, report.summary(summary), printSummary(c.OutOrStdout(), summary, info))
		}
		return err
	})
}
