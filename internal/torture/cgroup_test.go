package torture

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/bytesize"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/pkg/kvd"
)

// A server with much more data than memory, in a control group, with the settings that it
// takes from that, is not killed by the kernel for its memory, whatever clients do, and a
// reload of its settings disturbs no client.
//
// CGROUP names the control group, CGROUP_LIMIT its limit, and CGROUP_DATA how much data there
// is: scripts/cgroup.sh.
func TestAServerInASmallControlGroup(t *testing.T) {
	group := os.Getenv("CGROUP")
	if group == "" {
		t.Skip("CGROUP names no control group; scripts/cgroup.sh makes one")
	}
	limit, err := bytesize.Parse(os.Getenv("CGROUP_LIMIT"))
	require.NoError(t, err, "CGROUP_LIMIT")
	data, err := bytesize.Parse(os.Getenv("CGROUP_DATA"))
	require.NoError(t, err, "CGROUP_DATA")
	enterGroup(t, group, limit)
	config := filepath.Join(t.TempDir(), "kvd.yaml")
	require.NoError(t, os.WriteFile(config, []byte("slow-log-time: 1s\n"), 0o600))
	g := &grouped{t: t, group: group, limit: limit}
	dir := filepath.Join(t.TempDir(), "data")
	g.start(dir, config)
	g.reload()

	small, large := int(data/2/smallBytes), int(data/2/largeBytes)
	g.phase("load", func() {
		g.together(small, func(db *kvd.Client, i int) error {
			return db.Put(t.Context(), groupKey(i), groupValue(i, smallBytes), kvd.Durable(kvd.Buffered))
		})
		g.together(large, func(db *kvd.Client, i int) error {
			return db.Put(t.Context(), groupKey(small+i), groupValue(small+i, largeBytes), kvd.Durable(kvd.Buffered))
		})
		g.together(largeValues, func(db *kvd.Client, i int) error {
			return db.Put(t.Context(), largeKey(i), groupValue(i, largeValue))
		})
		g.together(smallValues, func(db *kvd.Client, i int) error { return db.Put(t.Context(), smallKey(i), make([]byte, 100)) })
	})
	get := func(db *kvd.Client, _ int) error {
		i, size := rand.IntN(small+large), smallBytes
		if i >= small {
			size = largeBytes
		}
		value, err := db.Get(t.Context(), groupKey(i))
		if err == nil && !bytes.Equal(groupValue(i, size), value) {
			return fmt.Errorf("%s has another value", groupKey(i))
		}
		return err
	}
	g.phase("gets", func() { g.together(20_000, get) })
	g.phase("scan", func() {
		db := g.open()
		seen := 0
		for _, err := range db.Scan(t.Context(), kvd.Prefix([]byte("group-"))) {
			require.NoError(t, err)
			seen++
		}
		assert.Equal(t, small+large, seen)
		require.NoError(t, db.Close())
	})
	for _, c := range memoryCases {
		g.phase(c.name, func() {
			progress.Store(0)
			ctx, cancel := context.WithCancel(t.Context())
			var attack sync.WaitGroup
			attack.Go(func() { c.attack(ctx, t, g.server) })
			honest(t, g.server, func() { waitForAttack(t, c.events) })
			cancel()
			attack.Wait()
		})
	}
	g.stop(t)
	g.start(dir, config)
	g.phase("gets after a restart", func() { g.together(5_000, get) })
	g.stop(t)
}

const (
	smallBytes = 1 << 10
	largeBytes = 64 << 10
)

func groupKey(i int) []byte { return fmt.Appendf(nil, "group-%09d", i) }

// groupValue returns the value of a key, which tells the keys apart.
func groupValue(i, size int) []byte {
	value := make([]byte, size)
	for at := 0; at+8 <= size; at += 8 {
		binary.LittleEndian.PutUint64(value[at:], uint64(i)<<32|uint64(at))
	}
	return value
}

// grouped is a server in a control group.
type grouped struct {
	*server
	t       *testing.T
	group   string
	limit   int64
	reloads int
}

func (g *grouped) start(dir, config string) {
	g.server = serve(g.t, dir, "--config", config)
	g.reloads = 0
	g.t.Cleanup(func() { _ = g.cmd.Process.Kill() }) // it has ended unless the test failed
}

// reload sends SIGHUP, and waits until the server has obeyed.
func (g *grouped) reload() {
	g.t.Helper()
	g.reloads++
	require.NoError(g.t, g.cmd.Process.Signal(syscall.SIGHUP))
	testwait.Until(g.t, func() bool { return strings.Count(g.log.String(), "files were read again") >= g.reloads })
}

// phase does something, and has the server reload its settings in the middle and at the end.
// Nothing may have been killed by then.
func (g *grouped) phase(name string, do func()) {
	g.t.Helper()
	begun := time.Now()
	middle := make(chan struct{})
	timer := time.AfterFunc(time.Second, func() {
		defer close(middle)
		g.reload()
	})
	do()
	if !timer.Stop() {
		<-middle
	}
	g.reload()
	peak := peakOf(g.t, g.server)
	g.t.Logf("%-40s %8v, peak of the process so far %d MiB", name, time.Since(begun).Round(time.Millisecond), peak>>20)
	assert.Less(g.t, peak, g.limit, name)
	require.Zero(g.t, g.kills(), "%s: the kernel killed a process of the group\n%s", name, g.log)
	require.False(g.t, g.t.Failed(), name)
}

// kills returns how many processes of the group the kernel has killed for lack of memory.
func (g *grouped) kills() int {
	g.t.Helper()
	for _, name := range []string{"memory.events", "memory.oom_control"} { // version 2, version 1
		text, err := os.ReadFile(filepath.Join(g.group, name))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if words := strings.Fields(line); len(words) == 2 && words[0] == "oom_kill" {
				n, err := strconv.Atoi(words[1])
				require.NoError(g.t, err)
				return n
			}
		}
	}
	require.Fail(g.t, "the group does not count what the kernel killed")
	return 0
}

func (g *grouped) open() *kvd.Client {
	db, err := kvd.Open(g.addr, kvd.WithTimeout(time.Minute))
	require.NoError(g.t, err)
	return db
}

// together does n things on several goroutines.
func (g *grouped) together(n int, do func(db *kvd.Client, i int) error) {
	g.t.Helper()
	db := g.open()
	var next atomic.Int64
	var all sync.WaitGroup
	for range 32 {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && !g.t.Failed(); i = int(next.Add(1)) - 1 {
				if err := do(db, i); !assert.NoError(g.t, err) {
					return
				}
			}
		})
	}
	all.Wait()
	require.NoError(g.t, db.Close())
}
