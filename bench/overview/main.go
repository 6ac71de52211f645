// Command overview compares kvd with its peers, embedded and as a service, in one run and
// with one report: it runs the commands compare and service, and draws their results.
//
// Exit codes: 0 success; 1 a comparison failed, or a store gave a wrong answer; 64 invalid
// usage.
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

// commit is set when the command is linked: see report.Environment.
var commit string

// errUsage marks a usage error.
var errUsage = errors.New("see overview --help")

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	root := newCommand()
	root.SilenceErrors, root.SilenceUsage = true, true
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(flagError)
	switch err := root.ExecuteContext(ctx); {
	case err == nil:
		return exitOK
	case errors.Is(err, errUsage):
		fmt.Fprintf(os.Stderr, "overview: %v\n", err)
		return exitUsage
	default:
		fmt.Fprintf(os.Stderr, "overview: %v\n", err)
		return exitError
	}
}

// flagError marks an error of a flag as a usage error.
func flagError(_ *cobra.Command, err error) error { return fmt.Errorf("%w: %w", err, errUsage) }

// noArgs refuses arguments that are no flags.
func noArgs(c *cobra.Command, args []string) error {
	if err := cobra.NoArgs(c, args); err != nil {
		return fmt.Errorf("%w: %w", err, errUsage)
	}
	return nil
}
