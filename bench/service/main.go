// Command service compares kvd as a service with Redis, etcd and memcached, each with
// the Go clients people use, in turns and under equal conditions.
//
// Exit codes: 0 the comparison ended; 1 it failed, or a server gave a wrong answer;
// 64 it was called the wrong way.
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

// errUsage marks an error of how the command was called.
var errUsage = errors.New("see service --help")

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	if err := allowFiles(); err != nil {
		fmt.Fprintf(os.Stderr, "service: %v\n", err)
	}
	root := newCompareCommand()
	root.SilenceErrors, root.SilenceUsage = true, true
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return fmt.Errorf("%w: %w", err, errUsage) })
	root.AddCommand(newWorkerCommand(), newEchoCommand())
	switch err := root.ExecuteContext(ctx); {
	case err == nil:
		return exitOK
	case errors.Is(err, errUsage):
		fmt.Fprintf(os.Stderr, "service: %v\n", err)
		return exitUsage
	default:
		fmt.Fprintf(os.Stderr, "service: %v\n", err)
		return exitError
	}
}

// allowFiles raises the number of files that this process and those it starts may have
// open, connections included, as far as that is allowed.
func allowFiles() error {
	const wanted = 1 << 16
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	higher := syscall.Rlimit{Cur: max(wanted, limit.Cur), Max: max(wanted, limit.Max)}
	if syscall.Setrlimit(syscall.RLIMIT_NOFILE, &higher) == nil {
		return nil
	}
	limit.Cur = limit.Max // what anybody may
	return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
}
