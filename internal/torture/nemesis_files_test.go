package torture

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/torture/kvdbinary"
)

// exitUsage is how kvd serve ends when it is called for a directory that it must not serve.
const exitUsage = 64

// refused starts a node that must not start, and returns what it says.
func (c *nodes) refused(n *node, code int) string {
	c.t.Helper()
	s, err := kvdbinary.Serve(c.command(n))
	if err == nil {
		n.server = &server{cmd: s.Cmd, log: s.Log} // which clear kills
	}
	var exit *exec.ExitError
	require.ErrorAs(c.t, err, &exit, "node %d serves", n.id)
	require.Equal(c.t, code, exit.ExitCode(), "%s", s.Log)
	return errorOf(s.Log.String())
}

// whileWiped takes the data of a node away. The node does not start without: it would vote a second
// time in a term.
func (r *trial) whileWiped(n *node) {
	r.kill(n)
	require.NoError(r.t, os.Rename(n.dir, n.dir+".away"))
	assert.Contains(r.t, r.refused(n, exitUsage), "must not take part under its old id")
	r.advance()
	require.NoError(r.t, os.RemoveAll(n.dir))
	require.NoError(r.t, os.Rename(n.dir+".away", n.dir))
	r.start(n)
}

// whileFlipped flips a bit of what a node has acknowledged. The node does not start: it would
// vote without it.
func (r *trial) whileFlipped(n *node) {
	r.kill(n)
	segments, err := filepath.Glob(filepath.Join(n.dir, "wal", "*.raft"))
	require.NoError(r.t, err)
	file := slices.MaxFunc(segments, func(a, b string) int { return int(size(r, a) - size(r, b)) })
	flip := flipAt(0.25)
	flip(r.t, file)
	assert.Contains(r.t, r.refused(n, exitDamaged), filepath.Base(file))
	r.advance()
	flip(r.t, file)
	r.start(n)
}

func size(r *trial, file string) int64 {
	info, err := os.Stat(file)
	require.NoError(r.t, err)
	return info.Size()
}
