package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/kvd-db/kvd/pkg/kvd"
)

func (a *app) clusterStatusCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Print the nodes of a cluster, and what to do if something is wrong",
		Long: "Print the nodes of a cluster, as any of them tells it, and below the table what to do if\n" +
			"something is wrong.\n\n" +
			"  role     leader, voter, or learner: a learner gets the data, does not vote yet, and\n" +
			"           becomes a voter by itself when it has caught up\n" +
			"  applied  the index of the log up to which the store of the node is; in brackets: the node\n" +
			"           does not answer, and the leader knows that it has the log up to there\n" +
			"  lag      how many entries of the log it lacks\n" +
			"  heard    when the leader heard of it last\n" +
			"  streams  the connections between it and the leader\n\n" +
			"If the server has identities, the command needs an administrator. With --json it prints\n" +
			"one object, whose advice is what the lines below the table say.\n\n" +
			"Exit codes: 0 the node that was asked has answered, whatever it says; 5 it cannot be\n" +
			"reached; 7 not signed in or not allowed; 64 it is no node of a cluster.",
		Example: "  kvd cluster status --addr db1:7070\n" +
			"  kvd cluster status --json | jq '.nodes[] | select(.lag > 1000)'",
		Args: noArguments,
	}
	server := a.connection(cmd)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return server.with(func(c *kvd.Client) error {
			cluster, err := c.Cluster(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return writeClusterJSON(a.out, &cluster)
			}
			return writeClusterTable(a.out, &cluster)
		})
	}
	return cmd
}

func writeClusterTable(w io.Writer, c *kvd.Cluster) error {
	leader := "no node leads"
	if c.Leader != 0 {
		leader = fmt.Sprintf("node %d leads in term %d", c.Leader, c.Term)
	}
	fmt.Fprintf(w, "cluster %016x%s: %s; asked node %d\n", c.ID, recoveredText(c), leader, c.Node)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "node\tclients\tpeers\trole\tapplied\tlag\theard\tstreams\tversion")
	for i := range c.Nodes {
		n := &c.Nodes[i]
		applied := fmt.Sprint(n.Applied)
		if !n.Answers {
			applied = "(" + applied + ")"
		}
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%d\t%s\t%s\t%s\n", n.ID, dash(n.Client), dash(n.Peer), roleOfNode(c, n),
			applied, n.Lag, spellSilence(n.Silent), streamsOf(c, n), dash(n.Version))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s\n", strings.Join(clusterAdvice(c), "\n"))
	return err
}

// recoveredText tells the incarnation of a cluster that was recovered from a lost majority.
func recoveredText(c *kvd.Cluster) string {
	if c.Incarnation == "0" || c.Incarnation == "" { // an older server tells none
		return ""
	}
	return ", incarnation " + c.Incarnation
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func roleOfNode(c *kvd.Cluster, n *kvd.ClusterNode) string {
	switch {
	case n.ID == c.Leader:
		return "leader"
	case n.Voter:
		return "voter"
	case n.Replaces != 0:
		return fmt.Sprintf("learner for %d", n.Replaces)
	}
	return "learner"
}

// streamsOf returns the state of the streams of a node in a word; clusterAdvice has the reason.
func streamsOf(c *kvd.Cluster, n *kvd.ClusterNode) string {
	switch {
	case n.ID == c.Leader || c.Leader == 0 && n.ID == c.Node:
		return "-"
	case n.Streams == "":
		return "ok"
	}
	return "down"
}

// spellSilence returns when a node was heard last.
func spellSilence(d time.Duration) string {
	switch {
	case d < 0:
		return "unknown"
	case d < time.Second:
		return "now"
	}
	return d.Truncate(time.Second).String() + " ago"
}

// clusterAdvice returns what is wrong with a cluster and what to do, or that nothing is.
func clusterAdvice(c *kvd.Cluster) (lines []string) {
	voters, up := 0, 0
	for i := range c.Nodes {
		n := &c.Nodes[i]
		if n.Voter {
			voters++
			if n.Answers {
				up++
			}
		}
		if line := adviceOnNode(c, n); line != "" {
			lines = append(lines, line)
		}
	}
	majority := voters/2 + 1
	switch {
	case c.Leader == 0 && up < majority:
		lines = append(lines, fmt.Sprintf("no node leads: %d of %d voters answer, and %d are needed; the cluster answers no requests until then", up, voters, majority))
	case c.Leader == 0:
		lines = append(lines, "no node leads, although enough voters answer: ask again in a few seconds; if it stays so, look at their logs")
	case len(lines) == 0 && voters < 3:
		lines = append(lines, "all is well, but if one node fails, the cluster stops: add nodes until it has three (kvd cluster join)")
	case len(lines) == 0:
		lines = append(lines, fmt.Sprintf("all is well: %d of %d voters may fail", voters-majority, voters))
	case up == majority:
		lines = append(lines, "if one more voter fails, the cluster stops")
	}
	if recoveredText(c) != "" {
		lines = append(lines, fmt.Sprintf("the cluster was recovered from a lost majority, and is incarnation %s of it: a node that tells another incarnation belongs to another cluster, with other data", c.Incarnation))
	}
	return lines
}

// adviceOnNode returns what is wrong with a node, empty if nothing is.
func adviceOnNode(c *kvd.Cluster, n *kvd.ClusterNode) string {
	why := ""
	if n.Streams != "" {
		why = " (" + n.Streams + ")"
	}
	follows := slices.ContainsFunc(c.Nodes, func(other kvd.ClusterNode) bool { return other.Replaces == n.ID })
	switch {
	case !n.Answers && c.Leader == 0 && n.Voter:
		return fmt.Sprintf("node %d does not answer%s: start it", n.ID, why)
	case !n.Answers && !n.Voter && !n.Started:
		return fmt.Sprintf("node %d was added and never started%s: start kvd serve --cluster there, or take it out: kvd cluster remove %d", n.ID, why, n.ID)
	case !n.Answers && follows:
		return fmt.Sprintf("node %d does not answer%s: it is removed when the node that replaces it has caught up", n.ID, why)
	case !n.Answers:
		return fmt.Sprintf("node %d does not answer%s: start it, or replace it, on a new machine: kvd cluster join --replace %d --data DIR --peer HOST:PORT; or take it out: kvd cluster remove %d; if it is not at %s any more: kvd cluster move %d HOST:PORT", n.ID, why, n.ID, n.ID, dash(n.Peer), n.ID)
	case n.NeedsCheckpoint:
		return fmt.Sprintf("node %d lacks entries that the others have given up, and gets a copy of the store", n.ID)
	case !n.Voter:
		return fmt.Sprintf("node %d gets the data, and becomes a voter by itself", n.ID)
	case n.Streams != "" && c.Leader != 0:
		return fmt.Sprintf("node %d answers, but not to the leader%s: look at the network between them, and at their certificates", n.ID, why)
	}
	return ""
}

// clusterJSON is the JSON form of a cluster.
type clusterJSON struct {
	Cluster     string            `json:"cluster"`
	Incarnation string            `json:"incarnation"` // 0: it was never recovered from a lost majority
	Node        uint64            `json:"asked_node"`
	Leader      uint64            `json:"leader"`
	Term        uint64            `json:"term"`
	Committed   uint64            `json:"committed"`
	Nodes       []clusterNodeJSON `json:"nodes"`
	Advice      []string          `json:"advice"`
}

type clusterNodeJSON struct {
	Node            uint64   `json:"node"`
	Client          string   `json:"client_address"`
	Peer            string   `json:"peer_address"`
	Role            string   `json:"role"` // leader, voter or learner
	Answers         bool     `json:"answers"`
	Version         string   `json:"version"`
	Applied         uint64   `json:"applied"`
	Lag             uint64   `json:"lag"`
	HeardSeconds    *float64 `json:"heard_seconds"` // null: not known
	Streams         string   `json:"streams"`       // empty: they work
	NeedsCheckpoint bool     `json:"needs_checkpoint"`
	Started         bool     `json:"started"`
	Replaces        uint64   `json:"replaces"`
}

func writeClusterJSON(w io.Writer, c *kvd.Cluster) error {
	out := clusterJSON{
		Cluster: fmt.Sprintf("%016x", c.ID), Incarnation: c.Incarnation, Node: c.Node, Leader: c.Leader, Term: c.Term, Committed: c.Committed, Advice: clusterAdvice(c),
	}
	for i := range c.Nodes {
		n := &c.Nodes[i]
		role, _, _ := strings.Cut(roleOfNode(c, n), " ")
		j := clusterNodeJSON{
			Node: n.ID, Client: n.Client, Peer: n.Peer, Role: role, Answers: n.Answers, Version: n.Version, Applied: n.Applied, Lag: n.Lag,
			Streams: n.Streams, NeedsCheckpoint: n.NeedsCheckpoint, Started: n.Started, Replaces: n.Replaces,
		}
		if n.Silent >= 0 {
			j.HeardSeconds = new(n.Silent.Seconds())
		}
		out.Nodes = append(out.Nodes, j)
	}
	return writeJSON(w, out)
}
