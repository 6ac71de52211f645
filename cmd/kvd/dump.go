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
		Long: "Print a file of a store as text. Keys and values are escaped: \\xNN stands for a\n" +
			"byte, and kvd get --escaped accepts a key in this form.\n\n" +
			"STORE has the fixed properties of the store. CLOCK has a time that the store's\n" +
			"clock, by which keys expire, has not passed; a store that never had a key with an\n" +
			"expiry has no such file.",
		Args: needs("FILE"),
	}
	cmd.Flags().BoolVar(&o.Values, "values", false, "print whole values, not only their beginning and length")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		return named(inspect.Dump(vfs.OS, path.Clean(args[0]), a.out, o))
	}
	return cmd
}
