// Command kvd is the server, a command-line client, and tools for the files of a stopped
// store, in one binary.
//
// Exit codes of client commands:
//
//	0   done
//	1   it failed, or the outcome of a write is unknown
//	3   the key is absent
//	4   a condition of a write, or an assertion of kvd txn, did not hold
//	5   the server cannot be reached, is too busy, or takes no writes
//	6   a transaction conflicted in every attempt; it may be tried again
//	7   the server does not know the client, or does not allow it
//	64  wrong usage
//	65  data that the command needs, of the server or of a backup, is damaged
//
// After 4, 5, 6, 7, 64 and 65 a single write, a range delete and a transaction have not
// happened.
//
// Those of serve, check, digest and dump are in package daemon: 65 damaged, 69
// address taken, 70 a bug, 74 disk failed or did not answer, 75 in use by another
// process.
//
// The first SIGINT or SIGTERM ends a command in order, the second at once: 130 or 143.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/kvd-db/kvd/internal/daemon"
)

func main() { os.Exit(run()) }

// codeOf returns the exit code of a process that a second signal ends at once.
func codeOf(s os.Signal) int {
	if s == syscall.SIGTERM {
		return daemon.ExitTerminated
	}
	return daemon.ExitInterrupted
}

func run() int {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		stop()
		os.Exit(codeOf(<-signals))
	}()
	a := &app{in: os.Stdin, out: os.Stdout, err: os.Stderr, environ: os.Environ()}
	return a.execute(ctx, os.Args[1:])
}
