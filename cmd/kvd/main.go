// Command kvd is the whole of kvd in one binary: the server, a client for the
// command line, and tools that look at the files of a stopped store.
//
// Exit codes of client commands:
//
//	0   done
//	1   it failed, or the outcome of a write is unknown
//	3   the key is not there
//	4   a condition of a write, or an assertion of kvd txn, did not hold
//	5   the server cannot be reached, is too busy, or takes no writes
//	6   a transaction met others every time it was run; it may be tried again
//	64  wrong usage
//
// After 4, 5, 6 and 64 a single write, a range delete and a transaction have not
// happened.
//
// Those of serve, check, digest and dump are in package daemon: 65 damaged, 69
// address taken, 70 a bug, 74 disk failed, 75 in use by another process.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	a := &app{in: os.Stdin, out: os.Stdout, err: os.Stderr, environ: os.Environ()}
	return a.execute(ctx, os.Args[1:])
}
