package report

import (
	"fmt"
	"io"

	"github.com/kvd-db/kvd/internal/loadgen"
)

// Environment describes the machine of a comparison with its data in dir. commit is the
// value set by the linker: the go command records none for a module that lies below the
// root of its repository.
func Environment(dir, commit string) loadgen.Environment {
	env := loadgen.ReadEnvironment(dir)
	if env.Commit == "" {
		env.Commit = commit
	}
	return env
}

// PrintEnvironment prints the environment in one line.
func PrintEnvironment(w io.Writer, dir, commit string) {
	env := Environment(dir, commit)
	fmt.Fprintf(w, "%s, %d CPUs, %s, %s, kernel %s, commit %s, %s\n\n",
		env.CPU, env.GOMAXPROCS, env.FileSystem, env.Go, env.Kernel, env.Commit, env.Time)
}
