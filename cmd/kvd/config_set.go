package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/pkg/kvd"
)

func (a *app) configSetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "set NAME VALUE",
		Short: "Change a setting of a running server",
		Long: "Change a setting of a running server, and print its values before and after. Only the\n" +
			"settings that kvd config docs marks as live can change; others need a restart. The\n" +
			"server checks the value as at its start.\n\n" +
			"The change is not written to any file: it lasts until the server ends, or reads its\n" +
			"configuration file again (SIGHUP). Put it into the file as well to keep it. If --addr\n" +
			"has several addresses, one server changes. If the server has identities, the command\n" +
			"needs an administrator.",
		Example: "  kvd config set log-level debug\n" +
			"  kvd config set slow-log-time 1ms --addr db1:7070",
		Args: needs("NAME", "VALUE"),
	}
	server := a.connection(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return server.with(func(c *kvd.Client) error {
			before, after, err := c.SetSetting(cmd.Context(), args[0], args[1])
			if err != nil {
				return err
			}
			if before == after {
				_, err = fmt.Fprintf(a.out, "%s is %s already\n", args[0], after)
				return err
			}
			_, err = fmt.Fprintf(a.out, "%s: %s -> %s, until the server restarts or reads its configuration file again\n", args[0], before, after)
			return err
		})
	}
	return cmd
}
