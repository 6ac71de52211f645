package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/pkg/kvd"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// sampleCluster has nodes in all states.
func sampleCluster() *kvd.Cluster {
	return &kvd.Cluster{ID: 0x123, Incarnation: "1-00c0ffee00c0ffee", Node: 2, Leader: 1, Term: 7, Committed: 1000, Nodes: []kvd.ClusterNode{
		{ID: 1, Client: "db1:7070", Peer: "db1:7100", Voter: true, Answers: true, Version: "v1.2.3", Applied: 1000, Started: true},
		{ID: 2, Client: "db2:7070", Peer: "db2:7100", Voter: true, Answers: true, Version: "v1.2.3", Applied: 990, Lag: 10, Started: true, Silent: 80 * time.Millisecond},
		{ID: 3, Client: "db3:7070", Peer: "db3:7100", Voter: true, Applied: 400, Lag: 600, Started: true, Silent: 95 * time.Second, Streams: "connection refused"},
		{ID: 4, Peer: "db4:7100", Lag: 1000, Silent: -1, Streams: "connection refused"},
		{ID: 5, Client: "db5:7070", Peer: "db5:7100", Answers: true, Version: "v1.2.3", Applied: 1, Lag: 999, Started: true, NeedsCheckpoint: true, Replaces: 3},
		{ID: 6, Client: "db6:7070", Peer: "db6:7100", Answers: true, Version: "v1.2.3", Applied: 700, Lag: 300, Started: true},
		{ID: 7, Client: "db7:7070", Peer: "db7:7100", Voter: true, Answers: true, Version: "v1.2.3", Applied: 900, Lag: 100, Started: true, Silent: 12 * time.Second, Streams: "connection reset"},
	}}
}

func TestTheStatusOfAClusterLooksAsItShould(t *testing.T) {
	for name, write := range map[string]func(w *strings.Builder) error{
		"cluster_status.txt":  func(w *strings.Builder) error { return writeClusterTable(w, sampleCluster()) },
		"cluster_status.json": func(w *strings.Builder) error { return writeClusterJSON(w, sampleCluster()) },
	} {
		var out strings.Builder
		require.NoError(t, write(&out))
		want, err := os.ReadFile(filepath.Join("testdata", name))
		require.NoError(t, err)
		assert.Equal(t, string(want), out.String(), name)
	}
}

func TestAdviceOnACluster(t *testing.T) {
	node := func(id uint64, voter, answers bool) kvd.ClusterNode {
		return kvd.ClusterNode{ID: id, Voter: voter, Answers: answers, Started: true}
	}
	for _, test := range []struct {
		leader uint64
		nodes  []kvd.ClusterNode
		want   string
	}{
		{1, []kvd.ClusterNode{node(1, true, true), node(2, true, true), node(3, true, true)}, "all is well: 1 of 3 voters may fail"},
		{1, []kvd.ClusterNode{node(1, true, true)}, "all is well, but if one node fails, the cluster stops: add nodes"},
		{0, []kvd.ClusterNode{node(1, true, true), node(2, true, true), node(3, true, true)}, "no node leads, although enough voters answer"},
		{0, []kvd.ClusterNode{node(1, true, true), node(2, true, false), node(3, true, false)}, "no node leads: 1 of 3 voters answer, and 2 are needed"},
		{1, []kvd.ClusterNode{node(1, true, true), node(2, true, true), node(3, true, false)}, "node 3 does not answer: start it, or replace it, on a new machine: kvd cluster join --replace 3"},
		{1, []kvd.ClusterNode{node(1, true, true), node(2, true, true), node(3, false, true)}, "node 3 gets the data, and becomes a voter by itself"},
		{1, []kvd.ClusterNode{node(1, true, true), node(2, true, true), node(3, true, false), {ID: 4, Answers: true, Replaces: 3}}, "it is removed when the node that replaces it"},
	} {
		advice := strings.Join(clusterAdvice(&kvd.Cluster{Leader: test.leader, Node: 1, Nodes: test.nodes}), "\n")
		assert.Contains(t, advice, test.want)
	}
}

// A command that was given the address of a node that does not lead says how to find the one that does.
func TestACommandForANodeThatDoesNotLead(t *testing.T) {
	refused := &kvd.Error{Op: "put", Reason: kvdpb.ReasonNotLeader, Err: kvd.ErrReadOnly}
	assert.Equal(t, exitUnavailable, exitCode(refused))
	assert.Contains(t, explain(refused), "the addresses of all nodes in --addr")
	assert.Contains(t, explain(ofCluster(fmt.Errorf("%w: %w", context.DeadlineExceeded, refused))), "whether the change was made")
	refused.Reason = kvdpb.ReasonReadOnly
	assert.Contains(t, explain(refused), "/readyz?verbose")
}

func TestClusterCommandsRefuseBadInput(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "letter"), nil, 0o600))
	for want, line := range map[string]string{
		"kvd cluster remove needs NODE":        "remove",
		`"x" is no id of a node`:               "remove x",
		`"0" is no id of a node`:               "remove 0",
		"--data is empty":                      "join --peer 127.0.0.1:1",
		`--peer "" is no address`:              "join --data x",
		`--peer "here" is no address`:          "join --data x --peer here",
		`its port is "http"`:                   "join --data x --peer 127.0.0.1:http",
		"it has no host":                       "join --data x --peer :7100",
		"kvd cluster move needs NODE":          "move",
		`"y" is no id of a node`:               "move y 127.0.0.1:1",
		`"there" is no address`:                "move 1 there",
		`":7100" is no address`:                "move 1 :7100",
		"holds other files":                    "join --peer 127.0.0.1:1 --data " + dir,
		`invalid argument "x" for "--to" flag`: "transfer --to x",
		"takes no arguments":                   "status 1",
		"add --unsafe to see":                  "recover --data x",
		"name the directory of the node":       "recover --unsafe",
		"is no node of a cluster":              "recover --unsafe --data " + dir,
	} {
		r := command(t, "", nil, append([]string{"cluster"}, strings.Fields(line)...)...)
		assert.Equal(t, 64, r.code, line)
		assert.Contains(t, r.err, want, line)
	}
	p := serve(t, t.TempDir(), "--dev")
	for _, line := range []string{"status", "status --json", "transfer", "remove 1", "move 1 127.0.0.1:1", "join --peer 127.0.0.1:1 --data " + filepath.Join(dir, "new")} {
		r := p.kvd(append([]string{"cluster"}, strings.Fields(line)...)...)
		assert.Equal(t, 64, r.code, line)
		assert.Contains(t, r.err, "this server is a single node, and no member of a cluster", line)
	}
	assert.NoDirExists(t, filepath.Join(dir, "new"))
}

func TestARecoveryIsShownAndAskedFor(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "node")
	members := "1=127.0.0.1:7101,2=127.0.0.1:7102,3=127.0.0.1:7103"
	r := command(t, "", nil, "cluster", "init", "--data", dir, "--node", "1", "--members", members, "--partitions", "1", "--cluster", "0123456789abcdef")
	require.Zero(t, r.code, r.err)
	r = command(t, "", nil, "cluster", "recover", "--unsafe", "--data", dir)
	assert.Equal(t, 64, r.code)
	assert.Equal(t, "node 1 of cluster 0123456789abcdef: the newest entry of its log is 1, of term 1\n"+
		"it becomes the only node; taken out for ever: nodes 2, 3\n"+
		"the cluster gets a new incarnation, number 1: nodes and clients that know another one are refused, so start the clients again\nlost: what was acknowledged and is in no entry up to 1\n", r.out)
	assert.Contains(t, r.err, "nothing was changed; add --yes to take nodes 2, 3 out of cluster 0123456789abcdef")
	r = command(t, "", nil, "cluster", "recover", "--unsafe", "--data", dir, "--yes")
	assert.Zero(t, r.code, r.err)
	assert.Regexp(t, `done\. The cluster is of incarnation 1-[0-9a-f]{16}\. Start it: kvd serve --cluster --data `+regexp.QuoteMeta(dir), r.out)
	r = command(t, "", nil, "cluster", "recover", "--unsafe", "--data", dir, "--yes")
	assert.Zero(t, r.code, r.err)
	assert.Contains(t, r.out, "it is the only node of the cluster already")
}
