// Command overview compares kvd with its peers, embedded and as a service, in one run and
// with one report: it runs the commands compare and service, and draws their results.
//
// Exit codes: 0 success; 1 a comparison failed, or a store gave a wrong answer; 64 invalid
// usage.
package main

import (
	"os"

	"github.com/kvd-db/kvd/bench/command"
)

// commit is set when the command is linked: see report.Environment.
var commit string

func main() { os.Exit(command.Run(newCommand(), os.Stderr)) }
