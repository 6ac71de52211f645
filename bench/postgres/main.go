// Command postgres repeats the experiment of the article on micro-batching on the
// database of the article: many readers ask PostgreSQL for random rows, unbatched and in
// batches of several sizes, and then ask kvd for the same rows.
//
// Exit codes: 0 success; 1 the experiment failed, or a store gave a wrong answer; 64
// invalid usage.
package main

import (
	"os"

	"github.com/kvd-db/kvd/bench/command"
)

// commit is set when the command is linked: see report.Environment.
var commit string

func main() { os.Exit(command.Run(newCommand(), os.Stderr)) }
