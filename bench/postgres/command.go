package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/bench/command"
	"github.com/kvd-db/kvd/bench/disk"
	benchreport "github.com/kvd-db/kvd/bench/report"
	"github.com/kvd-db/kvd/bench/service/server"
	"github.com/kvd-db/kvd/internal/experiment"
	"github.com/kvd-db/kvd/internal/loadgen"
	"github.com/kvd-db/kvd/internal/results"
)

// options are the flags.
type options struct {
	stores      []string
	sizes       []int
	readers     int
	rows, reads uint64
	inRow       uint64
	connections int
	workers     int
	linger      time.Duration
	runs        int
	scale       float64
	seed        uint64
	binaries    string
	kvd         string
	dir         string
	report      string
}

func newCommand() *cobra.Command {
	var o options
	c := &cobra.Command{
		Use:   "bench-postgres",
		Short: "Measure batched reads of PostgreSQL, and the same reads of kvd",
		Long: `Measure batched reads of PostgreSQL, and the same reads of kvd.

This repeats the experiment of the article on micro-batching. A private PostgreSQL
server gets a table of 3,000,000 rows, and 300 readers read 3,000,000 random rows of it:
each by a statement of its own, and in batches of fixed sizes. Then they read the same
rows of a kvd server and of an embedded store. A store that is not installed is SKIPPED.

PostgreSQL does not run as root. If this command does, it starts PostgreSQL as the user
postgres, who must be able to enter the directory of --dir.`,
		Example: `  bench-postgres --scale 0.01 --report postgres
  bench-postgres --in-row 10 --stores postgresql --sizes 16`,
		Args: command.NoArgs,
	}
	f := c.Flags()
	f.StringSliceVar(&o.stores, "stores", stores, "stores to measure")
	f.IntSliceVar(&o.sizes, "sizes", []int{1, 2, 4, 8, 16, 24, 32}, "fixed batch sizes, besides unbatched and kvd's default")
	f.IntVar(&o.readers, "readers", 300, "readers, each with one read at a time")
	f.Uint64Var(&o.rows, "rows", 3_000_000, fmt.Sprintf("rows of the table, before --scale, which leaves at least %d", leastRows))
	f.Uint64Var(&o.reads, "reads", 3_000_000, fmt.Sprintf("reads of a run, before --scale, which leaves at least %d", leastReads))
	f.Uint64Var(&o.inRow, "in-row", 1, "how often each random row is read, one time after the other; the article's program had 10")
	f.IntVar(&o.connections, "connections", 10, "connections to PostgreSQL")
	f.IntVar(&o.workers, "workers", 10, "batches that PostgreSQL executes at a time")
	f.DurationVar(&o.linger, "linger", 500*time.Microsecond, "how long the first read of a batch for PostgreSQL waits for others")
	f.IntVar(&o.runs, "runs", 3, "runs of each combination")
	f.Float64Var(&o.scale, "scale", 1, "size of the table and number of reads, relative to --rows and --reads")
	f.Uint64Var(&o.seed, "seed", 1, "equal seeds draw equal rows")
	f.StringVar(&o.binaries, "postgres", "", "directory with the binaries postgres and initdb (default: those in $PATH, or the newest of Debian)")
	f.StringVar(&o.kvd, "kvd", "bin/kvd", "kvd's binary")
	f.StringVar(&o.dir, "dir", ".", "where the temporary directory is made")
	f.StringVar(&o.report, "report", "bench-postgres", "directory for the figures and the page, report.html")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := o.validate(); err != nil {
			return err
		}
		return o.compare(c.Context(), c.OutOrStdout(), c.ErrOrStderr())
	}
	return c
}

// What --scale leaves at least.
const (
	leastRows  = 1000
	leastReads = 3000
)

func scaled(scale float64, full, least uint64) uint64 {
	return max(uint64(scale*float64(full)), min(full, least))
}

func (o *options) scaledRows() uint64  { return scaled(o.scale, o.rows, leastRows) }
func (o *options) scaledReads() uint64 { return scaled(o.scale, o.reads, leastReads) }

func (o *options) validate() error {
	wrong := func(format string, args ...any) error {
		return fmt.Errorf("%w: %w", fmt.Errorf(format, args...), command.ErrUsage)
	}
	for _, name := range o.stores {
		if !slices.Contains(stores, name) {
			return wrong("--stores %q: want some of %q", name, stores)
		}
	}
	for _, n := range o.sizes {
		if n < 1 || n > 1024 {
			return wrong("--sizes %d: want 1 to 1024", n)
		}
	}
	switch {
	case len(o.stores) == 0:
		return wrong("--stores: want some of %q", stores)
	case o.readers < 1 || o.readers > loadgen.MaxWorkers:
		return wrong("--readers %d: want 1 to %d", o.readers, loadgen.MaxWorkers)
	case !(o.scale > 0 && o.scale <= 100): // NaN is neither
		return wrong("--scale %v: want more than 0, and at most 100", o.scale)
	case o.rows < 1 || o.scaledRows() > maxRows:
		return wrong("--rows %d: want 1 to %d, times --scale", o.rows, uint64(maxRows))
	case o.reads < uint64(o.readers):
		return wrong("--reads %d: want at least one for each of %d readers", o.reads, o.readers)
	case o.inRow < 1:
		return wrong("--in-row %d: want at least 1", o.inRow)
	case o.connections < 1 || o.connections > maxConnections:
		return wrong("--connections %d: want 1 to %d", o.connections, maxConnections)
	case o.workers < 1 || o.workers > o.connections:
		return wrong("--workers %d: want 1 to the number of connections, %d", o.workers, o.connections)
	case o.linger <= 0:
		return wrong("--linger %v: want more than 0", o.linger)
	case o.runs < 1:
		return wrong("--runs %d: want at least 1", o.runs)
	case o.report == "":
		return wrong("--report needs the name of a directory")
	}
	return nil
}

// maxConnections is far beyond what serves reads on one machine.
const maxConnections = 1000

func (o *options) settings() settings {
	return settings{
		Rows: o.scaledRows(), Reads: o.scaledReads(), InRow: o.inRow, Readers: o.readers,
		Connections: o.connections, Workers: o.workers, Linger: o.linger,
	}
}

// load returns what the readers do in a round.
func (o *options) load(round uint64) *load {
	return &load{rows: o.scaledRows(), reads: o.scaledReads(), inRow: o.inRow, seed: o.seed + round, readers: o.readers}
}

// compare fills the stores, measures them, prints the figures and writes the report. What
// was measured is written also after an error, and when a signal ends the run.
func (o *options) compare(ctx context.Context, stdout, stderr io.Writer) (err error) {
	locked, err := results.Prepare(o.report)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locked.Close()) }()
	if err := disk.Enough(o.dir, 4*bytesPerRow*int64(o.scaledRows())); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(o.dir, ".bench.")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := os.Chmod(dir, 0o711); err != nil { // PostgreSQL may be another user
		return err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return err
	}
	shown := benchreport.NewProgress(stderr)
	held, err := o.hold(context.WithoutCancel(ctx), dir, shown) // a signal ends the measurement, and Close the stores
	defer func() {
		for _, s := range held {
			err = errors.Join(err, s.Close())
		}
	}()
	if err != nil {
		return err
	}
	return o.measure(ctx, held, dir, stdout, shown)
}

// bytesPerRow is what a row takes on the disk, with its index and the log: guessed.
const bytesPerRow = 300

// hold starts the stores and fills them. What it started is returned also with an error.
func (o *options) hold(ctx context.Context, dir string, shown *benchreport.Progress) (map[string]store, error) {
	held := make(map[string]store)
	told := shown.Step
	for _, name := range o.stores {
		var s store
		var err error
		switch name {
		case storePostgreSQL:
			s, err = o.holdPostgreSQL(ctx, dir, told)
		case storeServer:
			s, err = newKVDServer(ctx, o.kvd, dir, o.scaledRows(), told)
		case storeEmbedded:
			s, err = newKVDEmbedded(ctx, dir, o.scaledRows(), told)
		}
		if missing := (*server.Missing)(nil); errors.As(err, &missing) {
			shown.Line("SKIPPED: %v%s", err, packages[name])
			continue
		}
		if err != nil {
			return held, err
		}
		held[name] = s
	}
	if len(held) == 0 {
		return nil, errors.New("no store is left to measure")
	}
	return held, nil
}

// packages says where a missing store comes from.
var packages = map[string]string{
	storePostgreSQL: "; install Debian's package postgresql, or name the directory of its binaries with --postgres",
	storeServer:     "; build it with make build, or name it with --kvd",
}

func (o *options) holdPostgreSQL(ctx context.Context, dir string, told progress) (store, error) {
	password := newPassword()
	kind, err := server.PostgreSQL(o.binaries, password, o.connections)
	if err != nil {
		return nil, err
	}
	return newPostgreSQL(ctx, kind, dir, password, o, told)
}

// measure measures the stores that hold the rows.
func (o *options) measure(ctx context.Context, held map[string]store, dir string, stdout io.Writer, shown *benchreport.Progress) error {
	e := newExperiment(o, held)
	r, err := e.Run(ctx, experiment.Options{
		Runs: o.runs, Scale: o.scale, Command: os.Args, Environment: benchreport.Environment(dir, commit),
		Progress: func(p experiment.Progress) { shown.Step("%s", progressLine(&p)) },
	})
	r.Program = "bench"
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		shown.Line("interrupted: the report has what was measured until now")
		err = nil
	}
	if !anyRun(r) {
		return errors.Join(err, errors.New("nothing was measured"))
	}
	page := e.Report(r)
	benchreport.PrintEnvironment(stdout, dir, commit)
	err = errors.Join(err, benchreport.PrintPage(stdout, page), results.Write(o.report, r, page.Files()),
		results.AppendCSV(filepath.Join(o.report, experiment.StatisticsFile), experiment.StatisticsHead, experiment.Statistics(r)))
	shown.Line("report: %s", filepath.Join(o.report, results.ReportFile))
	return err
}

// progressLine says which run is measured, and how far it is.
func progressLine(p *experiment.Progress) string {
	text := fmt.Sprintf("run %d of %d: %s", p.Run, p.Runs, p.Cell.Name())
	if p.Sample != nil {
		text += fmt.Sprintf(", %.0f s, %.0f reads/s", float64(p.Sample.NanoTime)/1e9, p.Sample.OpsPerSecond)
	}
	if p.Left > 0 {
		text += ", about " + p.Left.Round(time.Second).String() + " left"
	}
	return text
}
