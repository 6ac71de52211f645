package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/pkg/kvd"
)

func (a *app) deleteCommand() *cobra.Command {
	var enc encoding
	var level durability
	cmd := &cobra.Command{
		Use:     "del KEY...",
		Aliases: []string{"delete"},
		Short:   "Remove keys",
		Long:    "Remove keys. It is no error if a key is not there.",
		Args:    cobra.MinimumNArgs(1),
	}
	server := a.connection(cmd)
	enc.flags(cmd)
	level.flag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		keys := make([][]byte, len(args))
		for i, arg := range args {
			key, err := enc.key(arg)
			if err != nil {
				return err
			}
			keys[i] = key
		}
		return server.with(func(c *kvd.Client) error {
			begin := time.Now()
			for _, key := range keys {
				if err := c.Delete(cmd.Context(), key, kvd.Durable(level.level)); err != nil {
					return err
				}
			}
			a.say("ok  %v\n", time.Since(begin).Round(time.Microsecond))
			return nil
		})
	}
	return cmd
}
