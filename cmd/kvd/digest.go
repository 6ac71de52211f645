package main

import (
	"context"
	"fmt"
	"os"
	"strings"

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
			"the address of a server. With --version, the server must have a snapshot of that\n" +
			"version, as it has for the first ten seconds of kvd backup.",
		Args: mayHave("DIR or ADDR"),
	}
	server := a.connection(cmd)
	version := cmd.Flags().Uint64("version", 0, "of a server: read this version instead of the newest")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *version == 0 && cmd.Flags().Changed("version") {
			return usagef("--version 0: versions begin at 1")
		}
		digest, err := a.digest(func(add func(key, value []byte)) error {
			return addAll(cmd.Context(), server, args, *version, add)
		})
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(a.out, digest)
		return err
	}
	return cmd
}

// digest returns a hash of the keys and values that all passes to add, and their number. It
// shows progress.
func (a *app) digest(all func(add func(key, value []byte)) error) (string, error) {
	progress := startProgress(a.err, "keys", 0)
	var digest inspect.Digest
	err := all(func(key, value []byte) {
		digest.Add(key, value)
		progress.items.Add(1)
	})
	progress.close()
	return fmt.Sprintf("%s %d", digest.String(), digest.Count()), err
}

// digestAt returns the digest of a server's keys and values at a version.
func (a *app) digestAt(ctx context.Context, c *kvd.Client, version uint64) (string, error) {
	return a.digest(func(add func(key, value []byte)) error { return addScanned(ctx, c, version, add) })
}

func addAll(ctx context.Context, server *connection, args []string, version uint64, add func(key, value []byte)) error {
	if len(args) == 1 {
		switch info, err := os.Stat(args[0]); {
		case err != nil && looksLikePath(args[0]):
			return usagef("%s is no directory: %w; give the directory of a stopped store, or the address of a server", args[0], err)
		case err != nil: // it is an address
		case info.IsDir() && version != 0:
			return usagef("%s is a directory: a stopped store has only its newest version; kvd restore --to-version makes a store of an older one", args[0])
		case info.IsDir():
			return addStopped(ctx, args[0], add)
		default:
			return usagef("%s is a file, not a directory; give the directory of a stopped store, or the address of a server", args[0])
		}
		server.addr = args[0]
	}
	return server.with(func(c *kvd.Client) error { return addScanned(ctx, c, version, add) })
}

// looksLikePath reports whether an argument that names nothing in the file system was meant to: an
// address has a slash only behind a colon.
func looksLikePath(arg string) bool {
	slash := strings.IndexByte(arg, '/')
	return slash >= 0 && !strings.Contains(arg[:slash], ":")
}

// addScanned adds the keys and values of a server at a version, 0: the newest.
func addScanned(ctx context.Context, c *kvd.Client, version uint64, add func(key, value []byte)) error {
	var o []kvd.ScanOption
	if version != 0 {
		o = append(o, kvd.AtVersion(version))
	}
	for item, err := range c.Scan(ctx, kvd.All(), o...) {
		if err != nil {
			return err
		}
		add(item.Key, item.Value)
	}
	return nil
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
