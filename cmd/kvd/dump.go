package main

import (
	"path"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/inspect"
	"github.com/kvd-db/kvd/internal/replicated"
	"github.com/kvd-db/kvd/internal/vfs"
)

func (a *app) dumpCommand() *cobra.Command {
	o := inspect.DumpOptions{Log: replicated.DumpLog}
	cmd := &cobra.Command{
		Use:   "dump FILE",
		Short: "Print a file of a store: STORE, CLOCK, CURRENT, NODE, MANIFEST-n, n.sst, n.val, n.wal or n.raft",
		Long: "Print a file of a store as text. Keys and values are escaped: \\xNN stands for a\n" +
			"byte, and kvd get --escaped accepts a key in this form.\n\n" +
			"STORE has the fixed properties of the store. CLOCK has a time that the store's\n" +
			"clock, by which keys expire, has not passed; a store that never had a key with an\n" +
			"expiry has no such file. NODE says which node of which cluster the store is, and n.raft\n" +
			"is a segment of the log of a node: entries with their index, their term, and what they\n" +
			"hold. An entry may be replaced by a later one with its index; kvd check of the stopped\n" +
			"node prints up to which one the log is known to be committed.",
		Args: needs("FILE"),
	}
	cmd.Flags().BoolVar(&o.Values, "values", false, "print whole values, not only their beginning and length")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		return named(inspect.Dump(vfs.OS, path.Clean(args[0]), a.out, o))
	}
	return cmd
}
