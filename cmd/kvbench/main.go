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
	"os"
	"os/signal"
	"syscall"
)

func main() {
	os.Exit(run())
}

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	return execute(ctx, os.Args[1:], os.Stdout, os.Stderr, openTarget)
}
