// Command compare runs the same workload on kvd's engine and on other embedded stores,
// alternately and under equal conditions, and compares the results.
//
// Exit codes: 0 success; 1 the comparison failed, or a store gave a wrong answer; 64
// invalid usage.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

const (
	exitOK    = 0
	exitError = 1
	exitUsage = 64 // EX_USAGE of sysexits(3)
)

// failure is an error of a command that ran. Any other error is a usage error.
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

func main() {
	os.Exit(run())
}

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once

	root := &cobra.Command{
		Use:           "compare",
		Short:         "Compare kvd's engine with other embedded stores",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(newScanCommand(), newPutCommand(), newMixCommand(), newGetCommand(), newLoadCommand(), newTransactionCommand(), newScanMixCommand(), newColdCommand(),
		newThreadsCommand(), newLongCommand(), newScaleCommand(),
		newAllCommand(), newWorkerCommand())

	command, err := root.ExecuteContextC(ctx)
	var failure *failure
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &failure):
		fmt.Fprintf(os.Stderr, "compare: %v\n", err)
		return exitError
	default:
		fmt.Fprintf(os.Stderr, "compare: %v\nsee %s --help\n", err, command.CommandPath())
		return exitUsage
	}
}
