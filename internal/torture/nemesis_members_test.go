package torture

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/testwait"
)

// exitExpelled is how kvd serve ends when its node was removed.
const exitExpelled = 77

// transfer lets other nodes lead, one after the other, as an operator does.
func (r *trial) transfer() {
	for range 3 {
		var to *node
		testwait.Until(r.t, func() bool { // a change of the configuration, or an election, may be under way
			to = r.follower()
			leader, err := r.operator.TransferLeadership(context.Background(), uint64(to.id))
			return err == nil && leader == uint64(to.id)
		}, "another node takes over")
		r.advance()
	}
}

var joined = regexp.MustCompile(`(?m)^node (\d+) of cluster`)

// join makes a node with the data of a new one, which is not started. It replaces another one,
// unless that is 0.
func (r *trial) join(n *node, replaces int) {
	r.t.Helper()
	n.door = newDoor(r.t)
	n.dir = filepath.Join(r.t.TempDir(), "node")
	var at []string
	for _, other := range r.all {
		if other.server != nil {
			at = append(at, *other.addr.Load())
		}
	}
	args := []string{"cluster", "join", "--data", n.dir, "--peer", n.door.addr(), "--addr", strings.Join(at, ",")}
	if replaces != 0 {
		args = append(args, "--replace", strconv.Itoa(replaces))
	}
	var out []byte
	testwait.Until(r.t, func() bool { // it is refused while a majority is silent, or the leader changes
		require.NoError(r.t, os.RemoveAll(n.dir))
		var err error
		out, err = exec.Command(kvdBinary, args...).CombinedOutput()
		if err != nil {
			r.t.Logf("kvd cluster join: %s", out)
		}
		return err == nil
	}, "the node is added")
	found := joined.FindSubmatch(out)
	require.NotNil(r.t, found, "%s", out)
	n.id, _ = strconv.Atoi(string(found[1])) // it has digits alone
}

// votes waits until a node does, and none that it replaces is left.
func (r *trial) votes(n *node) {
	r.t.Helper()
	testwait.Until(r.t, func() bool {
		c, err := r.operator.Cluster(context.Background())
		if err != nil {
			return false
		}
		for i := range c.Nodes {
			if c.Nodes[i].ID == uint64(n.id) {
				return c.Nodes[i].Voter && c.Nodes[i].Replaces == 0
			}
		}
		return false
	}, fmt.Sprintf("node %d votes", n.id))
}

// whileJoined lets a node join, waits until it votes, and removes it while it runs.
func (r *trial) whileJoined() {
	n := new(node)
	r.join(n, 0)
	r.guest = n
	r.start(n)
	r.votes(n)
	r.advance()
	testwait.Until(r.t, func() bool { return r.operator.RemoveNode(context.Background(), uint64(n.id)) == nil }, "the node is removed")
	var exit *exec.ExitError
	require.ErrorAs(r.t, n.server.cmd.Wait(), &exit)
	require.Equal(r.t, exitExpelled, exit.ExitCode(), "%s", n.server.log)
	r.note(n)
	r.guest = nil
	require.NoError(r.t, os.RemoveAll(n.dir))
}

// replace takes the data of a node away for ever, and lets a new node take its place.
func (r *trial) replace(n *node) {
	r.kill(n)
	require.NoError(r.t, os.RemoveAll(n.dir))
	r.advance()
	r.join(n, n.id)
	r.start(n)
	r.votes(n)
}
