package main

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/experiment"
	"github.com/kvd-db/kvd/internal/report"
	"github.com/kvd-db/kvd/internal/results"
)

func newReportCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "report DIR...",
		Short: "Draw the report of a directory again, without measuring",
		Long: `Draw again the report.html of directories that --report wrote, from their result.json.

Nothing is measured. Use it if a new version of kvbench draws better charts.`,
		Example: `  kvbench report kvbench-partitions`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, dirs []string) error {
			for _, dir := range dirs {
				if err := redraw(c, dir); err != nil {
					return failed(err)
				}
			}
			return nil
		},
	}
}

func redraw(c *cobra.Command, dir string) error {
	r, err := results.Read(dir)
	if err != nil {
		return err
	}
	page, err := pageOf(r)
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(dir, results.ResultFile), err)
	}
	ofSource(c, r, page)
	if err := results.Redraw(dir, page.Files()); err != nil {
		return err
	}
	return printReportPath(c, dir)
}

// experiments draw the results of the commands that measure several combinations.
var experiments = map[string]func() *experiment.Experiment{
	"partitions": experiment.Partitions{}.Experiment,
	"lsm":        experiment.LSM{}.Experiment,
	"microbatch": experiment.Microbatch{}.Experiment,
	"reads":      experiment.Reads{}.Experiment,
	"restart":    experiment.Restart{}.Experiment,
	"ycsb":       experiment.YCSB,
	"txn":        experiment.Transactions,
}

// pageOf returns the page of a stored result.
func pageOf(r *results.Result) (*report.Page, error) {
	if r.Program != "" {
		return nil, fmt.Errorf("%s %s measured it and drew its report; kvbench draws reports of kvbench only", r.Program, r.Experiment)
	}
	if r.Experiment == "run" {
		return runPage(r), nil
	}
	if r.Experiment == "sweep" {
		return experiment.SweepPage(r), nil
	}
	if e, ok := experiments[r.Experiment]; ok {
		return e().Report(r), nil
	}
	return nil, fmt.Errorf("this kvbench knows no experiment %q: use the version that measured it", r.Experiment)
}
