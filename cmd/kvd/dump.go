package main

import (
	"path"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/inspect"
	"github.com/kvd-db/kvd/internal/vfs"
)

func (a *app) dumpCommand() *cobra.Command {
	var o inspect.DumpOptions
	cmd := &cobra.Command{
		Use:   "dump FILE",
		Short: "Print a file of a store: STORE, CLOCK, CURRENT, MANIFEST-n, n.sst or n.wal",
		Long: "Print a file of a store for people. Keys and values are escaped: \\x00 stands for\n" +
			"a byte, and kvd get --escaped takes a key back.\n\n" +
			"STORE says what the store is, CLOCK which time its clock, by which keys expire,\n" +
			"has not passed; a store without it never had a key that expires.",
		Args: needs("FILE"),
	}
	cmd.Flags().BoolVar(&o.Values, "values", false, "print values whole; otherwise their beginning and length")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		return named(inspect.Dump(vfs.OS, path.Clean(args[0]), a.out, o))
	}
	return cmd
}
