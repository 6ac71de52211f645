// Command service compares kvd as a service with Redis, etcd and memcached, each with
// common Go clients, alternately and under equal conditions.
//
// Exit codes: 0 success; 1 the comparison failed, or a server gave a wrong answer; 64
// invalid usage.
package main

import (
	"fmt"
	"os"
	"syscall"

	"github.com/kvd-db/kvd/bench/command"
)

// commit is set when the command is linked: see report.Environment.
var commit string

func main() { os.Exit(run()) }

func run() int {
	if err := allowFiles(); err != nil {
		fmt.Fprintf(os.Stderr, "service: %v\n", err)
	}
	root := newCompareCommand()
	root.AddCommand(newWorkerCommand(), newEchoCommand())
	return command.Run(root, os.Stderr)
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
