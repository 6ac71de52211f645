package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/pkg/kvd"
)

func (a *app) putCommand() *cobra.Command {
	var enc encoding
	var level durability
	cmd := &cobra.Command{
		Use:   "put KEY VALUE|-",
		Short: "Set a key to a value",
		Long:  "Set a key to a value. The value - is read from standard input, as it is.",
		Args:  cobra.ExactArgs(2),
	}
	server := a.connection(cmd)
	enc.flags(cmd)
	level.flag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		key, err := enc.key(args[0])
		if err != nil {
			return err
		}
		value, err := a.value(&enc, args[1])
		if err != nil {
			return err
		}
		return server.with(func(c *kvd.Client) error {
			begin := time.Now()
			if err := c.Put(cmd.Context(), key, value, kvd.Durable(level.level)); err != nil {
				return err
			}
			a.say("ok  %v\n", time.Since(begin).Round(time.Microsecond))
			return nil
		})
	}
	return cmd
}

// value reads the value that an argument gives or points to.
func (a *app) value(enc *encoding, text string) ([]byte, error) {
	if text != "-" {
		return enc.decode("value", text)
	}
	value, err := io.ReadAll(a.in)
	if err != nil {
		return nil, fmt.Errorf("read the value from standard input: %w", err)
	}
	return value, nil
}
