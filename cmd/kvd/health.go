package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/pkg/kvd"
)

func (a *app) healthCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Check whether a server is ready for requests",
		Long: "Check whether a server is ready for requests. The exit code is 0 if it is and 5\n" +
			"if not. Meant for health checks in container images without a shell.",
		Args: noArguments,
	}
	server := a.connection(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return server.with(func(c *kvd.Client) error {
			if err := c.Ping(cmd.Context()); err != nil {
				return err
			}
			_, err := fmt.Fprintln(a.out, "ok")
			return err
		})
	}
	return cmd
}
