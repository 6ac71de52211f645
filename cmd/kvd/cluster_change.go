package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/daemon"
	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/pkg/kvd"
)

const clusterExitCodes = "If the server has identities, the command needs an administrator.\n\n" +
	"Exit codes: 0 done; 1 the outcome is not known, see kvd cluster status; 5 the cluster\n" +
	"cannot be reached, has no leader or is busy; 7 not signed in or not allowed; 64 the\n" +
	"arguments do not fit."

func (a *app) clusterTransferCommand() *cobra.Command {
	to := uint64(0)
	cmd := &cobra.Command{
		Use:   "transfer",
		Short: "Let another node of a cluster lead",
		Long: "Let another node of a cluster lead, and print which one does. Clients that were given the\n" +
			"addresses of all nodes follow it. Any node can be asked.\n\n" + clusterExitCodes,
		Example: "  kvd cluster transfer --addr db1:7070          # to the voter that lacks least\n" +
			"  kvd cluster transfer --to 3 --addr db1:7070",
		Args: noArguments,
	}
	server := a.connection(cmd)
	cmd.Flags().Uint64Var(&to, "to", 0, "id of the node that is to lead; 0 means the voter that lacks least")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return server.with(func(c *kvd.Client) error {
			leader, err := c.TransferLeadership(cmd.Context(), to)
			if err != nil {
				return ofCluster(err)
			}
			_, err = fmt.Fprintf(a.out, "node %d leads\n", leader)
			return err
		})
	}
	return cmd
}

func (a *app) clusterRemoveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "remove NODE",
		Short: "Take a node out of a cluster for ever",
		Long: "Take a node out of a cluster for ever, whether it runs or not. If it leads, another node\n" +
			"leads first. If it runs, it ends, with exit code 77, and so it does each time that it is started again. Its id is not\n" +
			"used again; its data directory can be deleted. Any node can be asked.\n\n" +
			"The command is refused if too few voters would be up afterwards. To take a dead node's\n" +
			"place with a new one use kvd cluster join --replace instead: the cluster then never has\n" +
			"one voter less.\n\n" + clusterExitCodes,
		Example: "  kvd cluster remove 3 --addr db1:7070",
		Args:    needs("NODE"),
	}
	server := a.connection(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		node, err := parseNodeID(args[0])
		if err != nil {
			return err
		}
		return server.with(func(c *kvd.Client) error {
			if err := c.RemoveNode(cmd.Context(), node); err != nil {
				return ofCluster(err)
			}
			_, err := fmt.Fprintf(a.out, "node %d is not in the cluster any more\n", node)
			return err
		})
	}
	return cmd
}

func (a *app) clusterMoveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "move NODE HOST:PORT",
		Short: "Change the address of a node for the other nodes",
		Long: "Change the address at which the other nodes reach a node, whether it runs or not. All nodes\n" +
			"connect to it there from then on. If it leads, another node leads first. Any node can be asked.\n\n" +
			"Stop the node, run the command, and start the node with --cluster-listen HOST:PORT; when it\n" +
			"has heard of its address from the others it notes it, and needs the flag no more. A node\n" +
			"that listens there already, as with --cluster-listen 0.0.0.0:7100, need not be stopped. Its\n" +
			"address for clients is that of --listen or --cluster-advertise when it starts.\n\n" +
			"The command is refused while too few of the other voters answer: if the node were not at the\n" +
			"new address, the cluster would stop. So a cluster of two needs a third node first.\n\n" + clusterExitCodes,
		Example: "  kvd cluster move 3 db9:7100 --addr db1:7070,db2:7070\n" +
			"  kvd serve --cluster --data /var/lib/kvd --cluster-listen db9:7100     # on the machine of node 3",
		Args: needs("NODE", "HOST:PORT"),
	}
	server := a.connection(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		node, err := parseNodeID(args[0])
		if err != nil {
			return err
		}
		if err := descriptor.CheckAddress(args[1]); err != nil {
			return usagef("%w", err)
		}
		return server.with(func(c *kvd.Client) error {
			if err := c.MoveNode(cmd.Context(), node, args[1]); err != nil {
				return ofCluster(err)
			}
			_, err := fmt.Fprintf(a.out, "node %d is at %s for the other nodes\n\nif it does not listen there yet: kvd serve --cluster --cluster-listen %s\n", node, args[1], args[1])
			return err
		})
	}
	return cmd
}

func parseNodeID(text string) (uint64, error) {
	node, err := strconv.ParseUint(text, 10, 64)
	if err != nil || node == 0 {
		return 0, usagef("%q is no id of a node; kvd cluster status prints them", text)
	}
	return node, nil
}

func (a *app) clusterJoinCommand() *cobra.Command {
	data, peer, replaces := "", "", uint64(0)
	cmd := &cobra.Command{
		Use:   "join",
		Short: "Add this machine to a cluster, as a new node",
		Long: "Add a node to a running cluster: run it on the machine of the new node. It asks the\n" +
			"cluster, at --addr, for an id, which no node had before, and makes the store of the node in a new\n" +
			"directory. Then start the node with kvd serve --cluster. It gets all data from the other\n" +
			"nodes, and votes when it has caught up; kvd cluster status shows how far it is.\n\n" +
			"With --replace the new node takes the place of another one, which is dead or to be\n" +
			"switched off: that one is removed at the moment when the new one votes.\n\n" +
			"If the nodes are on several machines, the new one needs a certificate whose only URI is\n" +
			"kvd-node:CLUSTER/NODE, with the id that this command prints.\n\n" +
			"If the command is interrupted, run it again: a node at the same address that was added\n" +
			"and never started makes room for the new one.\n\n" + clusterExitCodes,
		Example: "  kvd cluster join --data node4 --peer 127.0.0.1:7104 --addr 127.0.0.1:7001\n" +
			"  kvd cluster join --data /var/lib/kvd --peer db4:7100 --replace 3 --addr db1:7070,db2:7070",
		Args: noArguments,
	}
	server := a.connection(cmd)
	cmd.Flags().StringVar(&data, "data", "", "directory of the store, which is new or empty")
	cmd.Flags().StringVar(&peer, "peer", "", "address of this node for the other nodes: HOST:PORT")
	cmd.Flags().Uint64Var(&replaces, "replace", 0, "id of the node that the new one replaces")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if data == "" {
			return usagef("--data is empty; name the directory of this node")
		}
		if err := descriptor.CheckAddress(peer); err != nil {
			return usagef("--peer %w", err)
		}
		if err := checkNewNode(data); err != nil {
			return err
		}
		if names, err := vfs.OS.List(data); err == nil && len(names) > 0 && !slices.Equal(names, []string{"lost+found"}) {
			return usagef("--data %s is not empty; what an interrupted kvd cluster join has left there can be deleted", data)
		}
		return server.with(func(c *kvd.Client) error {
			added, err := c.AddNode(cmd.Context(), peer, replaces)
			if err != nil {
				return ofCluster(err)
			}
			incarnation, err := kv.ParseIncarnation(added.Incarnation)
			if err != nil {
				return err
			}
			node := descriptor.Node{Cluster: added.Cluster, Incarnation: incarnation, Node: added.ID, Members: added.Members}
			if err := daemon.JoinNode(vfs.OS, data, node, added.Partitions, added.First); err != nil {
				return fmt.Errorf("node %d was added to the cluster, but its store cannot be made; run the command again: %w", added.ID, named(err))
			}
			_, err = fmt.Fprintf(a.out, "node %d of cluster %016x is in %s\n\nthen: kvd serve --cluster --data %s\n", added.ID, added.Cluster, data, data)
			return err
		})
	}
	return cmd
}

// errOfCluster marks an error of a change of a cluster whose outcome is not known.
var errOfCluster = errors.New("the outcome of a change of a cluster is not known")

// ofCluster marks an error after which a change of the cluster may have been made.
func ofCluster(err error) error {
	if errors.Is(err, kvd.ErrUncertain) || errors.Is(err, context.DeadlineExceeded) {
		return clusterError{err}
	}
	return err
}

// clusterError has the text of the error, and is also errOfCluster.
type clusterError struct{ error }

func (e clusterError) Unwrap() []error { return []error{e.error, errOfCluster} }

// checkNewNode refuses a directory that is in use.
func checkNewNode(data string) error {
	foreign, err := descriptor.Foreign(vfs.OS, data)
	if err == nil && foreign != "" {
		return usagef("--data %s holds other files, such as %q; give a new directory", data, foreign)
	}
	return daemon.CheckNewNode(vfs.OS, data)
}
