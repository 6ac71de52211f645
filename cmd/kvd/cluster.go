package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/daemon"
	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/vfs"
)

func (a *app) clusterCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Make a cluster, look at it, and change its nodes",
		Args:  noArguments,
	}
	cmd.AddCommand(a.clusterInitCommand(), a.clusterStatusCommand(), a.clusterJoinCommand(), a.clusterRemoveCommand(), a.clusterMoveCommand(), a.clusterTransferCommand(), a.clusterRecoverCommand())
	return cmd
}

func (a *app) clusterInitCommand() *cobra.Command {
	data, cluster, id, members, partitions, existing := "", "", uint64(0), []string{}, 0, false
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make one of the first nodes of a cluster",
		Long: "Make the store of one of the first nodes of a cluster, in a new directory. Run it once\n" +
			"for each node, on its machine, with the same --members, --partitions and --cluster;\n" +
			"the first run chooses them if need be, and prints the commands for the other nodes.\n" +
			"Then start each node with kvd serve --cluster.\n\n" +
			"A node has an id of its own, and an address for the other nodes, which is not that for\n" +
			"clients. If the data of a node is lost, no other node may get its id: do not run the\n" +
			"command again for it, but kvd cluster join --replace. The cluster refuses a node that has\n" +
			"another data directory than it had.\n\n" +
			"With --from-existing the store of a single node, which is stopped, becomes the first node,\n" +
			"where it is: all keys, versions and expiry times stay, and so do the request ids by which\n" +
			"writes that are sent again are recognised. --members has this node alone; the others join it\n" +
			"(kvd cluster join), and get the data then. There is no way back but kvd backup of the node and\n" +
			"kvd restore, so make a backup first, and run kvd check. A node has no archive yet: remove the\n" +
			"setting archive. If the command is interrupted, the store is what it was, or the node: run\n" +
			"the command again.\n\n" +
			"If all nodes are on this machine they need no certificates. Otherwise each one has a\n" +
			"certificate whose only URI is kvd-node:CLUSTER/NODE; kvd cert nodes makes some to try.\n\n" +
			"Exit codes: 0 the node is made; 64 the arguments do not fit, or the directory is in use\n" +
			"for something else; 65 its data is damaged; 74 the disk failed; 75 a process uses it.",
		Example: "  kvd cluster init --data node1 --node 1 --members 1=127.0.0.1:7101,2=127.0.0.1:7102,3=127.0.0.1:7103\n" +
			"  kvd serve --cluster --data node1 --listen 127.0.0.1:7001 --admin 127.0.0.1:7201\n" +
			"  kvd cluster init --data /var/lib/kvd --from-existing --node 1 --members 1=db1:7100",
		Args: noArguments,
	}
	cmd.Flags().StringVar(&data, "data", "", "directory of the store, which is new or empty, but with --from-existing")
	cmd.Flags().BoolVar(&existing, "from-existing", false, "make the store of a single node that is in --data the first node, with its data")
	cmd.Flags().Uint64Var(&id, "node", 0, "id of this node, one of those in --members")
	cmd.Flags().StringSliceVar(&members, "members", nil, "all first nodes, 1 to 7 of them: ID=HOST:PORT, separated by commas")
	cmd.Flags().StringVar(&cluster, "cluster", "", "id of the cluster, 16 hexadecimal digits; empty draws one")
	cmd.Flags().IntVar(&partitions, "partitions", 0, "number of hash partitions, the same for all nodes; 0 means what kvd serve chooses on this machine")
	cmd.RunE = func(*cobra.Command, []string) error {
		node, err := parseNode(cluster, id, members)
		switch {
		case err != nil:
			return err
		case data == "":
			return usagef("--data is empty; name the directory of this node")
		case partitions < 0 || partitions > descriptor.MaxPartitions:
			return usagef("--partitions %d; want at most %d", partitions, descriptor.MaxPartitions)
		}
		if existing {
			if cluster == "" {
				node.Cluster = 0 // that of an interrupted call, if there was one
			}
			return a.convertNode(data, node, partitions)
		}
		if err := checkNewNode(data); err != nil {
			return err
		}
		if partitions, err = daemon.InitNode(vfs.OS, data, node, partitions); err != nil {
			return named(err)
		}
		a.afterInit(data, node, members, partitions)
		return nil
	}
	return cmd
}

// maxFirstNodes bounds the voters: more of them would only slow each other.
const maxFirstNodes = 7

// parseNode returns the node that the arguments describe.
func parseNode(cluster string, id uint64, members []string) (n descriptor.Node, err error) {
	n.Node, n.Members = id, map[uint64]string{}
	for _, m := range members {
		text, address, _ := strings.Cut(m, "=")
		member, err := strconv.ParseUint(text, 10, 64)
		if err != nil || member == 0 {
			return n, usagef("--members %q: want ID=HOST:PORT, with an id of 1 or more", m)
		}
		if err := descriptor.CheckAddress(address); err != nil {
			return n, usagef("--members %q: %w", m, err)
		}
		if n.Members[member] != "" {
			return n, usagef("--members has node %d twice", member)
		}
		for other, same := range n.Members {
			if same == address {
				return n, usagef("--members has the address %s twice, of the nodes %d and %d", address, min(other, member), max(other, member))
			}
		}
		n.Members[member] = address
	}
	switch {
	case len(n.Members) < 1 || len(n.Members) > maxFirstNodes:
		return n, usagef("--members has %d nodes; want 1 to %d, best 3 or 5", len(n.Members), maxFirstNodes)
	case n.Members[id] == "":
		return n, usagef("--node %d is not in --members, which has %v", id, slices.Sorted(maps.Keys(n.Members)))
	case cluster == "":
		n.Cluster = descriptor.NewID()
		return n, nil
	}
	n.Cluster, err = parseCluster(cluster)
	return n, err
}

// parseCluster returns the id of a cluster.
func parseCluster(text string) (uint64, error) {
	id, err := strconv.ParseUint(text, 16, 64)
	if err != nil || len(text) != 16 || id == 0 {
		return 0, usagef("--cluster %q: want 16 hexadecimal digits, as the first kvd cluster init has printed", text)
	}
	return id, nil
}

// afterInit says what to do next.
func (a *app) afterInit(data string, n descriptor.Node, members []string, partitions int) {
	fmt.Fprintf(a.out, "node %d of cluster %016x is in %s\n", n.Node, n.Cluster, data)
	if len(n.Members) > 1 {
		fmt.Fprintf(a.out, "\nif not done yet, on the machines of the other nodes:\n")
	}
	for _, id := range slices.Sorted(maps.Keys(n.Members)) {
		if id != n.Node {
			fmt.Fprintf(a.out, "  kvd cluster init --data DIR --node %d --cluster %016x --members %s --partitions %d\n", id, n.Cluster, strings.Join(members, ","), partitions)
		}
	}
	fmt.Fprintf(a.out, "\nthen, for each node: kvd serve --cluster --data DIR\n")
}
