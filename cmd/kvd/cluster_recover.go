package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/internal/daemon"
	"github.com/kvd-db/kvd/internal/descriptor"
	"github.com/kvd-db/kvd/internal/replica"
	"github.com/kvd-db/kvd/internal/vfs"
)

func (a *app) clusterRecoverCommand() *cobra.Command {
	data, unsafe, yes := "", false, false
	cmd := &cobra.Command{
		Use:   "recover",
		Short: "Make one node the whole cluster, after a majority was lost for ever",
		Long: "Make a stopped node the only one of its cluster, after the disks of a majority of the nodes\n" +
			"were lost for ever. This can lose writes that were acknowledged: those that are not on this\n" +
			"node. As long as a majority may come back, start those nodes instead.\n\n" +
			"Without --yes the command changes nothing, and prints what it would do, and the newest\n" +
			"entry of the log of this node. Run it on all nodes that are left, and recover the one with\n" +
			"the highest term, and among those the highest entry. Never start the others again: make\n" +
			"them new nodes, with empty directories (kvd cluster join).\n\n" +
			"The recovered cluster has a new incarnation: a number, and a random id. Nodes of another\n" +
			"incarnation do not talk to it, and a client that knows another one is refused: start the\n" +
			"clients again. So if two nodes are recovered by mistake, which is two clusters with the\n" +
			"same id, no client writes to both; kvd cluster status prints the incarnation of a node.\n\n" +
			"Exit codes: 0 done, or nothing was to be done; 64 the arguments do not fit, or --yes is\n" +
			"missing; 65 the data is damaged; 74 the disk failed; 75 a process uses the store.",
		Example: "  kvd cluster recover --unsafe --data /var/lib/kvd\n" +
			"  kvd cluster recover --unsafe --data /var/lib/kvd --yes",
		Args: noArguments,
	}
	cmd.Flags().StringVar(&data, "data", "", "data directory of the node, which is stopped")
	cmd.Flags().BoolVar(&unsafe, "unsafe", false, "required: the recovery can lose acknowledged writes")
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	cmd.RunE = func(*cobra.Command, []string) error {
		switch {
		case data == "":
			return usagef("--data is empty; name the directory of the node")
		case !unsafe:
			return usagef("a recovery can lose acknowledged writes; add --unsafe to see what it would do")
		}
		return a.clusterRecover(data, yes)
	}
	return cmd
}

func (a *app) clusterRecover(data string, yes bool) error {
	var node descriptor.Node
	var plan *replica.Recovery
	err := daemon.RecoverNode(vfs.OS, data, func(n descriptor.Node, p *replica.Recovery) bool {
		node, plan = n, p
		writeRecovery(a.out, &n, p)
		return yes
	})
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return usagef("--data %s is no node of a cluster", data)
	case err != nil:
		return err
	case plan.Unfinished && !yes:
		return usagef("nothing was changed; add --yes to finish the change that makes node %d the only one of cluster %016x", node.Node, node.Cluster)
	case len(plan.Others) == 0:
		_, err = fmt.Fprintf(a.out, "start it: kvd serve --cluster --data %s\n", data)
	case !yes:
		return usagef("nothing was changed; add --yes to take %s out of cluster %016x", nodesOf(plan.Others), node.Cluster)
	default:
		_, err = fmt.Fprintf(a.out, "done. The cluster is of incarnation %s. Start it: kvd serve --cluster --data %s; then add nodes: kvd cluster join\n", node.Incarnation, data)
	}
	return err
}

// writeRecovery prints what a recovery is about to do, and what it may lose.
func writeRecovery(w io.Writer, n *descriptor.Node, p *replica.Recovery) {
	fmt.Fprintf(w, "node %d of cluster %016x: the newest entry of its log is %d, of term %d\n", n.Node, n.Cluster, p.Last, p.Term)
	if p.Unfinished {
		fmt.Fprintln(w, "the changes that make it the only node are in its log, and do not count as committed yet: a recovery was interrupted")
		return
	}
	if len(p.Others) == 0 {
		fmt.Fprintln(w, "it is the only node of the cluster already")
		return
	}
	fmt.Fprintf(w, "it becomes the only node; taken out for ever: %s\n", nodesOf(p.Others))
	fmt.Fprintf(w, "the cluster gets a new incarnation, number %d: nodes and clients that know another one are refused, so start the clients again\n", n.Incarnation.Recoveries)
	fmt.Fprintf(w, "lost: what was acknowledged and is in no entry up to %d\n", p.Last)
	if p.Committed < p.Last {
		fmt.Fprintf(w, "entries %d to %d, which may not have been committed, count as that: their writes happen now, if they have not before\n", p.Committed+1, p.Last)
	}
}

func nodesOf(ids []uint64) string {
	text := "nodes "
	if len(ids) == 1 {
		text = "node "
	}
	for i, id := range ids {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprint(id)
	}
	return text
}
