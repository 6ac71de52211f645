// Package command runs the command line of a comparison: signals, errors and exit codes.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// The exit codes of a comparison.
const (
	ExitOK    = 0
	ExitError = 1  // it failed, or a store gave a wrong answer
	ExitUsage = 64 // EX_USAGE of sysexits(3)
)

// ErrUsage marks a usage error.
var ErrUsage = errors.New("see --help")

// Run executes root with the process's arguments, prints its error to stderr, and returns the
// exit code. The first SIGINT or SIGTERM ends the context of the command, and the second one
// the process.
func Run(root *cobra.Command, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	root.SilenceErrors, root.SilenceUsage = true, true
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(FlagError)
	err := root.ExecuteContext(ctx)
	if err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", root.Name(), err)
	}
	switch {
	case err == nil:
		return ExitOK
	case errors.Is(err, ErrUsage):
		return ExitUsage
	default:
		return ExitError
	}
}

// FlagError marks an error of a flag as a usage error.
func FlagError(_ *cobra.Command, err error) error { return fmt.Errorf("%w: %w", err, ErrUsage) }

// NoArgs refuses arguments that are no flags.
func NoArgs(c *cobra.Command, args []string) error {
	if err := cobra.NoArgs(c, args); err != nil {
		return fmt.Errorf("%w: %w", err, ErrUsage)
	}
	return nil
}
