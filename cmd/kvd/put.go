package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/pkg/kvd"
)

func (a *app) putCommand() *cobra.Command {
	var enc encoding
	var level durability
	var only condition
	var ttl time.Duration
	var printVersion bool
	var took timings
	cmd := &cobra.Command{
		Use:   "put KEY VALUE|-",
		Short: "Set a key to a value",
		Long: "Set a key to a value. If VALUE is -, the value is read unchanged from standard\n" +
			"input.\n\n" +
			"With one of the --if flags the key is written only if the condition holds;\n" +
			"otherwise nothing is written, and the exit code is 4.",
		Example: "  kvd put user/1 Ada\n" +
			"  kvd put --ttl 30m session/7 Ada\n" +
			"  kvd put --if-absent lock/backup \"$HOSTNAME\" || echo another host has it\n" +
			"  kvd put --if-version 17 user/1 Grace",
		Args: needs("KEY", "VALUE"),
	}
	server := a.connection(cmd)
	enc.flags(cmd)
	took.flag(cmd)
	level.flag(cmd)
	only.flags(cmd)
	only.presenceFlags(cmd)
	cmd.Flags().DurationVar(&ttl, "ttl", 0, "time after which the key expires, such as 500ms or 24h; default never")
	cmd.Flags().BoolVar(&printVersion, "print-version", false, "print the version of the write")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		key, err := enc.key(args[0])
		if err != nil {
			return err
		}
		options, err := only.options(&enc)
		if err != nil {
			return err
		}
		if cmd.Flags().Changed("ttl") {
			if ttl <= 0 {
				return usagef("--ttl %v; want more than nothing, or no --ttl for a key that does not expire", ttl)
			}
			options = append(options, kvd.TTL(ttl))
		}
		value, err := a.value(cmd.Context(), &enc, args[1])
		if err != nil {
			return err
		}
		options = append(options, kvd.Durable(level.level), took.option())
		return server.with(func(c *kvd.Client) error {
			begin := time.Now()
			written, err := c.PutItem(cmd.Context(), key, value, options...)
			took.print(a)
			if err != nil {
				return err
			}
			if printVersion {
				_, err := fmt.Fprintln(a.out, written.Version)
				return err
			}
			a.say("ok  %v\n", time.Since(begin).Round(time.Microsecond))
			return nil
		})
	}
	return cmd
}

// value returns the value that an argument holds, or reads it from standard input.
func (a *app) value(ctx context.Context, enc *encoding, text string) ([]byte, error) {
	if text != "-" {
		return enc.decode("value", text)
	}
	value, err := io.ReadAll(until(ctx, a.in))
	if err != nil {
		return nil, fmt.Errorf("read the value from standard input: %w", err)
	}
	return value, nil
}
