package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/pkg/kvd"
)

func (a *app) getCommand() *cobra.Command {
	var enc encoding
	cmd := &cobra.Command{
		Use:   "get KEY",
		Short: "Print the value of a key",
		Long: "Print the value of a key: escaped on a terminal, the very bytes into a pipe.\n" +
			"Exit code 3 says that the key is not there.",
		Args: cobra.ExactArgs(1),
	}
	server := a.connection(cmd)
	enc.flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		key, err := enc.key(args[0])
		if err != nil {
			return err
		}
		return server.with(func(c *kvd.Client) error {
			value, err := c.Get(cmd.Context(), key)
			if err != nil {
				return err
			}
			person := isTerminal(a.out)
			_, err = io.WriteString(a.out, enc.encode(value, person)+enc.newline(person))
			return err
		})
	}
	return cmd
}
