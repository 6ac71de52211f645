package main

import (
	"fmt"
	"io"

	"github.com/kvd-db/kvd/internal/workload"
)

// commit is set when the command is linked: the go command names none in a module that
// lies below the root of its repository.
var commit string

// environment is where a comparison took place.
func environment(dir string) workload.Environment {
	env := workload.ReadEnvironment(dir)
	if env.Commit == "" {
		env.Commit = commit
	}
	return env
}

func printEnvironment(w io.Writer, dir string) {
	env := environment(dir)
	fmt.Fprintf(w, "%s, %d CPUs, %s, %s, kernel %s, commit %s, %s\n\n",
		env.CPU, env.GOMAXPROCS, env.FileSystem, env.Go, env.Kernel, env.Commit, env.Time)
}
