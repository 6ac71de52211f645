package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/bench/command"
	benchreport "github.com/kvd-db/kvd/bench/report"
	"github.com/kvd-db/kvd/internal/results"
)

// options are the flags.
type options struct {
	scale    float64
	rounds   int
	programs map[string]*string // by part
	kvd      string
	dir      string
	report   string
}

func newCommand() *cobra.Command {
	o := options{programs: map[string]*string{partEmbedded: new(string), partService: new(string)}}
	c := &cobra.Command{
		Use:   "overview",
		Short: "Compare kvd with its peers, embedded and as a service, in one report",
		Long: `Compare kvd with its peers, embedded and as a service, in one report.

Pebble, Badger, bbolt and goleveldb run the same workloads as the embedded store, and
Redis and etcd the same as the server, in turns. It runs the commands compare and service,
whose tables and lines are stored in the directory of the report. At full scale this takes
hours. A server that is not installed is SKIPPED.`,
		Example: "  overview --scale 0.01 --report peers",
		Args:    command.NoArgs,
	}
	f := c.Flags()
	f.Float64Var(&o.scale, "scale", 1, "keys and times, relative to the full comparison; a slot is never shorter than "+leastSlot.String())
	f.IntVar(&o.rounds, "rounds", 3, "rounds that are measured")
	f.StringVar(o.programs[partEmbedded], "compare", "bin/compare", "binary of the command compare")
	f.StringVar(o.programs[partService], "service", "bin/service", "binary of the command service")
	f.StringVar(&o.kvd, "kvd", "bin/kvd", "kvd's binary")
	f.StringVar(&o.dir, "dir", ".", "where temporary directories are made")
	f.StringVar(&o.report, "report", "bench-peers", "directory for the figures and the page, report.html")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := o.validate(); err != nil {
			return err
		}
		return o.compare(c.Context(), c.OutOrStdout(), c.ErrOrStderr())
	}
	return c
}

func (o *options) validate() error {
	switch {
	case !(o.scale > 0 && o.scale <= 10): // NaN is neither
		return fmt.Errorf("--scale %v: want more than 0, and at most 10: %w", o.scale, command.ErrUsage)
	case o.rounds < 1:
		return fmt.Errorf("--rounds %d: want at least 1: %w", o.rounds, command.ErrUsage)
	case o.report == "":
		return fmt.Errorf("--report needs the name of a directory: %w", command.ErrUsage)
	}
	return nil
}

// compare runs all steps and writes the report. What was measured is reported also after an
// error, and when a signal ends the run.
func (o *options) compare(ctx context.Context, stdout, stderr io.Writer) (err error) {
	held, err := results.Prepare(o.report)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, held.Close()) }()
	r := &results.Result{
		Version: results.Version, Program: "bench", Experiment: "peers", Command: os.Args, Scale: o.scale,
		Began: time.Now().UTC().Format(time.RFC3339), Environment: benchreport.Environment(o.dir, commit),
	}
	steps := plan(o.scale, o.rounds)
	var failed error
	for i := range steps {
		fmt.Fprintf(stderr, "step %d of %d: %s\n", i+1, len(steps), steps[i].file())
		if failed = o.runStep(ctx, r, &steps[i], stderr); failed != nil {
			break
		}
	}
	if len(r.Cells) == 0 {
		return failed
	}
	page := newPage(r)
	benchreport.PrintEnvironment(stdout, o.dir, commit)
	err = errors.Join(failed, benchreport.PrintPage(stdout, page), results.Write(o.report, r, page.Files()))
	fmt.Fprintf(stderr, "report: %s\n", filepath.Join(o.report, results.ReportFile))
	return err
}

// endTime is how long a program may take to end and to remove its files after a signal.
const endTime = time.Minute

// runStep runs the program of a step and adds its slots to the result. Its tables and slots
// are files of the report.
func (o *options) runStep(ctx context.Context, r *results.Result, s *step, stderr io.Writer) (err error) {
	name := filepath.Join(o.report, s.file())
	if err := os.Remove(name + ".jsonl"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err // that of an earlier run
	}
	text, err := os.Create(name + ".txt")
	if err != nil {
		return err
	}
	args := append(append([]string(nil), s.args...), "--dir", o.dir, "--out", name+".jsonl")
	if s.part == partService {
		args = append(args, "--kvd", o.kvd)
	}
	cmd := exec.CommandContext(ctx, *o.programs[s.part], args...)
	cmd.Stdout, cmd.Stderr = text, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = endTime
	ran := errors.Join(cmd.Run(), text.Close())
	if ran != nil {
		ran = fmt.Errorf("%s: %w", s.file(), ran)
	}
	lines, err := os.Open(name + ".jsonl")
	if errors.Is(err, os.ErrNotExist) && ran != nil {
		return ran // it ended before it measured
	}
	if err != nil {
		return errors.Join(ran, err)
	}
	return errors.Join(ran, addSlots(r, s, lines), lines.Close())
}
