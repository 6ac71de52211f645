package torture

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/internal/torture/kvdbinary"
	"github.com/kvd-db/kvd/pkg/kvd"
)

// nodes are the processes of a cluster. Every pair of them has a link in each direction, for what
// the first one sends to the second one.
type nodes struct {
	t     *testing.T
	all   []*node
	guest *node    // that has joined for a while; nil: none
	flags []string // of kvd serve
	ended []string // logs of lives that are over
}

type node struct {
	id     int // from 1; another one when a new node has replaced it
	dir    string
	addr   atomic.Pointer[string] // of the newest life, for clients
	door   *door                  // for the other nodes
	server *server                // nil: not running
	paused bool
}

// makeNodes makes a cluster, whose nodes do not run yet.
func makeNodes(t *testing.T, size int, flags ...string) *nodes {
	t.Helper()
	c := &nodes{t: t, flags: flags}
	var members []string
	for id := 1; id <= size; id++ {
		c.all = append(c.all, &node{id: id, dir: filepath.Join(t.TempDir(), fmt.Sprintf("node%d", id)), door: newDoor(t)})
		members = append(members, fmt.Sprintf("%d=%s", id, c.all[id-1].door.addr()))
	}
	for _, n := range c.all {
		out, err := exec.Command(kvdBinary, "cluster", "init", "--data", n.dir, "--node", strconv.Itoa(n.id),
			"--cluster", "00000000000c1057", "--partitions", "2", "--members", strings.Join(members, ",")).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	t.Cleanup(c.keep)
	t.Cleanup(c.clear)
	return c
}

// keep copies what a failed test has left to the directory of its artifacts: the data of the nodes,
// and their logs.
func (c *nodes) keep() {
	if !c.t.Failed() {
		return
	}
	logs := c.ended
	for _, n := range c.all {
		if n.server != nil {
			logs = append(logs, n.server.log.String())
		}
		assert.NoError(c.t, os.CopyFS(filepath.Join(c.t.ArtifactDir(), fmt.Sprintf("node%d", n.id)), os.DirFS(n.dir)))
	}
	assert.NoError(c.t, os.WriteFile(filepath.Join(c.t.ArtifactDir(), "log"), []byte(strings.Join(logs, "\n")), 0o600))
}

// clear kills what a failed test has left running.
func (c *nodes) clear() {
	for _, n := range append(c.all, c.guest) {
		if n != nil && n.server != nil {
			_ = n.server.cmd.Process.Kill()
			_ = n.server.cmd.Wait()
		}
	}
}

var listensAt = regexp.MustCompile(`node of a cluster\s.*"listen": "([^"]+)"`)

// command returns the command that serves a node.
func (c *nodes) command(n *node) *exec.Cmd {
	return exec.Command(kvdBinary, kvdbinary.ServeArgs(n.dir, append([]string{"--cluster", "--cluster-listen", "127.0.0.1:0"}, c.flags...)...)...)
}

func (c *nodes) start(which ...*node) {
	c.t.Helper()
	for _, n := range which {
		s, err := kvdbinary.Serve(c.command(n))
		require.NoError(c.t, err)
		n.server = &server{addr: s.Addr, admin: s.Admin, cmd: s.Cmd, log: s.Log}
		n.addr.Store(&s.Addr)
		var listen string
		testwait.Until(c.t, func() bool {
			if found := listensAt.FindStringSubmatch(s.Log.String()); found != nil {
				listen = found[1]
			}
			return listen != ""
		}, "the node says where it listens")
		n.door.leadTo(listen)
	}
}

func (c *nodes) kill(which ...*node) {
	c.t.Helper()
	for _, n := range which {
		n.server.kill(c.t)
		c.note(n)
	}
}

// stop ends nodes as an operator would.
func (c *nodes) stop(which ...*node) {
	c.t.Helper()
	for _, n := range which {
		n.server.stop(c.t)
		c.note(n)
	}
}

func (c *nodes) note(n *node) {
	c.ended = append(c.ended, n.server.log.String())
	n.server, n.paused = nil, false
}

func (c *nodes) pause(n *node) {
	c.t.Helper()
	require.NoError(c.t, n.server.cmd.Process.Signal(syscall.SIGSTOP))
	n.paused = true
}

func (c *nodes) resume(n *node) {
	c.t.Helper()
	require.NoError(c.t, n.server.cmd.Process.Signal(syscall.SIGCONT))
	n.paused = false
}

// cut sets the links from one node to another, and back if both.
func (c *nodes) cut(from, to *node, both bool, s linkState) {
	to.door.link(from.id).set(s)
	if both {
		from.door.link(to.id).set(s)
	}
}

// isolate sets all links of a node.
func (c *nodes) isolate(n *node, s linkState) {
	for _, other := range c.all {
		if other != n {
			c.cut(n, other, true, s)
		}
	}
}

// heal makes all links carry.
func (c *nodes) heal() {
	for _, n := range c.all {
		for _, l := range n.door.all() {
			l.set(carries)
		}
	}
}

// others returns the nodes but one.
func (c *nodes) others(n *node) []*node {
	var others []*node
	for _, other := range c.all {
		if other != n {
			others = append(others, other)
		}
	}
	return others
}

// leader waits until a node that runs says that it leads, and returns it. Two may say so: one of
// them was cut off, and does not know yet. The newer term counts.
func (c *nodes) leader() *node {
	c.t.Helper()
	var leader *node
	testwait.Until(c.t, func() bool {
		newest := 0
		for _, n := range c.all {
			if n.server == nil || n.paused {
				continue
			}
			if term := leadsInTerm(n.server.admin); term > newest {
				leader, newest = n, term
			}
		}
		return newest > 0
	}, "a node leads")
	return leader
}

var leadsIn = regexp.MustCompile(`this node leads in term (\d+)`)

// leadsInTerm returns the term in which the node at an admin address leads, 0 if it does not.
func leadsInTerm(admin string) int {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	r, err := client.Get("http://" + admin + "/readyz?verbose")
	if err != nil {
		return 0
	}
	defer func() { _ = r.Body.Close() }()
	page, err := io.ReadAll(r.Body)
	if found := leadsIn.FindSubmatch(page); err == nil && found != nil {
		term, _ := strconv.Atoi(string(found[1])) // it has digits alone
		return term
	}
	return 0
}

// open returns a client of the nodes, the first of which it tries first. It reaches a node wherever
// that listens in its present life.
func (c *nodes) open(t *testing.T, which []*node, opts ...kvd.Option) *kvd.Client {
	t.Helper()
	var names []string
	named := map[string]*node{}
	for _, n := range which {
		name := fmt.Sprintf("node%d:1", n.id)
		names, named[name] = append(names, name), n
	}
	dial := func(ctx context.Context, address string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", *named[address].addr.Load())
	}
	db, err := kvd.Open(strings.Join(names, ","), append([]kvd.Option{kvd.WithDialer(dial)}, opts...)...)
	require.NoError(t, err)
	return db
}

var elected = regexp.MustCompile(`leader of the cluster\s.*"node": (\d+), "term": (\d+), "this": true`)

// terms returns in how many terms a node led, and knew it for a tick or longer.
func (c *nodes) terms() int {
	led := map[string]bool{}
	logs := slices.Clone(c.ended)
	for _, n := range c.all {
		if n.server != nil {
			logs = append(logs, n.server.log.String())
		}
	}
	for _, log := range logs {
		for _, found := range elected.FindAllStringSubmatch(log, -1) {
			led[found[2]] = true
		}
	}
	return len(led)
}
