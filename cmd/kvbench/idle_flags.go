package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// idleFlags are flags that have no effect beside the others of a command line.
type idleFlags struct {
	when  bool
	flags []string
	why   string // after "has no effect", and what to do
}

// refuseIdle returns an error for the first flag of the command line that has no effect. A
// report would otherwise seem to show what that flag changes.
func refuseIdle(c *cobra.Command, all ...idleFlags) error {
	for _, idle := range all {
		for _, name := range idle.flags {
			if idle.when && c.Flags().Changed(name) {
				return fmt.Errorf("--%s has no effect %s", name, idle.why)
			}
		}
	}
	return nil
}
