package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/report"
	"github.com/kvd-db/kvd/internal/results"
)

func newDiffCommand() *cobra.Command {
	var o diffOptions
	c := &cobra.Command{
		Use:   "diff BEFORE[,BEFORE...] AFTER[,AFTER...]",
		Short: "Compare two reports, and list differences beyond the spread of the runs",
		Long: fmt.Sprintf(`Compare the directories of two reports of the same command, cell by cell.

Cells with other workloads, or of which a run failed or was interrupted, are not compared;
the output says which, and names the settings that differ. If nothing can be compared, the
exit code is 1. Settings of the stores may differ, such as --batch-ops: the output names them.

A verdict needs at least %d runs on each side (--runs). A figure is better or worse if the
spread of the runs does not explain the difference, and if it is larger than --least and
than the standard deviation of the runs of either side. If the programs are equal, at most
%v %% of comparisons call any figure better or worse, however many figures there are: Welch's
statistic, corrected by Holm's procedure. So more figures need more runs. If runs spread by
3 %%, a rate that is 10 %% lower is found with 5 runs on each side if it is the only rate, with
6 among 4 rates, and with 9 among 20. With 3 runs only much larger differences are found.

The spread does not show changes of the machine between the two sides. Where there are any,
measure in turns, one run at a time, and name the directories of each side with commas.`, results.FewestRuns, 100*results.FalseAlarms),
		Example: `  kvbench run --runs 5 --report before
  kvbench run --runs 5 --report after
  kvbench diff before after --page diff.html

  for i in 1 2 3 4 5; do
    ./old/kvbench run --seed $i --report a$i; ./new/kvbench run --seed $i --report b$i
  done
  kvbench diff a1,a2,a3,a4,a5 b1,b2,b3,b4,b5`,
		Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, sides []string) error {
			if !(o.least >= results.LeastOfLeast && o.least < 1) { // NaN is neither
				return fmt.Errorf("--least %v: want %v to less than 1", o.least, results.LeastOfLeast)
			}
			return failed(diff(c, sides, &o))
		},
	}
	c.Flags().StringVar(&o.page, "page", "", "write the comparison with pictures to this file, as HTML")
	c.Flags().BoolVar(&o.strict, "strict", false, "end with exit code 1 if a rate or latency is worse, was not compared, or has no verdict, or if more operations were refused or never began")
	c.Flags().Float64Var(&o.least, "least", results.DefaultLeast, "least difference that counts, as a share")
	return c
}

type diffOptions struct {
	page   string
	strict bool
	least  float64
}

func diff(c *cobra.Command, sides []string, o *diffOptions) error {
	var both [2]*results.Result
	var names [2]string
	for i, side := range sides {
		dirs := strings.Split(side, ",")
		var err error
		if both[i], err = results.ReadAll(dirs); err != nil {
			return err
		}
		if names[i] = filepath.Base(dirs[0]); len(dirs) > 1 {
			names[i] += " to " + filepath.Base(dirs[len(dirs)-1])
		}
	}
	comparison, err := results.Compare(both[0], both[1], o.least)
	if err != nil {
		return err
	}
	p := report.Diff(both[0], both[1], names, comparison)
	for i := range p.Sections {
		for _, t := range p.Sections[i].Tables {
			if err := t.WriteText(c.OutOrStdout()); err != nil {
				return err
			}
		}
	}
	if _, err := fmt.Fprintln(c.OutOrStdout(), p.Lead); err != nil {
		return err
	}
	if o.page != "" {
		if err := os.WriteFile(o.page, []byte(p.HTML()), 0o644); err != nil {
			return err
		}
	}
	return o.judge(comparison)
}

// mostMoreUnanswered is by how much the share of operations that were refused or never began may
// grow before --strict calls that worse. Guessed: what is refused shows in a p99 as well.
const mostMoreUnanswered = 0.01

// judge returns an error if --strict asks for one. Processor time does not count: it says what an
// operation cost, not how well it was served, and depends on what else ran.
func (o *diffOptions) judge(c *results.Comparison) error {
	find := func(is func(results.Difference) bool) string {
		i := slices.IndexFunc(c.Differences, func(d results.Difference) bool {
			return d.Metric != results.MetricCPU && d.Metric != results.MetricServerCPU && is(d)
		})
		if i < 0 {
			return ""
		}
		return strings.TrimPrefix(c.Differences[i].Cell+": "+c.Differences[i].Metric, ": ")
	}
	worseRate := find(func(d results.Difference) bool { return d.Main && d.Verdict == results.Worse })
	worse := find(func(d results.Difference) bool { return d.Verdict == results.Worse })
	switch {
	case !o.strict:
	case worseRate != "":
		return fmt.Errorf("a rate is worse: %s", worseRate)
	case worse != "":
		return fmt.Errorf("a latency is worse: %s", worse)
	case slices.ContainsFunc(c.Unanswered, func(u results.Unanswered) bool { return u.B > u.A+mostMoreUnanswered }):
		return errors.New("more operations were refused or never began")
	case find(func(d results.Difference) bool { return d.Verdict == results.Unknown }) != "":
		return fmt.Errorf("--strict cannot say that nothing is worse: each side needs at least %d runs", results.FewestRuns)
	case len(c.Apart) > 0:
		return errors.New("--strict cannot say that nothing is worse: not everything was compared")
	}
	return nil
}
