package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/results"
)

// resumeUsage is the help of --resume.
const resumeUsage = "continue the experiment that was interrupted in the directory of --report: complete runs are not repeated; refused if options, program or machine differ"

// resumed returns the result of a directory if it is to be resumed, and otherwise what is
// planned.
func resumed(c *cobra.Command, resume bool, dir string, planned *results.Result) (*results.Result, error) {
	if !resume {
		return planned, nil
	}
	r, err := results.Resume(dir, planned)
	if err != nil {
		return nil, err
	}
	of := ""
	if r.Planned > 0 {
		of = fmt.Sprintf(" of %d", r.Planned)
	}
	_, err = fmt.Fprintf(c.ErrOrStderr(), "resumed: %d%s runs are complete\n", r.Measured(), of)
	return r, err
}

// refuseResume returns an error if the store of an experiment to resume is not a new one.
func (o *targetOptions) refuseResume() error {
	if o.data != "" || o.addr != "" {
		return errors.New("--resume needs a new store: leave out --data and --addr, whose store has what the interrupted experiment wrote")
	}
	return nil
}

// optionsOf returns the flags that decide what a command measures, and how.
func optionsOf(c *cobra.Command) map[string]string {
	options := make(map[string]string)
	for _, f := range visited(c.Flags().VisitAll) {
		switch f.Name {
		case "help", "out", "report", "resume":
		default:
			options[f.Name] = f.Value.String()
		}
	}
	return options
}

// visited returns what visit visits.
func visited[T any](visit func(func(T))) (all []T) {
	visit(func(one T) { all = append(all, one) })
	return all
}
