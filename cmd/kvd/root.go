package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/kvd-db/kvd/internal/daemon"
)

// app is the environment of the commands: arguments, standard streams and variables.
type app struct {
	in       io.Reader
	out, err io.Writer
	environ  []string
}

// execute runs a command line and returns the exit code.
func (a *app) execute(ctx context.Context, args []string) int {
	root := &cobra.Command{
		Use:   "kvd",
		Short: "A durable, micro-batching key/value store",
		Long: "kvd is a durable, micro-batching key/value store: server, client and tools.\n\n" +
			"  kvd serve --dev              start a server in memory, to try it\n" +
			"  kvd put hello world          then, in another terminal\n" +
			"  kvd get hello",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	// An error before a command has begun is a usage error.
	began := false
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		err := cmd.ValidateFlagGroups() // cobra would do so only later
		began = err == nil
		return err
	}
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.AddCommand(
		a.serveCommand(), a.configCommand(),
		a.getCommand(), a.putCommand(), a.deleteCommand(), a.scanCommand(),
		a.txnCommand(), a.importCommand(), a.exportCommand(),
		a.backupCommand(), a.restoreCommand(),
		a.scrubCommand(), a.checkCommand(), a.repairCommand(), a.digestCommand(), a.dumpCommand(), a.upgradeCommand(),
		a.slowlogCommand(), a.healthCommand(), a.clusterCommand(), a.certCommand(), a.tokenCommand(), a.versionCommand(),
	)
	command, err := root.ExecuteContextC(ctx)
	if err == nil {
		return daemon.ExitOK
	}
	if !began {
		err = fmt.Errorf("%w: %w\nSee %s --help", daemon.ErrUsage, err, command.CommandPath())
	}
	// Errors of the client begin with "kvd " already.
	fmt.Fprintln(a.err, "kvd:", strings.TrimPrefix(strings.TrimSpace(explain(err)), "kvd "))
	return exitCode(err)
}

// usagef returns an error in what the user typed.
func usagef(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{daemon.ErrUsage}, args...)...)
}

// isTerminal reports whether s is a terminal.
func isTerminal(s any) bool {
	f, ok := s.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
