package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/report"
	"github.com/kvd-db/kvd/internal/results"
)

// saveEvery is how much measured time a process that is killed may lose, besides that of the
// run that is under way.
const saveEvery = time.Minute

// newSaver returns a function that writes the report of an experiment that goes on, unless it
// did less than saveEvery ago. If that fails, it says so: the measurement goes on, and the
// report is written again at its end.
func newSaver(c *cobra.Command, dir string, page func(*results.Result) *report.Page) func(*results.Result) {
	saved := time.Now()
	return func(r *results.Result) {
		if time.Since(saved) < saveEvery {
			return
		}
		p := page(r)
		ofSource(c, r, p)
		if err := results.Write(dir, r, p.Files()); err != nil {
			_, _ = fmt.Fprintf(c.ErrOrStderr(), "kvbench: what was measured so far is not saved: %v\n", err)
		}
		saved = time.Now()
	}
}
