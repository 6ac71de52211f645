package torture

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/vfs"
)

// lowDisk is the free space below which a node refuses puts, so that one with a small file system
// takes them.
const lowDisk = "16MiB"

// exitIO is how kvd serve ends when its disk fails.
const exitIO = 74

// smallDisk is the directory of a small file system for one node, which the test may fill; empty:
// there is none. scripts/nemesis.sh makes one.
func smallDisk() string { return os.Getenv("NEMESIS_DISK") }

// whileFull fills the disk of the node that has a small one. The others go on. The node hands the
// leadership over, and may end when its log cannot be written; once there is space it starts again
// with all that it has acknowledged.
func (r *trial) whileFull() {
	n := r.onSmallDisk()
	hog, rest := filepath.Join(smallDisk(), "hog"), filepath.Join(smallDisk(), "hog-rest")
	space, err := vfs.OS.Usage(smallDisk())
	require.NoError(r.t, err)
	if most := int64(space.Free) - 8<<20; most > 0 { // reserved and not written, which would take long
		out, err := exec.Command("fallocate", "-l", fmt.Sprint(most), hog).CombinedOutput()
		require.NoError(r.t, err, "%s", out)
	}
	hogFile(r.t, rest)
	r.advance()
	r.advance()
	for _, file := range []string{hog, rest} {
		require.NoError(r.t, os.RemoveAll(file))
	}
	require.NoError(r.t, n.server.cmd.Process.Kill()) // it may have ended
	var exit *exec.ExitError
	require.ErrorAs(r.t, n.server.cmd.Wait(), &exit)
	if code := exit.ExitCode(); code >= 0 {
		require.Equal(r.t, exitIO, code, "%s", n.server.log)
		r.done["(node that ended because its disk was full)"]++
	}
	r.note(n)
	r.start(n)
}

// onSmallDisk returns the node that has the small file system. The first time it moves one there.
func (r *trial) onSmallDisk() *node {
	for _, n := range r.all {
		if filepath.Dir(n.dir) == smallDisk() {
			return n
		}
	}
	n := r.follower()
	r.kill(n)
	dir := filepath.Join(smallDisk(), "node")
	require.NoError(r.t, os.RemoveAll(dir))
	require.NoError(r.t, os.CopyFS(dir, os.DirFS(n.dir)))
	require.NoError(r.t, os.RemoveAll(n.dir))
	n.dir = dir
	r.start(n)
	r.advance()
	return n
}
