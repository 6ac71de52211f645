package torture

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
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

// freezeDir returns a directory on a file system of its own, which the test may freeze.
func freezeDir(t *testing.T) string {
	dir := os.Getenv("FREEZE_DIR")
	if dir == "" {
		t.Skip("FREEZE_DIR names no file system to freeze; scripts/freeze.sh makes one")
	}
	return dir
}

func freeze(t *testing.T, dir string) (thaw func()) {
	t.Helper()
	command := func(flag string) {
		out, err := exec.Command("fsfreeze", flag, dir).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	command("-f")
	thaw = sync.OnceFunc(func() { command("-u") })
	t.Cleanup(thaw)
	return thaw
}

// counters are clients that each overwrite a key of its own with ever larger numbers.
type counters struct {
	acked []atomic.Uint64 // highest number acknowledged, by client
	stop  chan struct{}
	// cancel ends the calls under way, whose outcome is then unknown.
	cancel context.CancelFunc
	done   sync.WaitGroup
}

func startCounters(t *testing.T, addr string, clients int, durability kvd.Durability) *counters {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c := &counters{acked: make([]atomic.Uint64, clients), stop: make(chan struct{}), cancel: cancel}
	db, err := kvd.Open(addr)
	require.NoError(t, err)
	for i := range clients {
		c.done.Go(func() {
			value := make([]byte, 1<<10)
			for n := uint64(1); ; n++ {
				select {
				case <-c.stop:
					return
				default:
				}
				binary.BigEndian.PutUint64(value, n)
				if db.Put(ctx, counterKey(i), value, kvd.Durable(durability)) == nil {
					c.acked[i].Store(n)
				}
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		c.end()
		assert.NoError(t, db.Close())
	})
	return c
}

func counterKey(client int) []byte { return fmt.Appendf(nil, "counter-%d", client) }

func (c *counters) sum() (sum uint64) {
	for i := range c.acked {
		sum += c.acked[i].Load()
	}
	return sum
}

// grow returns when so many more writes have been acknowledged.
func (c *counters) grow(by uint64) {
	for from := c.sum(); c.sum() < from+by; {
		time.Sleep(time.Millisecond)
	}
}

func (c *counters) end() {
	select {
	case <-c.stop:
	default:
		close(c.stop)
	}
	c.done.Wait()
}

// check expects each counter to be at least as high as acknowledged.
func (c *counters) check(t *testing.T, addr string) {
	t.Helper()
	db, err := kvd.Open(addr, kvd.WithTimeout(testwait.Left()))
	require.NoError(t, err)
	for i := range c.acked {
		value, err := db.Get(context.Background(), counterKey(i))
		require.NoError(t, err)
		require.GreaterOrEqual(t, binary.BigEndian.Uint64(value), c.acked[i].Load(), "client %d", i)
	}
	require.NoError(t, db.Close())
}

// awaitBlocked returns once a thread of the process waits for the disk in the kernel, for
// longer than a healthy disk takes.
func awaitBlocked(t *testing.T, pid int) {
	t.Helper()
	before := map[string]string{}
	for {
		now := map[string]string{}
		stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		require.NoError(t, err)
		for _, name := range stats {
			stat, err := os.ReadFile(name)
			if err != nil {
				continue // the thread has ended
			}
			fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
			if fields[0] != "D" {
				continue
			}
			// In the same state, without having run meanwhile.
			state := strings.Join([]string{fields[0], fields[11], fields[12]}, " ")
			if before[name] == state {
				return
			}
			now[name] = state
		}
		before = now
		time.Sleep(200 * time.Millisecond)
	}
}

// page gets an admin page. A server that is stopped in the kernel never answers, so the
// limit tells that from a slow machine, and nothing else.
func page(t *testing.T, s *server, path string) int {
	t.Helper()
	client := http.Client{Timeout: time.Minute}
	defer client.CloseIdleConnections()
	r, err := client.Get("http://" + s.admin + path)
	require.NoError(t, err, "while the file system is frozen")
	require.NoError(t, r.Body.Close())
	return r.StatusCode
}

// TestFrozenFileSystemHoldsUpWritesAlone freezes the file system under a server that
// writes to its log. Health, a garbage collection and reads of what is in memory go on;
// after the thaw so do writes, and what was acknowledged is there after kill -9.
func TestFrozenFileSystemHoldsUpWritesAlone(t *testing.T) {
	dir := freezeDir(t)
	data := filepath.Join(dir, "store")
	s := serve(t, data, "--partitions", "4", "--durability", "buffered", "--max-sync-time", "1h")
	t.Cleanup(func() {
		if s.cmd.ProcessState == nil { // the test has failed
			s.kill(t)
		}
	})
	db, err := kvd.Open(s.addr, kvd.WithTimeout(testwait.Left()))
	require.NoError(t, err)
	ctx := context.Background()
	require.NoError(t, db.Put(ctx, []byte("cached"), []byte("value")))

	var c *counters
	for _, quiet := range []bool{false, true, true} {
		c = startCounters(t, s.addr, 4, kvd.Buffered)
		c.grow(2000)
		if quiet { // else the file system freezes between two writes
			c.end()
		}
		thaw := freeze(t, dir)
		if quiet {
			c = startCounters(t, s.addr, 4, kvd.Buffered)
		}
		awaitBlocked(t, s.cmd.Process.Pid)
		require.Equal(t, http.StatusOK, page(t, s, "/debug/pprof/heap?gc=1"), "a garbage collection")
		require.Equal(t, http.StatusOK, page(t, s, "/livez"))
		testwait.Until(t, func() bool { return page(t, s, "/readyz") == http.StatusServiceUnavailable })
		require.Contains(t, s.log.String(), "the disk does not answer")
		require.Equal(t, http.StatusOK, page(t, s, "/metrics"))
		value, err := db.Get(ctx, []byte("cached"))
		require.NoError(t, err)
		require.Equal(t, "value", string(value))
		thaw()
		testwait.Until(t, func() bool { return page(t, s, "/readyz") == http.StatusOK })
		c.grow(2000)
		c.end()
		c.check(t, s.addr)
	}
	require.NoError(t, db.Close())
	s.kill(t)
	s = serve(t, data)
	c.check(t, s.addr)
	s.stop(t)
}

// requireEnd waits for the end of a server on a frozen file system, and expects exit code
// 74. A thread that waits in the kernel keeps the process there until the thaw, so the end
// shows by the listeners, which are closed before.
func requireEnd(t *testing.T, s *server, thaw func()) {
	t.Helper()
	testwait.Until(t, func() bool {
		conn, err := net.Dial("tcp", s.admin)
		return err != nil || conn.Close() != nil
	})
	thaw()
	var exit *exec.ExitError
	require.ErrorAs(t, s.cmd.Wait(), &exit, "%s", s.log)
	require.Equal(t, 74, exit.ExitCode(), "%s", s.log)
}

// TestFrozenFileSystemEndsTheServerAtTheLimit: a freeze that lasts longer than
// --max-sync-time ends the process with 74. Nothing acknowledged is lost.
func TestFrozenFileSystemEndsTheServerAtTheLimit(t *testing.T) {
	dir := freezeDir(t)
	data := filepath.Join(dir, "limit")
	s := serve(t, data, "--partitions", "4", "--max-sync-time", "2s")
	c := startCounters(t, s.addr, 4, kvd.Buffered)
	c.grow(2000)
	thaw := freeze(t, dir)
	requireEnd(t, s, thaw)
	require.Contains(t, s.log.String(), "has not returned for 2s")
	c.cancel()
	c.end()
	s = serve(t, data)
	c.check(t, s.addr)
	s.stop(t)
}

// TestFrozenFileSystemDoesNotHoldUpAStop: SIGTERM ends the server within the grace period,
// while it serves and while it opens the store.
func TestFrozenFileSystemDoesNotHoldUpAStop(t *testing.T) {
	dir := freezeDir(t)
	data := filepath.Join(dir, "stop")
	s := serve(t, data, "--partitions", "4", "--max-sync-time", "1h", "--grace", "2s")
	c := startCounters(t, s.addr, 4, kvd.Buffered)
	c.grow(2000)
	thaw := freeze(t, dir)
	awaitBlocked(t, s.cmd.Process.Pid)
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	requireEnd(t, s, thaw)
	c.cancel()
	c.end()

	thaw = freeze(t, dir)
	opening := exec.Command(kvdBinary, kvdbinary.ServeArgs(data, "--max-sync-time", "1h", "--grace", "1s")...)
	log := new(kvdbinary.Output)
	opening.Stderr = log
	require.NoError(t, opening.Start())
	testwait.Until(t, func() bool { return strings.Contains(log.String(), "the disk does not answer") })
	require.NoError(t, opening.Process.Signal(syscall.SIGTERM))
	testwait.Until(t, func() bool { return strings.Contains(log.String(), "the store stopped for good") })
	thaw()
	var exit *exec.ExitError
	require.ErrorAs(t, opening.Wait(), &exit, "%s", log)
	require.Equal(t, 74, exit.ExitCode(), "%s", log)

	s = serve(t, data)
	c.check(t, s.addr)
	s.stop(t)
}
