package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/inspect"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/pkg/kvd"
)

func (a *app) digestCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "digest [DIR|ADDR]",
		Short: "Print a hash of all keys and values, and their number",
		Long: "Print a hash of all keys and values, and their number. Two stores with the same\n" +
			"keys and values have the same hash, whatever their history.\n\n" +
			"If the argument is a directory, it is a stopped store; the command reads it as a\n" +
			"server would, including the log, and changes nothing; it keeps no more than 128 MiB\n" +
			"of the log in memory, and reads a larger one several times. Any other argument is\n" +
			"the address of a server.",
		Args: mayHave("DIR or ADDR"),
	}
	server := a.connection(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		progress := startProgress(a.err, "keys", 0)
		var digest inspect.Digest
		add := func(key, value []byte) {
			digest.Add(key, value)
			progress.items.Add(1)
		}
		err := addAll(cmd.Context(), server, args, add)
		progress.close()
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(a.out, "%s %d\n", digest.String(), digest.Count())
		return err
	}
	return cmd
}

func addAll(ctx context.Context, server *connection, args []string, add func(key, value []byte)) error {
	if len(args) == 1 {
		switch info, err := os.Stat(args[0]); {
		case err != nil: // it is an address
		case info.IsDir():
			return addStopped(ctx, args[0], add)
		default:
			return usagef("%s is a file, not a directory; give the directory of a stopped store, or the address of a server", args[0])
		}
		server.addr = args[0]
	}
	return server.with(func(c *kvd.Client) error {
		for item, err := range c.Scan(ctx, kvd.All()) {
			if err != nil {
				return err
			}
			add(item.Key, item.Value)
		}
		return nil
	})
}

// addStopped adds the keys and values of the stopped store in a directory.
func addStopped(ctx context.Context, dir string, add func(key, value []byte)) error {
	if _, err := descriptor.Read(vfs.OS, dir); err != nil {
		return named(fmt.Errorf("read the store in %s: %w", dir, err))
	}
	return engine.Walk(ctx, dir, engine.Options{MemtableBytes: digestMemory, CacheBytes: digestCache}, add)
}

const (
	// digestMemory bounds what is kept of the log. A log that needs more is read in several
	// passes, each of which reads all of it.
	digestMemory = 128 << 20
	// digestCache is small, since a digest reads each block about once.
	digestCache = 16 << 20
)
