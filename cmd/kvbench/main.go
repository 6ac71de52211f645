// Command kvbench puts a measured and verified load on kvd: on its engine inside
// this process, or on a server over the network.
//
// Exit codes: 0 the run ended, also if by a signal after something was measured;
// 1 it failed, or an answer was wrong, or a signal ended it before the objectives of
// --slo could be judged; 2 a run missed an objective of --slo, or every load of a sweep
// did; 64 it was called the wrong way.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	os.Exit(run())
}

// endAtSecondSignal waits for a signal, and ends the process without waiting for operations. It
// removes the stores that the process has made.
func endAtSecondSignal(stderr io.Writer) {
	again := make(chan os.Signal, 1)
	signal.Notify(again, os.Interrupt, syscall.SIGTERM)
	_, _ = fmt.Fprintln(stderr, "kvbench: ending; another signal ends it at once") // an error of stderr cannot be reported
	<-again
	stores.abandon(stderr)
	os.Exit(exitError)
}

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	unwatch := context.AfterFunc(ctx, func() { endAtSecondSignal(os.Stderr) })
	defer unwatch() // before stop, which ends ctx as a signal does
	return execute(ctx, os.Args[1:], os.Stdout, os.Stderr, openTarget)
}
