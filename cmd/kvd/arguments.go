package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// needs accepts exactly the named arguments.
func needs(names ...string) cobra.PositionalArgs {
	all := strings.Join(names, " and ")
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return usageOf(cmd, "%s needs %s", cmd.CommandPath(), all)
		case len(args) < len(names):
			return usageOf(cmd, "%s needs %s; %s is missing", cmd.CommandPath(), all, strings.Join(names[len(args):], " and "))
		case len(args) > len(names):
			count := map[int]string{1: "one argument", 2: "two arguments"}[len(names)]
			return usageOf(cmd, "%s takes %s, %s; %q is one too many", cmd.CommandPath(), count, all, args[len(names)])
		}
		return nil
	}
}

// mayHave accepts the named argument, or none.
func mayHave(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 {
			return usageOf(cmd, "%s takes at most one argument, %s; %q is one too many", cmd.CommandPath(), name, args[1])
		}
		return nil
	}
}

// noArguments accepts no arguments.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageOf(cmd, "%s takes no arguments; %q is one too many", cmd.CommandPath(), args[0])
	}
	return nil
}

// usageOf returns a usage error that ends with the usage line of cmd.
func usageOf(cmd *cobra.Command, format string, args ...any) error {
	return fmt.Errorf(format+"\nusage: %s", append(args, cmd.UseLine())...)
}
