package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/workload"
)

const (
	exitOK    = 0
	exitError = 1
	exitSLO   = 2
	exitUsage = 64 // EX_USAGE of sysexits(3)
)

// failure is an error while a command ran. Any other error is a usage error.
type failure struct{ err error }

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// failed marks an error, unless nil, as a failure.
func failed(err error) error {
	if err == nil {
		return nil
	}
	return &failure{err}
}

// errMissed: a run missed an objective of --slo. The error says which, and by how much.
var errMissed = errors.New("objective missed")

// opener opens the target that the flags describe, and describes it for the report. Tests
// replace it.
type opener func(o *targetOptions) (workload.Target, targetInfo, error)

// newRootCommand returns the command with all others below it.
func newRootCommand(open opener) *cobra.Command {
	root := &cobra.Command{
		Use:   "kvbench",
		Short: "Benchmark kvd, embedded or over the network, and check every answer",
		Long: `Benchmark kvd, embedded or over the network, and check every answer.

Begin with

  kvbench run --duration 10s --report DIR

and open DIR/report.html. A process that is killed leaves its report as of the last minute,
and --resume measures the rest.

Exit codes:
  0   the command ended, also by a signal after something was measured
  1   it failed, an answer was wrong, or a signal ended it before anything was measured or
      before the objectives of --slo could be judged
  2   a run missed an objective of --slo; for sweep, every load missed one
  64  the command line is wrong`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(
		newRunCommand(open),
		newCoreCommand(open),
		newTransactionsCommand(open),
		newSnapshotsCommand(open),
		newPartitionsCommand(open),
		newLSMCommand(open),
		newMicrobatchCommand(open),
		newReadsCommand(open),
		newRestartCommand(open),
		newFillCommand(),
		newSweepCommand(open),
		newSourceCommand(open),
		newReportCommand(),
		newDiffCommand(),
	)
	return root
}

// execute runs one command line and returns the exit code.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer, open opener) int {
	root := newRootCommand(open)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)

	command, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	var failure *failure
	if errors.As(err, &failure) {
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			err = fmt.Errorf("ended by a signal before anything was measured: %w", err)
		}
		_, _ = fmt.Fprintf(stderr, "kvbench: %v\n", err) // an error of stderr cannot be reported
		if errors.Is(err, errMissed) {
			return exitSLO
		}
		return exitError
	}
	_, _ = fmt.Fprintf(stderr, "kvbench: %v\nsee %s --help\n", err, command.CommandPath())
	return exitUsage
}
