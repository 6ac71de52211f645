package main

import (
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"go.uber.org/zap/zapcore"

	"github.com/kvd-db/kvd/internal/daemon"
)

func (a *app) serveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the server until SIGINT or SIGTERM",
		Long: "Run the server until SIGINT or SIGTERM; a second signal ends it at once.\n" +
			"SIGHUP reads certificates, tokens and the file of --config again, and applies the settings\n" +
			"that kvd config docs marks as live.\n\n" +
			"When the server is ready it prints one line, READY listen=ADDR admin=ADDR. It\n" +
			"logs to standard error. Every flag can also be set by an environment variable, for\n" +
			"example KVD_MAX_SYNC_TIME for --max-sync-time, or in a file, see kvd config; a flag\n" +
			"takes precedence over a variable, and a variable over the file.\n\n" +
			"Under systemd (Type=notify) it reports when it is ready, asks for more time while it\n" +
			"recovers a large log, answers the watchdog, and shows in systemctl status why it is\n" +
			"not ready.\n\n" +
			"Exit codes: 0 stopped in order; 64 invalid settings; 65 the data is damaged or of\n" +
			"a newer version; 69 an address is taken; 70 a bug in the engine, see the log; 74\n" +
			"the disk failed or did not answer in time; 75 another process has the store open;\n" +
			"77 the node was removed from its cluster, or has lost its data;\n" +
			"130 or 143 a second SIGINT or SIGTERM. A crash of the Go runtime exits with 2.",
		Args: noArguments,
	}
	settings := a.serverSettings(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := settings.load(); err != nil {
			return err
		}
		config := settings.config
		var err error
		if config.Supervisor, err = daemon.SupervisorFromEnv(); err != nil {
			return err
		}
		config.Log = config.NewLog(zapcore.AddSync(a.err), isTerminal(a.err))
		received, restore := hangups()
		defer restore()
		config.Hangups = received
		return daemon.Run(cmd.Context(), config, func(listen, admin net.Addr) {
			fmt.Fprintf(a.out, "READY listen=%s admin=%s\n", listen, admin)
			if isTerminal(a.err) && isTerminal(os.Stdin) {
				a.firstSteps(listen, admin)
			}
		})
	}
	return cmd
}

// hangups returns a channel with a value for each SIGHUP, which terminals send when they
// close, and supervisors to reload files. The returned function restores the default action
// of the signal.
func hangups() (received <-chan struct{}, restore func()) {
	signals, all, ended := make(chan os.Signal, 1), make(chan struct{}, 1), make(chan struct{})
	signal.Notify(signals, syscall.SIGHUP)
	go func() {
		defer close(ended)
		for range signals {
			select {
			case all <- struct{}{}:
			default: // one is waiting
			}
		}
	}()
	return all, func() {
		signal.Stop(signals)
		close(signals)
		<-ended
	}
}

// firstSteps prints commands to try.
func (a *app) firstSteps(listen, admin net.Addr) {
	addr := ""
	if listen.String() != defaultAddr {
		addr = " --addr " + listen.String()
	}
	fmt.Fprintf(a.err, "\n  try    kvd put%s hello world && kvd get%s hello\n  watch  curl http://%s/status.txt\n  stop   Ctrl-C\n\n",
		addr, addr, admin)
}
