package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/pkg/kvd"
)

func (a *app) getCommand() *cobra.Command {
	var enc encoding
	var version bool
	var format string
	var took timings
	var fresh freshness
	cmd := &cobra.Command{
		Use:   "get KEY",
		Short: "Print the value of a key",
		Long: "Print the value of a key: escaped on a terminal, unchanged into a pipe.\n" +
			"The exit code is 3 if the key is absent.",
		Example: "  kvd get user/1\n" +
			"  kvd get --version user/1   17, a tab, the value: see kvd put --if-version\n" +
			"  kvd get -o json user/1     with its version, and ttl_ms if it expires",
		Args: needs("KEY"),
	}
	server := a.connection(cmd)
	enc.flags(cmd)
	took.flag(cmd)
	fresh.flags(cmd)
	cmd.Flags().BoolVar(&version, "version", false, "print the version at which the value was written, and a tab, before the value")
	cmd.Flags().StringVarP(&format, "output", "o", "raw", "raw, or json as kvd scan prints it")
	cmd.MarkFlagsMutuallyExclusive("version", "output")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		key, err := enc.key(args[0])
		if err != nil {
			return err
		}
		if format != "raw" && format != "json" {
			return usagef("--output %q; want raw or json", format)
		}
		if err := fresh.check(); err != nil {
			return err
		}
		stale, minVersion := fresh.options()
		return server.with(func(c *kvd.Client) error {
			item, err := c.GetItem(cmd.Context(), key, took.option(), stale, minVersion)
			took.print(a)
			if errors.Is(err, kvd.ErrNotFound) {
				return fmt.Errorf("get %q: %w", args[0], kvd.ErrNotFound)
			}
			if err != nil {
				return err
			}
			if format == "json" {
				l := newLine(&item)
				return l.write(a.out)
			}
			person := isTerminal(a.out)
			text := enc.encode(item.Value, person) + enc.newline(person)
			if version {
				text = fmt.Sprintf("%d\t%s", item.Version, text)
			}
			_, err = io.WriteString(a.out, text)
			return err
		})
	}
	return cmd
}
