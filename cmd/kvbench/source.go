package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/experiment"
	"github.com/kvd-db/kvd/internal/report"
	"github.com/kvd-db/kvd/internal/results"
)

func newSourceCommand(open opener) *cobra.Command {
	var scale float64
	var runs int
	var dir string
	var resume bool
	var names []string
	var list strings.Builder
	for _, s := range experiment.Sources {
		names = append(names, s.Name)
		fmt.Fprintf(&list, "  %-13s %s\n", s.Name, s.Article)
		for _, step := range s.Steps {
			fmt.Fprintf(&list, "  %-13s kvbench %s\n", "", strings.Join(step, " "))
		}
	}
	c := &cobra.Command{
		Use:   "source NAME [flags] [-- FLAGS]",
		Short: "Repeat the experiments of a published design, with its parameters and beside its figures",
		Long: `Repeat the experiments of a published design that kvd joins, with the parameters of its
article. Each report has the figures of the article beside those measured here.

` + list.String() + `
At full scale some of these take days. --scale shrinks times and sizes, with the same
code; the report names the scale. Flags after -- replace those of the experiment.`,
		Example: `  kvbench source partitions --scale 0.001 --runs 1
  kvbench source partitions --scale 0.01 -- --mixes PUT_HEAVY --threads 32`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("name a source: one of %s", strings.Join(names, ", "))
			}
			return nil
		},
		ValidArgs:             names,
		DisableFlagsInUseLine: true,
	}
	f := c.Flags()
	f.Float64Var(&scale, "scale", 1, "factor for times and sizes: 1 is the article, 0.01 a hundredth of it")
	f.IntVar(&runs, "runs", 0, "runs of each combination; 0 is the default of the experiment")
	f.BoolVar(&resume, "resume", false, "continue the experiments that were interrupted in the directory of --report")
	f.StringVar(&dir, "report", "", "directory of the reports, one for each experiment (default kvbench-source-NAME, or with -2, -3 and so on if that holds reports)")
	c.RunE = func(c *cobra.Command, args []string) error {
		source := experiment.FindSource(args[0])
		switch {
		case source == nil:
			return fmt.Errorf("%q is no source: choose one of %s", args[0], strings.Join(names, ", "))
		case len(args) > 1 && c.ArgsLenAtDash() != 1:
			return fmt.Errorf("unexpected %q: put flags of the experiment after --", args[1])
		case runs != 0 && checkRepeats("runs", runs) != nil:
			return checkRepeats("runs", runs)
		case !(scale > 0 && scale <= 100): // NaN is neither
			return errScale(scale)
		}
		if dir == "" {
			dir = reportDirectory(c, "kvbench-source-"+source.Name, resume, holdsReports)
		}
		if missing := missingCommands(c.Root(), source); len(missing) > 0 {
			return fmt.Errorf("this kvbench has no experiment %s", strings.Join(missing, ", "))
		}
		return repeatSource(c, source, open, func(n int, step []string) []string {
			into := filepath.Join(dir, reportName(source, n))
			line := append(withoutFlags(step, args[1:]), "--scale", strconv.FormatFloat(scale, 'g', -1, 64), "--report", into)
			if _, err := os.Stat(filepath.Join(into, results.ResultFile)); resume && err == nil {
				line = append(line, "--resume") // others have not begun
			}
			scaleOperations(line, scale)
			if runs > 0 {
				line = append(line, "--runs", strconv.Itoa(runs))
			}
			return append(line, args[1:]...)
		})
	}
	return c
}

func missingCommands(root *cobra.Command, source *experiment.Source) []string {
	var missing []string
	for _, step := range source.Steps {
		if !slices.ContainsFunc(root.Commands(), func(c *cobra.Command) bool { return c.Name() == step[0] }) {
			missing = append(missing, step[0])
		}
	}
	return missing
}

// withoutFlags returns a command line without the flags that others replace. Distributions
// that are replaced take the skew of the preset with them, which others may not have.
func withoutFlags(step, others []string) []string {
	replaced := func(flag string) bool {
		return slices.ContainsFunc(others, func(o string) bool { return o == flag || strings.HasPrefix(o, flag+"=") })
	}
	line := []string{step[0]}
	for i := 1; i+1 < len(step); i += 2 {
		if !replaced(step[i]) && !(step[i] == "--theta" && replaced("--distributions")) {
			line = append(line, step[i], step[i+1])
		}
	}
	return line
}

// reportName returns the directory of the report of a step: its experiment, with a number
// if it is not the first of the same.
func reportName(source *experiment.Source, n int) string {
	name, before := source.Steps[n][0], 0
	for _, step := range source.Steps[:n] {
		if step[0] == name {
			before++
		}
	}
	if before > 0 {
		name += "-" + strconv.Itoa(before+1)
	}
	return name
}

// scaleOperations scales the number of operations of a preset, which the experiments take
// as it is given.
func scaleOperations(line []string, scale float64) {
	const least = 1000
	i := slices.Index(line, "--operations")
	if i < 0 || i+1 == len(line) {
		return
	}
	if n, err := strconv.ParseFloat(line[i+1], 64); err == nil {
		line[i+1] = strconv.FormatFloat(max(math.Round(n*scale), least), 'f', 0, 64)
	}
}

// errStep ends a source whose experiment has already said what went wrong.
var errStep = errors.New("an experiment of the source failed")

// repeatSource runs the experiments one after the other, and prints what the source
// measured.
func repeatSource(c *cobra.Command, source *experiment.Source, open opener, line func(n int, step []string) []string) error {
	ctx, missed := context.WithValue(c.Context(), sourceKey{}, source), error(nil)
	for n, step := range source.Steps {
		args := line(n, step)
		if _, err := fmt.Fprintf(c.OutOrStdout(), "kvbench %s\n\n", strings.Join(args, " ")); err != nil {
			return failed(err)
		}
		switch code := execute(ctx, args, c.OutOrStdout(), c.ErrOrStderr(), open); code {
		case exitOK:
		case exitSLO:
			missed = fmt.Errorf("%w in an experiment of the source", errMissed) // which has said by how much
		case exitUsage:
			return fmt.Errorf("%w: kvbench %s", errStep, strings.Join(args, " "))
		default:
			return failed(errStep)
		}
		if ctx.Err() != nil {
			return nil
		}
	}
	section := source.Section()
	if _, err := fmt.Fprintf(c.OutOrStdout(), "\n%s: %s\n%s\n\n", section.Title, section.Text[0], section.Text[1]); err != nil {
		return failed(err)
	}
	if err := experiment.WriteTables(c.OutOrStdout(), &report.Page{Sections: []report.Section{section}}); err != nil {
		return failed(err)
	}
	return failed(missed)
}

// sourceKey is the key of the source that a command runs for, in its context.
type sourceKey struct{}

// ofSource notes in a result the source that it was measured for, and adds what that
// measured to the page.
func ofSource(c *cobra.Command, r *results.Result, page *report.Page) {
	if source, ok := c.Context().Value(sourceKey{}).(*experiment.Source); ok {
		r.Source = source.Name
	}
	if source := experiment.FindSource(r.Source); source != nil {
		page.Sections = append([]report.Section{source.Section()}, page.Sections...)
	}
}
