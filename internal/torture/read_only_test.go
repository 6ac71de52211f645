package torture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/pkg/kvd"
)

// loopDisk is an ext4 file system of its own for a test, which may do with it what it
// likes.
type loopDisk struct {
	t          *testing.T
	image, dir string
	mounted    bool
}

func newLoopDisk(t *testing.T) *loopDisk {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: only root may mount a file system")
	}
	for _, tool := range []string{"mkfs.ext4", "mount", "umount"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("SKIPPED: %s is missing", tool)
		}
	}
	d := &loopDisk{t: t, image: filepath.Join(t.TempDir(), "image"), dir: t.TempDir()}
	require.NoError(t, os.WriteFile(d.image, nil, 0o600))
	require.NoError(t, os.Truncate(d.image, 128<<20))
	out, err := exec.Command("mkfs.ext4", "-q", d.image).CombinedOutput()
	require.NoError(t, err, "%s", out)
	if out, err := exec.Command("mount", "-o", "loop", d.image, d.dir).CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: loop images cannot be mounted here: %v: %s", err, out)
	}
	d.mounted = true
	t.Cleanup(func() {
		if d.mounted {
			d.unmount()
		}
	})
	return d
}

func (d *loopDisk) command(name string, args ...string) {
	d.t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	require.NoError(d.t, err, "%s %v: %s", name, args, out)
}

func (d *loopDisk) remount(options string) {
	d.t.Helper()
	d.command("mount", "-o", "remount,"+options, d.dir)
}

func (d *loopDisk) unmount() {
	d.t.Helper()
	d.command("umount", d.dir)
	d.mounted = false
}

func (d *loopDisk) mount() {
	d.t.Helper()
	d.command("mount", "-o", "loop", d.image, d.dir)
	d.mounted = true
}

// serve starts a server on the disk, which is dead before the disk is unmounted.
func (d *loopDisk) serve() *server {
	d.t.Helper()
	s := serve(d.t, d.data(), "--partitions", "4", "--low-disk", "4MiB", "--memory", "64MiB")
	d.t.Cleanup(func() {
		if s.cmd.ProcessState == nil { // the test has failed
			d.t.Log(s.log)
			s.kill(d.t)
		}
	})
	return s
}

func (d *loopDisk) data() string { return filepath.Join(d.dir, "store") }

// kvdCommand runs a command of the binary and returns what it prints.
func kvdCommand(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.Command(kvdBinary, args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
}

// mustKvd is kvdCommand of a command that succeeds.
func mustKvd(t *testing.T, args ...string) string {
	t.Helper()
	out, errOut, code := kvdCommand(t, args...)
	require.Zero(t, code, "kvd %v: %s", args, errOut)
	return out
}

// requireServedReadOnly expects that the server answers every kind of read, and says to
// writes, and to operators, what is the matter.
func requireServedReadOnly(t *testing.T, s *server, advice string) (digest, export string) {
	t.Helper()
	told := func() int { // since the store was opened last
		log := s.log.String()
		return strings.Count(log[max(0, strings.LastIndex(log, "kvd starts")):], "puts and deletes are refused")
	}
	testwait.Until(t, func() bool { return told() > 0 })
	addr := "--addr=" + s.addr
	digest, export = mustKvd(t, "digest", s.addr), mustKvd(t, "export", addr)
	require.Equal(t, "Ada", strings.TrimSpace(mustKvd(t, "get", addr, "user/1")))
	require.Contains(t, mustKvd(t, "scan", addr, "--prefix", "user/"), "Ada")
	for _, args := range [][]string{{"put", addr, "user/1", "Eve"}, {"del", addr, "user/1"}, {"health", addr}} {
		_, errOut, code := kvdCommand(t, args...)
		require.Equal(t, 5, code, "kvd %v: %s", args, errOut)
		require.Contains(t, errOut, "the file system of the data directory", "kvd %v", args)
		require.Contains(t, errOut, advice, "kvd %v", args)
	}
	require.Equal(t, http.StatusServiceUnavailable, page(t, s, "/readyz"))
	require.Equal(t, http.StatusOK, page(t, s, "/livez"))
	require.Equal(t, 1, told(), "told once")
	return digest, export
}

// fillReadOnly puts what the tests of a read-only disk look for.
func fillReadOnly(t *testing.T, s *server) {
	t.Helper()
	db, err := kvd.Open(s.addr, kvd.WithTimeout(testwait.Left()))
	require.NoError(t, err)
	ctx := context.Background()
	require.NoError(t, db.Put(ctx, []byte("user/1"), []byte("Ada")))
	require.NoError(t, db.Put(ctx, []byte("lease"), []byte("held"), kvd.TTL(time.Hour)))
	for i := range 300 {
		require.NoError(t, db.Put(ctx, fmt.Appendf(nil, "key/%d", i), bytes.Repeat([]byte("v"), i*10), kvd.Durable(kvd.Buffered)))
	}
	require.NoError(t, db.Close())
}

const (
	adviceRestart = "mount it read-write, then restart the server"
	adviceResume  = "mount it read-write; writes then resume by themselves"
)

// TestAReadOnlyMountIsServed starts the server on a disk that is mounted read-only, after
// an orderly stop and after kill -9 under load. Nothing acknowledged is missing, and the
// commands for stopped stores agree with the server.
func TestAReadOnlyMountIsServed(t *testing.T) {
	disk := newLoopDisk(t)
	s := disk.serve()
	fillReadOnly(t, s)
	before := mustKvd(t, "digest", s.addr)
	s.stop(t)
	var c *counters
	for _, kill := range []bool{false, true} {
		if kill {
			disk.remount("rw")
			s = disk.serve()
			c = startCounters(t, s.addr, 4, kvd.Buffered)
			c.grow(2000)
			s.kill(t)
			c.cancel()
			c.end()
		}
		disk.remount("ro")
		for range 2 {
			s = disk.serve()
			digest, export := requireServedReadOnly(t, s, adviceRestart)
			if kill {
				c.check(t, s.addr)
			} else {
				require.Equal(t, before, digest)
			}
			require.Contains(t, export, `{"key":"lease","value":"held","ttl_ms":`)
			require.Equal(t, digest, mustKvd(t, "digest", disk.data()), "others may read beside the server")
			mustKvd(t, "check", disk.data())
			s.stop(t)
			require.Equal(t, digest, mustKvd(t, "digest", disk.data()))
		}
	}
	disk.remount("rw")
	s = disk.serve()
	c.check(t, s.addr)
	mustKvd(t, "put", "--addr="+s.addr, "user/1", "Eve")
	s.stop(t)
}

// lastWritten returns when a file of a directory was written last.
func lastWritten(t *testing.T, dir ...string) (last time.Time) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir...))
	require.NoError(t, err)
	for _, entry := range entries {
		info, err := entry.Info()
		require.NoError(t, err)
		if info.ModTime().After(last) {
			last = info.ModTime()
		}
	}
	return last
}

// TestADiskThatBecomesReadOnlyIsServed aborts the file system under a server, as the
// kernel does after an error of the disk. Reads go on, of everything that was
// acknowledged; so they do after a restart on that file system, and of everything that
// was synced on one that was mounted anew.
func TestADiskThatBecomesReadOnlyIsServed(t *testing.T) {
	const idle = kvd.Durability(0)
	for name, load := range map[string]kvd.Durability{"idle": idle, "synced": kvd.Sync, "buffered": kvd.Buffered} {
		t.Run(name, func(t *testing.T) {
			disk := newLoopDisk(t)
			s := disk.serve()
			fillReadOnly(t, s)
			var c *counters
			if load == idle {
				testwait.Until(t, func() bool { return time.Since(lastWritten(t, disk.data(), "wal")) > 3*time.Second })
			} else {
				c = startCounters(t, s.addr, 4, load)
				c.grow(1000)
			}
			db, err := kvd.Open(s.addr, kvd.WithTimeout(testwait.Left()))
			require.NoError(t, err)
			disk.remount("abort")
			testwait.Until(t, func() bool { return errors.Is(db.Ping(context.Background()), kvd.ErrReadOnly) })
			advice := adviceResume
			if load != idle {
				c.cancel()
				c.end()
				c.check(t, s.addr)
				advice = "mount it read-write" // the rest depends on what met the error first
			}
			digest, _ := requireServedReadOnly(t, s, advice)
			require.NoError(t, db.Close())
			s.stop(t)

			s = disk.serve()
			again, _ := requireServedReadOnly(t, s, adviceRestart)
			require.Equal(t, digest, again)
			s.stop(t)

			disk.unmount()
			disk.mount()
			s = disk.serve()
			require.Equal(t, "Ada", strings.TrimSpace(mustKvd(t, "get", "--addr="+s.addr, "user/1")))
			if load == kvd.Sync {
				c.check(t, s.addr)
			}
			mustKvd(t, "put", "--addr="+s.addr, "user/1", "Eve")
			s.stop(t)
		})
	}
}
