package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/report"
	"github.com/kvd-db/kvd/internal/results"
)

func newDiffCommand() *cobra.Command {
	var page string
	var strict bool
	c := &cobra.Command{
		Use:   "diff BEFORE AFTER",
		Short: "Compare two reports, and list differences beyond the spread of the runs",
		Long: `Compare the directories of two reports of the same command, cell by cell.

Cells with other workloads, or of which a run failed, are not compared; the output says
which, and names the settings that differ. If nothing can be compared, the exit code is 1.
Settings of the stores may differ, such as --batch-ops: the output names them.

A difference counts if the spread of the runs does not explain it, with 95 % confidence
for all rates together. Use at least three runs on each side (--runs); between single
runs, differences below 7 % count as noise. On a machine that is also used otherwise, runs
of the two sides should alternate.`,
		Example: `  kvbench run --runs 5 --report before
  kvbench run --runs 5 --report after
  kvbench diff before after --page diff.html`,
		Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, dirs []string) error { return failed(diff(c, dirs, page, strict)) },
	}
	c.Flags().StringVar(&page, "page", "", "write the comparison with pictures to this file, as HTML")
	c.Flags().BoolVar(&strict, "strict", false, "end with exit code 1 if a rate is worse, or was not compared")
	return c
}

func diff(c *cobra.Command, dirs []string, page string, strict bool) error {
	var both [2]*results.Result
	var names [2]string
	for i, dir := range dirs {
		var err error
		if both[i], err = results.Read(dir); err != nil {
			return err
		}
		names[i] = filepath.Base(dir)
	}
	comparison, err := results.Compare(both[0], both[1])
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
	if page != "" {
		if err := os.WriteFile(page, []byte(p.HTML()), 0o644); err != nil {
			return err
		}
	}
	switch {
	case !strict:
	case slices.ContainsFunc(comparison.Differences, func(d results.Difference) bool { return d.Main && d.Verdict == results.Worse }):
		return errors.New("a rate is worse")
	case len(comparison.Apart) > 0:
		return errors.New("not everything was compared, so --strict cannot say that nothing is worse")
	}
	return nil
}
