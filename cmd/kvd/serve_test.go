package main

import (
	"encoding/json"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/daemon"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/pkg/kvd"
)

func TestReadyIsTheOnlyLineAndTermEndsInOrder(t *testing.T) {
	p := serve(t, t.TempDir())
	assert.Equal(t, "ok\n", p.must("health"))
	assert.Zero(t, p.end(syscall.SIGTERM))
	assert.Equal(t, []string{""}, p.stdout, "nothing follows READY")
	assert.Contains(t, p.log.String(), "stopped")
}

func TestWhatWasAcknowledgedSurvivesKill(t *testing.T) {
	dir := t.TempDir()
	p := serve(t, dir)
	p.must("put", "a", "1", "--durability", "sync")
	p.must("put", "b", "2")
	p.must("del", "b")
	assert.Equal(t, -1, p.end(syscall.SIGKILL))

	p = serve(t, dir)
	assert.Equal(t, "1", p.must("get", "a"))
	assert.Equal(t, exitNotFound, p.kvd("get", "b").code)
	assert.Zero(t, p.end(syscall.SIGINT))
}

func TestASecondServerOnTheDirectoryIsRefused(t *testing.T) {
	dir := t.TempDir()
	p := serve(t, dir)
	p.must("put", "a", "1")
	r := command(t, "", nil, "serve", "--data", dir, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	assert.Equal(t, 75, r.code)
	assert.Empty(t, r.out)
	assert.Contains(t, r.err, "pid "+strconv.Itoa(p.cmd.Process.Pid))
	for _, args := range [][]string{{"check", dir}, {"digest", dir}} {
		assert.Equal(t, 75, command(t, "", nil, args...).code, args)
	}
	assert.Equal(t, "1", p.must("get", "a"), "the first one goes on")
}

func TestATakenPortIsNoDamage(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	dir := filepath.Join(t.TempDir(), "data")
	for _, args := range [][]string{
		{"--listen", l.Addr().String(), "--admin", "127.0.0.1:0"},
		{"--listen", "127.0.0.1:0", "--admin", l.Addr().String()},
	} {
		r := command(t, "", nil, append([]string{"serve", "--data", dir}, args...)...)
		assert.Equal(t, 69, r.code, r.err)
		assert.NoDirExists(t, dir, "no file was touched")
	}
}

func TestWrongUsageIs64AndStartsNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	for _, c := range []struct {
		env  []string
		args []string
		says string
	}{
		{nil, []string{"serve", "--nonsense"}, "unknown flag"},
		{nil, []string{"serve", "extra"}, "takes no arguments"},
		{nil, []string{"bogus"}, "unknown command"},
		{nil, []string{"get"}, "needs KEY"},
		{nil, []string{"get", ""}, "the key is empty"},
		{nil, []string{"get", "--hex", "xyz"}, "key \"xyz\""},
		{nil, []string{"scan", "-o", "xml"}, "want table, raw or json"},
		{nil, []string{"get", "a", "-o", "table"}, "want raw or json"},
		{nil, []string{"scan", "--count", "-o", "json"}, "[count output]"},
		{nil, []string{"put", "a", "b", "--ttl", "0s"}, "more than nothing"},
		{nil, []string{"put", "a", "b", "--if-absent", "--if-version", "1"}, "none of the others"},
		{nil, []string{"put", "a", "b", "--if-version", "-1"}, "invalid argument"},
		{nil, []string{"put", "--hex", "61", "62", "--if-value", "x"}, "value \"x\""},
		{nil, []string{"del"}, "want keys, or a range"},
		{nil, []string{"del", "a", "--prefix", "b"}, "want one of them"},
		{nil, []string{"del", "a", "b", "--if-version", "1"}, "kvd txn"},
		{nil, []string{"del", "--prefix", "a", "--if-value", "1"}, "kvd txn"},
		{nil, []string{"del", "a", "--dry-run"}, "is for a range"},
		{nil, []string{"del", "--all", "--prefix", "a"}, "none of the others"},
		{nil, []string{"del", "--prefix", ""}, "say --all"},
		{nil, []string{"del", "--start", "", "--end", ""}, "say --all"},
		{nil, []string{"del", "-e", "--start", `\x00`}, "say --all"},
		{nil, []string{"txn", "-o", "raw"}, "want text or json"},
		{nil, []string{"txn"}, "no operation"},
		{nil, []string{"serve", "--memory", "1KiB"}, "too little"},
		{nil, []string{"serve", "--memory", "lots"}, "is no size"},
		{nil, []string{"serve", "--durability", "none"}, "want memory, buffered or sync"},
		{nil, []string{"serve", "--partitions", "5000"}, "at most 1024"},
		{nil, []string{"serve", "--max-sync-time", "10ms"}, "at least 1s"},
		{nil, []string{"serve", "--max-sync-time", "25h"}, "at most 24h"},
		{nil, []string{"serve", "--transfer-rate", "1023KiB"}, "at least 1MiB"},
		{nil, []string{"serve", "--grace", "25h"}, "at most 24h"},
		{nil, []string{"serve", "--linger", "30s"}, "at most 1s"},
		{nil, []string{"serve", "--linger", "-1s"}, "is no duration"},
		{nil, []string{"serve", "--batch-ops", "1000000000"}, "at most 65536"},
		{nil, []string{"serve", "--batch-ops", "-1"}, "0 or more"},
		{nil, []string{"serve", "--listen", "127.0.0.1:70700"}, "from 0 to 65535"},
		{nil, []string{"serve", "--admin", "127.0.0.1:http"}, "from 0 to 65535"},
		{nil, []string{"serve", "--listen", "127.0.0.1:-1"}, "from 0 to 65535"},
		{nil, []string{"serve", "--slow-log-entries", "0"}, "1 to 4096"},
		{nil, []string{"serve", "--slow-log-entries", "5000"}, "1 to 4096"},
		{nil, []string{"slowlog", "--limit", "-1"}, "negative"},
		{nil, []string{"slowlog", "-o", "raw"}, "want table or json"},
		{nil, []string{"slowlog", "--reset", "--limit", "1"}, "none of the others"},
		{nil, []string{"serve", "--listen", "0.0.0.0:0"}, "--insecure-allow-remote"},
		{nil, []string{"serve", "--admin", ":0"}, "--insecure-allow-remote"},
		{nil, []string{"serve", "--admin", "0.0.0.0:0", "--tokens", "x"}, "--insecure-allow-remote"},
		{nil, []string{"serve", "--admin", "unix:"}, "names no socket"},
		{nil, []string{"serve", "--admin", "unix:/" + strings.Repeat("x", 200)}, "choose a shorter one"},
		{nil, []string{"serve", "--listen", "7070"}, "want host:port"},
		{[]string{"KVD_DURABILTY=sync"}, []string{"serve"}, "did you mean KVD_DURABILITY?"},
		{[]string{"KVD_LINGER=soon"}, []string{"serve"}, "KVD_LINGER"},
		{[]string{"KVD_TIMEOUT=soon"}, []string{"get", "a"}, "KVD_TIMEOUT"},
	} {
		r := command(t, "", append(c.env, "KVD_DATA="+dir), c.args...)
		assert.Equal(t, 64, r.code, "%v: %s", c.args, r.err)
		assert.Contains(t, r.err, c.says)
		assert.Empty(t, r.out)
	}
	assert.NoDirExists(t, dir)
}

func TestAnotherPartitionCountIsRefused(t *testing.T) {
	dir := t.TempDir()
	p := serve(t, dir)
	require.Zero(t, p.end(syscall.SIGTERM))
	r := command(t, "", nil, "serve", "--data", dir, "--partitions", "5", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	assert.Equal(t, 64, r.code)
	assert.Contains(t, r.err, "created with 3 partitions")
}

func TestTermUnderLoadEndsInOrderAndKeepsWhatWasAcknowledged(t *testing.T) {
	dir := t.TempDir()
	p := serve(t, dir)
	client, err := kvd.Open(p.addr, kvd.WithTimeout(testwait.Left()))
	require.NoError(t, err)
	const writers = 16
	acknowledged := make([]int, writers)
	var load sync.WaitGroup
	warm := make(chan struct{}, writers)
	for w := range writers {
		load.Go(func() {
			for i := 1; ; i++ {
				if client.Put(t.Context(), []byte("key/"+strconv.Itoa(w)), []byte(strconv.Itoa(i))) != nil {
					return
				}
				if acknowledged[w] = i; i == 20 {
					warm <- struct{}{}
				}
			}
		})
	}
	for range writers {
		<-warm
	}
	code := p.end(syscall.SIGTERM)
	load.Wait()
	require.NoError(t, client.Close())
	require.Zero(t, code, p.log.String())

	p = serve(t, dir)
	for w := range writers {
		got, err := strconv.Atoi(p.must("get", "key/"+strconv.Itoa(w)))
		require.NoError(t, err)
		assert.GreaterOrEqual(t, got, acknowledged[w], "writer %d", w)
		assert.LessOrEqual(t, got, acknowledged[w]+1, "writer %d", w)
	}
}

// holdScan begins a scan and leaves it standing in the middle, with more to come
// than fits into the windows of the connection. The returned function ends it.
func holdScan(t *testing.T, p *process) (release func()) {
	t.Helper()
	client, err := kvd.Open(p.addr, kvd.WithTimeout(testwait.Left()))
	require.NoError(t, err)
	value := make([]byte, 1<<20)
	for i := range 16 {
		require.NoError(t, client.Put(t.Context(), []byte{byte(i)}, value, kvd.Durable(kvd.Memory)))
	}
	standing, resume, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		items := 0
		for _, err := range client.Scan(t.Context(), kvd.All()) {
			if items++; items == 1 {
				close(standing)
				<-resume
			}
			if err != nil {
				return
			}
		}
	}()
	<-standing
	return func() {
		close(resume)
		<-ended
		require.NoError(t, client.Close())
	}
}

func TestAfterTheGracePeriodCallsAreCutOff(t *testing.T) {
	t.Parallel()
	// Calls have seven of these seconds, and closing the store the other three, which it needs on a
	// machine that is busy with other tests.
	p := serve(t, t.TempDir(), "--dev", "--grace", "10s")
	release := holdScan(t, p)
	assert.Zero(t, p.end(syscall.SIGTERM), "an orderly end all the same")
	assert.Contains(t, p.log.String(), "cut off")
	release()
}

func TestASecondSignalEndsTheProcessAtOnce(t *testing.T) {
	t.Parallel()
	for second, code := range map[syscall.Signal]int{syscall.SIGTERM: daemon.ExitTerminated, syscall.SIGINT: daemon.ExitInterrupted} {
		p := serve(t, t.TempDir(), "--dev", "--grace", "1h")
		release := holdScan(t, p)
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
		// The kernel merges two signals of a kind of which the first was not taken.
		testwait.Until(t, func() bool { return strings.Contains(p.log.String(), "stopping") })
		assert.Equal(t, code, p.end(second))
		release()
	}
}

func TestDamageIsRefusedAndCheckNamesTheFile(t *testing.T) {
	dir := t.TempDir()
	p := serve(t, dir, "--flush-keys", "10")
	lines := ""
	for i := range 300 {
		lines += `{"key":"key/` + strconv.Itoa(i) + `","value":"` + strings.Repeat("v", 50) + "\"}\n"
	}
	r := p.kvdWith(lines, "import")
	require.Zero(t, r.code, r.err)
	testwait.Until(t, func() bool { // a memtable is flushed
		tables, err := filepath.Glob(filepath.Join(dir, "p-*", "*.sst"))
		require.NoError(t, err)
		return len(tables) > 0
	})
	want := p.must("digest", p.addr)
	require.Zero(t, p.end(syscall.SIGTERM))
	r = command(t, "", nil, "check", dir)
	require.Zero(t, r.code, "%s%s", r.out, r.err)
	r = command(t, "", nil, "digest", dir)
	require.Zero(t, r.code, r.err)
	assert.Equal(t, want, r.out, "offline as online")

	table := findFile(t, dir, ".sst")
	for _, c := range []struct {
		file   string
		damage func(t *testing.T, name string)
	}{
		{"STORE", flip(-1)},
		{"STORE", remove},
		{"p-0001/CURRENT", flip(-1)},
		{"p-0001/CURRENT", remove},
		{findFile(t, dir, "MANIFEST-"), flip(40)},
		{findFile(t, dir, "MANIFEST-"), remove},
		{table, flip(-1)},
		{table, cut(10)},
		{table, remove},
		{findFile(t, dir, ".wal"), flip(70)},
	} {
		copied := filepath.Join(t.TempDir(), "data")
		copyStore(t, copied, dir)
		c.damage(t, filepath.Join(copied, c.file))
		r := command(t, "", nil, "check", copied)
		assert.Equal(t, 65, r.code, "check with damaged %s: %s%s", c.file, r.out, r.err)
		assert.Contains(t, r.err, c.file)
		r = command(t, "", nil, "serve", "--data", copied, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
		assert.Equal(t, 65, r.code, "serve with damaged %s: %s", c.file, r.err)
		assert.Empty(t, r.out, "never READY")
	}
}

func TestCheckSpeaksJSON(t *testing.T) {
	dir := t.TempDir()
	p := serve(t, dir)
	p.must("put", "a", "1")
	require.Zero(t, p.end(syscall.SIGTERM))
	flip(-1)(t, filepath.Join(dir, "p-0002/CURRENT"))
	r := command(t, "", nil, "check", "--json", dir)
	assert.Equal(t, 65, r.code)
	var report struct {
		Partitions int
		Files      []struct {
			Path, Kind, Status string
			Bytes              int64
		}
	}
	require.NoError(t, json.Unmarshal([]byte(r.out), &report), r.out)
	assert.Equal(t, 3, report.Partitions)
	kinds := map[string]string{}
	for _, f := range report.Files {
		kinds[f.Path] = f.Kind
		switch {
		case f.Path == "p-0002/CURRENT":
			assert.Contains(t, f.Status, "corruption in ")
		case strings.HasPrefix(f.Path, "p-0002/"):
			assert.Equal(t, "not checked", f.Status, f.Path)
		default:
			assert.Equal(t, "ok", f.Status, f.Path)
		}
		assert.Positive(t, f.Bytes)
	}
	assert.Equal(t, "store", kinds["STORE"])
	assert.Equal(t, "lock", kinds["LOCK"])
	assert.Equal(t, "marker", kinds["p-0000/CURRENT"])
	assert.Equal(t, "manifest", kinds["p-0000/MANIFEST-000001"])
	assert.Equal(t, "wal", kinds["wal/000001.wal"])
}

func TestToolsDoNotMakeAStoreWhereThereIsNone(t *testing.T) {
	dir := t.TempDir()
	for _, args := range [][]string{
		{"check", dir}, {"digest", dir}, {"check", filepath.Join(dir, "none")}, {"dump", filepath.Join(dir, "STORE")},
	} {
		r := command(t, "", nil, args...)
		assert.NotZero(t, r.code, args)
		assert.Empty(t, r.out, args)
	}
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, entries)
}

func TestAdminPagesAnswerOnTheirPort(t *testing.T) {
	p := serve(t, t.TempDir(), "--log-format", "json", "--log-level", "debug")
	p.must("put", "a", "1")
	for path, want := range map[string]string{
		"/livez":                         "ok",
		"/readyz?verbose":                "[+] open",
		"/metrics":                       `kvd_requests_total{code="OK",method=`,
		"/status.txt":                    "READY",
		"/debug/pprof/goroutine?debug=1": "goroutine profile",
	} {
		client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		response, err := client.Get("http://" + p.admin + path)
		require.NoError(t, err)
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		assert.Equal(t, http.StatusOK, response.StatusCode, path)
		assert.Contains(t, string(body), want, path)
	}
	require.Zero(t, p.end(syscall.SIGTERM))
	for line := range strings.Lines(p.log.String()) {
		assert.True(t, strings.HasPrefix(line, `{"level":"`), line)
	}
}

func TestTheStoreInMemoryIsGoneAtTheEnd(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	p := serve(t, dir, "--dev")
	p.must("put", "a", "1")
	assert.Equal(t, "1", p.must("get", "a"))
	require.Zero(t, p.end(syscall.SIGTERM))
	assert.NoDirExists(t, dir)
}

// findFile returns the path inside dir of the largest file whose name has this
// part.
func findFile(t *testing.T, dir, part string) (found string) {
	t.Helper()
	largest := int64(-1)
	require.NoError(t, fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.Contains(d.Name(), part) {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Size() > largest {
			found, largest = name, info.Size()
		}
		return err
	}))
	require.NotEmpty(t, found, "no %s", part)
	return found
}

// flip returns damage: one bit of the byte at offset, from the end if negative.
func flip(offset int) func(*testing.T, string) {
	return func(t *testing.T, name string) {
		b, err := os.ReadFile(name)
		require.NoError(t, err)
		b[(offset+len(b))%len(b)] ^= 0x10
		require.NoError(t, os.WriteFile(name, b, 0o600))
	}
}

// cut returns damage: so many bytes are missing at the end.
func cut(n int64) func(*testing.T, string) {
	return func(t *testing.T, name string) {
		info, err := os.Stat(name)
		require.NoError(t, err)
		require.NoError(t, os.Truncate(name, info.Size()-n))
	}
}

func remove(t *testing.T, name string) { require.NoError(t, os.Remove(name)) }

// On a terminal of 120 columns the lines of a start, a reload and a stop do not wrap.
func TestLogLinesFitAScreen(t *testing.T) {
	file := writeConfig(t, "slow-log-time: 100ms\n")
	p := serve(t, t.TempDir(), "--config", file, "--grace", "20s", "--max-deadline", "30s", "--listen", "127.0.0.1:0")
	p.must("put", "a", "1")
	p.must("config", "set", "slow-log-time", "200ms")
	require.NoError(t, os.WriteFile(file, []byte("slow-log-time: 300ms\nlinger: 1ms\n"), 0o600))
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGHUP))
	testwait.Until(t, func() bool { return strings.Contains(p.log.String(), "files were read again") })
	require.Zero(t, p.end(syscall.SIGTERM))
	count := map[string]int{}
	for line := range strings.Lines(p.log.String()) {
		if strings.Contains(line, os.TempDir()) {
			continue // as long as the names of temporary files
		}
		assert.LessOrEqual(t, utf8.RuneCountInString(line)-1, 120, line)
		count[strings.TrimSpace(strings.SplitN(line, "  ", 4)[2])]++
	}
	for _, once := range []string{"kvd starts", "setting: grace=20s (--grace)", "store is open", "stopping", "stopped"} {
		assert.Equal(t, 1, count[once], "%q in %v", once, count)
	}
}
