package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/daemon"
	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/event"
	"github.com/kvd-db/kvd/internal/vfs"
)

// convertNode makes the store of a single node the first node of a cluster.
func (a *app) convertNode(data string, node descriptor.Node, partitions int) error {
	switch {
	case len(node.Members) != 1:
		return usagef("--members has %d nodes; with --from-existing it has node %d alone: the others join it afterwards (kvd cluster join), and get its data then", len(node.Members), node.Node)
	case partitions != 0:
		return usagef("--partitions %d; with --from-existing the store keeps its partitions: leave the flag out", partitions)
	}
	if err := a.checkNoArchive(); err != nil {
		return err
	}
	progress := startProgress(a.err, "entries written to tables", 0)
	node, err := daemon.ConvertNode(vfs.OS, data, node, &event.Listener{
		Flush: func(f event.Flush) { progress.items.Add(int64(f.Entries)) },
	})
	progress.close()
	if err != nil {
		return named(err)
	}
	_, err = fmt.Fprintf(a.out, "node %d of cluster %016x is in %s, with the data of the store\n\n"+
		"start it: kvd serve --cluster --data %s\n"+
		"then, on the machine of each other node: kvd cluster join --data DIR --peer HOST:PORT --addr ADDRESS-OF-NODE-%d\n",
		node.Node, node.Cluster, data, data, node.Node)
	return err
}

// checkNoArchive returns an error if kvd serve, with the environment of this command, would archive
// the log. A node of a cluster does not.
func (a *app) checkNoArchive() error {
	settings := a.serverSettings(&cobra.Command{})
	if err := settings.load(); err != nil {
		return err
	}
	if settings.config.Archive == "" {
		return nil
	}
	return usagef("the settings of the server name an archive, %s, and a node of a cluster has none yet: make a last backup while the server runs (kvd backup), "+
		"stop it, remove the setting, and repeat. The archive stays as it is; it restores versions of the time before", settings.config.Archive)
}
