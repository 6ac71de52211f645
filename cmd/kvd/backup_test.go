package main

import (
	"bytes"
	"context"
	le "encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/pkg/kvd"
)

// requireOK runs a command that must succeed, and returns its output.
func requireOK(t *testing.T, args ...string) string {
	t.Helper()
	r := command(t, "", nil, args...)
	require.Zero(t, r.code, "kvd %v: %s", args, r.err)
	return r.out
}

// A backup is made while 64 writers write. Restored, it has every write that was
// acknowledged before, every transaction whole, and is a store that serves.
func TestBackupWhileClientsWrite(t *testing.T) {
	const writers, accounts, balance = 64, 40, 100
	p := serve(t, t.TempDir(), "--value-threshold", "512")
	db, err := kvd.Open(p.addr, kvd.WithTimeout(testwait.Left()))
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	number := func(n uint64) []byte { return le.LittleEndian.AppendUint64(nil, n) }
	account := func(i int) []byte { return fmt.Appendf(nil, "account-%02d", i) }
	for i := range accounts {
		require.NoError(t, db.Put(t.Context(), account(i), number(balance)))
	}
	filler := bytes.Repeat([]byte("x"), 1000) // in value files
	ctx, stop := context.WithCancel(testwait.Context(t))
	var acknowledged [writers]atomic.Uint64
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	for w := range writers {
		all.Go(func() {
			for n := uint64(1); ctx.Err() == nil; n++ {
				if err := db.Put(context.Background(), fmt.Appendf(nil, "writer-%d", w), append(number(n), filler...)); err != nil {
					t.Error(err)
					return
				}
				acknowledged[w].Store(n)
				if err := transfer(db, account(rand.IntN(accounts)), account(rand.IntN(accounts))); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	backups := filepath.Join(t.TempDir(), "backups")
	for round := range 3 {
		var before [writers]uint64
		for w := range writers {
			before[w] = acknowledged[w].Load()
		}
		out := p.must("backup", backups, "--digest")
		require.Contains(t, out, "backup 20")
		_, digest, _ := strings.Cut(out, "; digest ")

		restored := filepath.Join(t.TempDir(), "restored")
		out = requireOK(t, "restore", backups, restored)
		require.Contains(t, out, "restored version")
		require.True(t, strings.HasSuffix(out, "; digest "+digest), out)
		require.Equal(t, digest, requireOK(t, "digest", restored), "what clients read at the version of the backup")
		requireOK(t, "check", restored)
		r := serve(t, restored)
		copied, err := kvd.Open(r.addr, kvd.WithTimeout(testwait.Left()))
		require.NoError(t, err)
		sum := uint64(0)
		for i := range accounts {
			value, err := copied.Get(t.Context(), account(i))
			require.NoError(t, err)
			sum += le.LittleEndian.Uint64(value)
		}
		require.EqualValues(t, accounts*balance, sum, "transfers are whole")
		for w := range writers {
			if before[w] == 0 {
				continue
			}
			value, err := copied.Get(t.Context(), fmt.Appendf(nil, "writer-%d", w))
			require.NoError(t, err)
			require.GreaterOrEqual(t, le.LittleEndian.Uint64(value), before[w], "round %d, writer %d: acknowledged before the backup", round, w)
		}
		require.NoError(t, copied.Close())
		require.Zero(t, r.end(syscall.SIGTERM))
	}
	stop()
	all.Wait()
	p.must("backup", backups)
	restored := filepath.Join(t.TempDir(), "restored")
	requireOK(t, "restore", backups, restored)
	require.Equal(t, p.must("digest"), requireOK(t, "digest", restored))
	require.Equal(t, "4 backups are whole\n", requireOK(t, "backup", "verify", backups))
	require.Contains(t, requireOK(t, "backup", "prune", backups, "--keep", "2"), "removed 2 backups")
	require.Equal(t, "2 backups are whole\n", requireOK(t, "backup", "verify", backups))
	require.Len(t, strings.Split(strings.TrimSpace(requireOK(t, "backup", "list", backups)), "\n"), 3)
}

// transfer moves one unit from one account to another.
func transfer(db *kvd.Client, from, to []byte) error {
	if bytes.Equal(from, to) {
		return nil
	}
	err := db.Update(context.Background(), func(tx *kvd.Txn) error {
		a, err := tx.Get(context.Background(), from)
		if err != nil {
			return err
		}
		b, err := tx.Get(context.Background(), to)
		if err != nil {
			return err
		}

		if err := tx.Put(context.Background(), from, le.LittleEndian.AppendUint64(nil, le.LittleEndian.Uint64(a)-1)); err != nil {
			return err
		}
		return tx.Put(context.Background(), to, le.LittleEndian.AppendUint64(nil, le.LittleEndian.Uint64(b)+1))
	})
	if e, ok := err.(*kvd.Error); ok && e.Unwrap() == kvd.ErrConflict {
		return nil // too many conflicts; nothing was written
	}
	return err
}

// fill puts so many values of a kilobyte.
func (p *process) fill(prefix string, count int) {
	p.t.Helper()
	var lines strings.Builder
	for i := range count {
		fmt.Fprintf(&lines, "{\"key\":\"%s-%05d\",\"value\":\"%s\"}\n", prefix, i, strings.Repeat(strconv.Itoa(i%10), 1000))
	}
	r := command(p.t, lines.String(), nil, "import", "--addr", p.addr)
	require.Zero(p.t, r.code, r.err)
}

// A client that is killed in the middle of a backup, and a server that is, leave no backup,
// and earlier ones as they were. The next attempt does not copy again what was copied.
func TestAnInterruptedBackupIsNone(t *testing.T) {
	t.Parallel() // it waits for the rate
	data := t.TempDir()
	p := serve(t, data)
	p.fill("a", 3000)
	backups := filepath.Join(t.TempDir(), "backups")
	p.must("backup", backups)
	p.fill("b", 3000)
	for _, victim := range []string{"client", "server"} {
		slow := exec.Command(binary, "backup", backups, "--addr", p.addr, "--rate", "512KiB/s", "--timeout", testwait.Left().String())
		slow.Env = cleanEnv()
		var errOut bytes.Buffer
		slow.Stderr = &errOut
		before := stored(t, backups)
		require.NoError(t, slow.Start())
		testwait.Until(t, func() bool { return stored(t, backups) > before }, "the backup copies")
		require.Contains(t, p.metrics(), "\nkvd_checkpoints_open 1\n")
		if victim == "client" {
			require.NoError(t, slow.Process.Kill())
			require.Error(t, slow.Wait())
			testwait.Until(t, func() bool { return strings.Contains(p.metrics(), "\nkvd_checkpoints_open 0\n") }, "nothing is held for a client that is gone")
		} else {
			require.Equal(t, -1, p.end(syscall.SIGKILL))
			require.Error(t, slow.Wait())
			require.Equal(t, exitUnavailable, slow.ProcessState.ExitCode(), errOut.String())
			p = serve(t, data)
		}
		require.Equal(t, "1 backups are whole\n", requireOK(t, "backup", "verify", backups), victim)
	}
	require.Contains(t, p.must("backup", backups), "backup 20")
	require.Equal(t, "2 backups are whole\n", requireOK(t, "backup", "verify", backups))
	restored := filepath.Join(t.TempDir(), "restored")
	requireOK(t, "restore", backups, restored)
	require.Equal(t, p.must("digest"), requireOK(t, "digest", restored))
}

// metrics returns the page of metrics.
func (p *process) metrics() string {
	p.t.Helper()
	response, err := http.Get("http://" + p.admin + "/metrics")
	require.NoError(p.t, err)
	page, err := io.ReadAll(response.Body)
	require.NoError(p.t, errors.Join(err, response.Body.Close()))
	return string(page)
}

// stored returns how many bytes a directory of backups holds.
func stored(t *testing.T, dir string) (sum int64) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, "files"))
	require.NoError(t, err)
	for _, e := range entries {
		if info, err := e.Info(); err == nil { // it may be gone by now
			sum += info.Size()
		}
	}
	return sum
}

// Only what was written since the last backup is copied. Damage of any file is found by
// verify and by restore, with its name.
func TestIncrementalBackupAndDamage(t *testing.T) {
	p := serve(t, t.TempDir(), "--flush-keys", "800")
	p.fill("a", 3000)
	// Each partition has flushed once: what a flush writes between the backups is copied, too, and is
	// little from here on.
	testwait.Until(t, func() bool { return len(oneBase.FindAllString(p.metrics(), -1)) == 3 })
	backups := filepath.Join(t.TempDir(), "backups")
	p.must("backup", backups)
	first := stored(t, backups)
	p.must("put", "one", "more")
	require.Contains(t, p.must("backup", backups), "copied ")
	require.Less(t, stored(t, backups)-first, first, "most was there already")

	entries, err := os.ReadDir(filepath.Join(backups, "files"))
	require.NoError(t, err)
	for _, e := range entries {
		name := filepath.Join(backups, "files", e.Name())
		content, err := os.ReadFile(name)
		require.NoError(t, err)
		if len(content) == 0 {
			continue
		}
		flipped := bytes.Clone(content)
		flipped[rand.IntN(len(flipped))] ^= 1 << rand.IntN(8)
		require.NoError(t, os.WriteFile(name, flipped, 0o600))
		r := command(t, "", nil, "backup", "verify", backups)
		assert.Equal(t, 65, r.code, r.err)
		assert.Contains(t, r.err, e.Name())
		require.NoError(t, os.WriteFile(name, content, 0o600))
	}
	name := filepath.Join(backups, "files", entries[0].Name())
	require.NoError(t, os.Truncate(name, 3))
	target := filepath.Join(t.TempDir(), "restored")
	r := command(t, "", nil, "restore", backups, target)
	require.Equal(t, 65, r.code, r.err)
	require.Contains(t, r.err, entries[0].Name())
	require.Contains(t, r.err, "kvd backup verify", "it says where to look")
	require.NotContains(t, r.err, "--allow-damaged", "which is for stores")
	r = command(t, "", nil, "serve", "--data", target, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	require.NotZero(t, r.code, "what was not restored is no store")
	require.Empty(t, r.out, "never READY")
	r = command(t, "", nil, "restore", backups, target)
	require.Equal(t, 64, r.code, r.err)
	require.Contains(t, r.err, "interrupted")

	require.NoError(t, os.Remove(name))
	p.must("backup", backups)
	requireOK(t, "backup", "verify", backups)
}

func TestBackupAsAStream(t *testing.T) {
	p := serve(t, t.TempDir())
	p.fill("a", 500)
	r := p.kvd("backup", "-")
	require.Zero(t, r.code, r.err)
	file := filepath.Join(t.TempDir(), "20261123T014200.123Z.backup") // a name like that of a backup in a directory
	require.NoError(t, os.WriteFile(file, []byte(r.out), 0o600))
	require.Contains(t, requireOK(t, "backup", "verify", file), "whole")
	first, second := filepath.Join(t.TempDir(), "r"), filepath.Join(t.TempDir(), "r")
	requireOK(t, "restore", file, first)
	again := command(t, r.out, nil, "restore", "-", second)
	require.Zero(t, again.code, again.err)
	require.Equal(t, p.must("digest"), requireOK(t, "digest", first))
	require.Equal(t, p.must("digest"), requireOK(t, "digest", second))
	for _, n := range []int{0, 100, len(r.out) / 2, len(r.out) - 2500} {
		cut := command(t, r.out[:n], nil, "backup", "verify", "-")
		require.Equal(t, 65, cut.code, cut.err)
		require.Contains(t, cut.err, "not whole")
		cut = command(t, r.out[:n], nil, "restore", "-", filepath.Join(t.TempDir(), "r"))
		require.Equal(t, 65, cut.code, cut.err)
	}
}

func TestBackupArguments(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "mine"), []byte("precious"), 0o600))
	golden := filepath.Join("..", "..", "internal", "backup", "testdata", "v1", "store")
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"backup"}, 64, "needs DIR"},
		{[]string{"backup", dir}, 64, "mine"},
		{[]string{"backup", filepath.Join(t.TempDir(), "b"), "--rate", "1KiB"}, 64, "16KiB"},
		{[]string{"backup", filepath.Join(t.TempDir(), "b"), "--addr", "127.0.0.1:1"}, 5, "is the server running"},
		{[]string{"backup", "list", dir}, 64, "not a directory of backups"},
		{[]string{"backup", "verify", filepath.Join(dir, "absent")}, 64, "absent"},
		{[]string{"backup", "verify", filepath.Join(dir, "mine")}, 65, "not whole"},
		{[]string{"backup", "prune", dir}, 64, "--keep"},
		{[]string{"restore", dir}, 64, "DIR is missing"},
		{[]string{"backup", "archive", dir}, 64, "not an archive"},
		{[]string{"digest", dir, "--version", "5"}, 64, "only its newest version"},
		{[]string{"digest", "--version", "0"}, 64, "versions begin at 1"},
		{[]string{"digest", filepath.Join(dir, "absent")}, 64, "absent is no directory"},
		{[]string{"digest", "127.0.0.1:1"}, 5, "is the server running"},
		{[]string{"digest", "unix:" + filepath.Join(dir, "absent")}, 5, "is the server running"},
		{[]string{"restore", dir, filepath.Join(t.TempDir(), "x")}, 64, "not a directory of backups"},
		{[]string{"restore", golden, filepath.Join(dir, "mine")}, 64, "is a file"},
	} {
		r := command(t, "", nil, c.args...)
		assert.Equal(t, c.code, r.code, "%v: %s", c.args, r.err)
		assert.Contains(t, r.err, c.want, "%v", c.args)
	}
}

// A backup that the server refuses leaves no directory behind.
func TestARefusedBackupLeavesNoDirectory(t *testing.T) {
	p, dir := serve(t, t.TempDir()), filepath.Join(t.TempDir(), "backups")
	r := command(t, "", nil, "backup", dir, "--addr", p.admin)
	require.Equal(t, exitUnavailable, r.code, r.err)
	require.NoDirExists(t, dir)
	p.must("backup", dir)
	require.DirExists(t, dir)
}

// A directory whose only backup is incomplete is not reported as whole.
func TestADirectoryWithoutABackupIsNotWhole(t *testing.T) {
	p, dir := serve(t, t.TempDir()), filepath.Join(t.TempDir(), "backups")
	p.must("backup", dir)
	manifests, err := filepath.Glob(filepath.Join(dir, "*.backup"))
	require.NoError(t, err)
	require.Len(t, manifests, 1)
	require.NoError(t, os.Remove(manifests[0]))
	r := command(t, "", nil, "backup", "verify", dir)
	assert.Equal(t, 64, r.code, r.err)
	assert.Empty(t, r.out)
	assert.Contains(t, r.err, "holds no complete backup")
}
