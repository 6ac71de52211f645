package main

import (
	"path/filepath"
	"regexp"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/daemon"
	"github.com/kvd-db/kvd/internal/testrelay"
	"github.com/kvd-db/kvd/internal/testwait"
)

var nodeListens = regexp.MustCompile(`node of a cluster\s.*"listen": "([^"]+)"`)

// serveNode starts a node, which the others reach by a relay.
func serveNode(t *testing.T, dir string, r *testrelay.Relay) *process {
	p := serve(t, dir, "--cluster", "--cluster-listen", "127.0.0.1:0")
	testwait.Until(t, func() bool { return follow(r, p) })
	return p
}

// follow has the relay pass on to where a node listens now: it listens anew when it has received the
// data. It reports false if the node has not said where.
func follow(r *testrelay.Relay, p *process) bool {
	all := nodeListens.FindAllStringSubmatch(p.log.String(), -1)
	if len(all) == 0 {
		return false
	}
	r.To(all[len(all)-1][1])
	return true
}

// The store of a single node becomes the first node of a cluster, and another node joins it: both
// have what the store had.
func TestTheStoreOfASingleNodeBecomesACluster(t *testing.T) {
	first, second := filepath.Join(t.TempDir(), "1"), filepath.Join(t.TempDir(), "2")
	relays := []*testrelay.Relay{testrelay.New(t), testrelay.New(t)}
	p := serve(t, first)
	for _, key := range []string{"a", "b", "c"} {
		p.must("put", key, "value of "+key)
	}
	p.must("del", "b")
	p.must("put", "stays", "x", "--ttl", "24h")
	p.must("put", "goes", "x", "--ttl", "1ms")
	testwait.Until(t, func() bool { return p.kvd("get", "goes").code == exitNotFound })
	want := p.must("digest", p.addr)
	version := p.must("get", "c", "--version")
	initial := []string{"cluster", "init", "--data", first, "--from-existing", "--node", "1", "--members", "1=" + relays[0].Addr()}
	refused := func(code int, text string, env []string, args ...string) {
		t.Helper()
		r := command(t, "", env, args...)
		assert.Equal(t, code, r.code, r.err)
		assert.Contains(t, r.err, text)
	}
	refused(daemon.ExitLocked, "already locked", nil, initial...)
	require.Zero(t, p.end(syscall.SIGTERM))

	refused(daemon.ExitUsage, "--from-existing makes it the first node", nil, "cluster", "init", "--data", first, "--node", "1", "--members", "1=a:1")
	refused(daemon.ExitUsage, "with --from-existing it has node 1 alone", nil, append(initial, "--members", "2=a:1")...)
	refused(daemon.ExitUsage, "leave the flag out", nil, append(initial, "--partitions", "3")...)
	refused(daemon.ExitUsage, "remove the setting", []string{"KVD_ARCHIVE=" + t.TempDir()}, initial...)
	refused(daemon.ExitUsage, "no store is there", nil, "cluster", "init", "--data", second, "--from-existing", "--node", "1", "--members", "1=a:1")
	require.NoDirExists(t, second)
	require.Equal(t, want, command(t, "", nil, "digest", first).out)

	r := command(t, "", nil, initial...)
	require.Zero(t, r.code, r.err)
	require.Contains(t, r.out, ", with the data of the store")
	require.Contains(t, r.out, "kvd cluster join --data DIR")
	require.Zero(t, command(t, "", nil, "check", first).code)
	refused(daemon.ExitUsage, "already; start it with kvd serve --cluster", nil, initial...)

	nodes := []*process{serveNode(t, first, relays[0])}
	testwait.Until(t, func() bool { // once it leads
		return nodes[0].kvd("cluster", "join", "--data", second, "--peer", relays[1].Addr()).code == 0
	})
	nodes = append(nodes, serveNode(t, second, relays[1]))
	client := nodes[0].client()
	testwait.Until(t, func() bool {
		follow(relays[1], nodes[1])
		c, err := client.Cluster(t.Context())
		return err == nil && len(c.Nodes) == 2 && c.Nodes[0].Voter && c.Nodes[1].Voter
	})
	for _, n := range nodes {
		testwait.Until(t, func() bool { // again if the nodes elect in between, as after a pause
			return n.kvd("digest", n.addr).out == want && n.kvd("get", "c", "--version").out == version &&
				n.kvd("get", "stays").out == "x" && n.kvd("get", "goes").code == exitNotFound
		})
	}
}
