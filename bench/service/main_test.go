package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/zap/zapcore"

	"github.com/kvd-db/kvd/internal/daemon"
)

// TestMain lets the test binary be the processes that it starts: workers, the echo
// server, and a kvd server.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "worker", "echo-server":
			os.Exit(run())
		case "serve":
			if err := serve(os.Args[2:]); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(exitError)
			}
			os.Exit(exitOK)
		}
	}
	os.Exit(m.Run())
}

// serve is kvd's command of that name, as far as the tests use it: flags with values.
func serve(args []string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	config := daemon.DefaultConfig()
	for _, s := range config.Settings() {
		for i := 0; i < len(args); i += 2 {
			if s.Name == strings.TrimPrefix(args[i], "--") {
				if err := s.Set(args[i+1]); err != nil {
					return err
				}
			}
		}
	}
	config.Log = config.NewLog(zapcore.AddSync(os.Stderr))
	return daemon.Run(ctx, config, func(listen, admin net.Addr) {
		fmt.Printf("READY listen=%s admin=%s\n", listen, admin)
	})
}
