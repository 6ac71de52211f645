package main

import (
	"fmt"
	"os"
	"testing"

	"github.com/kvd-db/kvd/bench/command"
	"github.com/kvd-db/kvd/bench/service/server/servertest"
)

// TestMain lets the test binary be the processes that it starts: workers, the echo
// server, and a kvd server.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "worker", "echo-server":
			os.Exit(run())
		case "cluster":
			if err := servertest.Init(os.Args[3:]); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(command.ExitError)
			}
			os.Exit(command.ExitOK)
		case "serve":
			if err := servertest.Serve(os.Args[2:]); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(command.ExitError)
			}
			os.Exit(command.ExitOK)
		}
	}
	os.Exit(m.Run())
}
