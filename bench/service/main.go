// Command service compares kvd as a service with Redis, etcd and memcached, each with
// common Go clients, alternately and under equal conditions.
//
// Exit codes: 0 success; 1 the comparison failed, or a server gave a wrong answer; 64
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

// commit is set when the command is linked: see report.Environment.
var commit string

// errUsage marks a usage error.
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

// allowFiles raises the number of files, including connections, that this process and
// its children may have open, as far as permitted.
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
	limit.Cur = limit.Max // the most without privileges
	return syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
}
