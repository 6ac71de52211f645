package torture

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/internal/torture/kvdbinary"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/wal"
	"github.com/kvd-db/kvd/pkg/kvd"
)

// exitDamaged is how kvd serve ends when it refuses a damaged store.
const exitDamaged = 65

// damage is one row: what is done to a stopped store, and what may follow.
type damage struct {
	name string
	// of picks the files to damage, one store for each.
	of func(t *testing.T, dir string) []string
	do func(t *testing.T, file string)
	// mayServe: a start is allowed, if every answer is right or DATA_LOSS.
	mayServe bool
	// killed: the server was killed rather than stopped.
	killed bool
	// spared: the store must serve everything, and the file must still exist
	// somewhere in the data directory.
	spared bool
}

func flipAt(part float64) func(t *testing.T, file string) {
	return func(t *testing.T, file string) {
		edit(t, file, func(b []byte) []byte {
			b[min(int(part*float64(len(b))), len(b)-1)] ^= 0x10
			return b
		})
	}
}

func edit(t *testing.T, file string, change func([]byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NotEmpty(t, b, file)
	require.NoError(t, os.WriteFile(file, change(b), 0o600))
}

func cutHalf(t *testing.T, file string) {
	edit(t, file, func(b []byte) []byte { return b[:len(b)/2] })
}

func zeroSector(t *testing.T, file string) {
	edit(t, file, func(b []byte) []byte {
		at := len(b) / 3 / 512 * 512
		clear(b[at:min(at+512, len(b))])
		return b
	})
}

func remove(t *testing.T, file string) { require.NoError(t, os.Remove(file)) }

const twoBlocks = 8 << 10

// swapBlocks exchanges the first two 4 KiB of a file: of a table whole blocks, or
// nearly.
func swapBlocks(t *testing.T, file string) {
	edit(t, file, func(b []byte) []byte {
		require.Greater(t, len(b), twoBlocks, "the file is too small to swap blocks in")
		first := slices.Clone(b[:twoBlocks/2])
		copy(b, b[twoBlocks/2:twoBlocks])
		copy(b[twoBlocks/2:], first)
		return b
	})
}

func glob(pattern string) func(t *testing.T, dir string) []string {
	return func(t *testing.T, dir string) []string {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		require.NoError(t, err)
		require.NotEmpty(t, files, pattern)
		return files[:1]
	}
}

// newest picks the file that was made last, of which most is in use, of those that have two
// blocks: a flush may come at any time, also when there is little to write.
func newest(pattern string) func(t *testing.T, dir string) []string {
	return func(t *testing.T, dir string) []string {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		require.NoError(t, err)
		for _, file := range slices.Backward(files) {
			info, err := os.Stat(file)
			require.NoError(t, err)
			if info.Size() > twoBlocks {
				return []string{file}
			}
		}
		require.Fail(t, "no file of two blocks", pattern)
		return nil
	}
}

// logWithRecords picks the log segment that holds the most that is not zero.
func logWithRecords(t *testing.T, dir string) []string {
	files, err := filepath.Glob(filepath.Join(dir, "wal", "*.wal"))
	require.NoError(t, err)
	best, most := "", -1
	for _, f := range files {
		b, err := os.ReadFile(f)
		require.NoError(t, err)
		if n := len(strings.TrimRight(string(b), "\x00")); n > most {
			best, most = f, n
		}
	}
	return []string{best}
}

// inRecords damages the log a fifth of the way through what was written: long
// synced.
func inRecords(t *testing.T, file string) {
	edit(t, file, func(b []byte) []byte {
		b[len(strings.TrimRight(string(b), "\x00"))/5] ^= 0x10
		return b
	})
}

func strangers(t *testing.T, dir string) []string {
	files := []string{
		filepath.Join(dir, "p-0000", "core"), filepath.Join(dir, "p-0001", "notes.tmp"), filepath.Join(dir, "stranger"),
	}
	for _, f := range files {
		require.NoError(t, os.WriteFile(f, []byte("not kvd's"), 0o600))
	}
	return files
}

var damages = []damage{
	{name: "log, clean stop, flipped bit", of: logWithRecords, do: inRecords},
	{name: "log, clean stop, truncated", of: logWithRecords, do: cutHalf},
	{name: "log, clean stop, removed", of: logWithRecords, do: remove},
	{name: "log, killed, damage before the last sync", of: logWithRecords, do: inRecords, killed: true},
	{name: "manifest, flipped bit", of: glob("p-0000/MANIFEST-*"), do: flipAt(0.5)},
	{name: "manifest, truncated", of: glob("p-0000/MANIFEST-*"), do: cutHalf},
	{name: "manifest, removed", of: glob("p-0000/MANIFEST-*"), do: remove},
	{name: "CURRENT, flipped bit", of: glob("p-0000/CURRENT"), do: flipAt(0.5)},
	{name: "CURRENT, truncated", of: glob("p-0000/CURRENT"), do: cutHalf},
	{name: "CURRENT, removed", of: glob("p-0000/CURRENT"), do: remove},
	{name: "STORE, flipped bit", of: glob("STORE"), do: flipAt(0.5)},
	{name: "STORE, removed", of: glob("STORE"), do: remove},
	{name: "table, data block flipped", of: glob("p-*/*.sst"), do: flipAt(0.1), mayServe: true},
	{name: "table, sector zeroed", of: glob("p-*/*.sst"), do: zeroSector, mayServe: true},
	{name: "table, blocks swapped", of: glob("p-*/*.sst"), do: swapBlocks, mayServe: true},
	{name: "table, filter or index flipped", of: glob("p-*/*.sst"), do: flipAt(0.985), mayServe: true},
	{name: "table, footer flipped", of: glob("p-*/*.sst"), do: flipAt(0.9999), mayServe: true},
	{name: "table, truncated", of: glob("p-*/*.sst"), do: cutHalf},
	{name: "table, removed", of: glob("p-*/*.sst"), do: remove},
	{name: "value file, value flipped", of: newest("p-0001/*.val"), do: flipAt(0.3), mayServe: true},
	{name: "value file, sector zeroed", of: newest("p-0001/*.val"), do: zeroSector, mayServe: true},
	{name: "value file, blocks swapped", of: newest("p-0001/*.val"), do: swapBlocks, mayServe: true},
	{name: "value file, footer flipped", of: newest("p-0001/*.val"), do: flipAt(0.9999), mayServe: true},
	{name: "value file, truncated", of: newest("p-0001/*.val"), do: cutHalf},
	{name: "value file, removed", of: newest("p-0001/*.val"), do: remove},
	{name: "unknown extra files", of: strangers, do: func(*testing.T, string) {}, mayServe: true, spared: true},
}

// endsWithMark reports whether the last frame of a store's log is a mark. The
// segment that comes next may lie there already, without frames.
func endsWithMark(t *testing.T, dir string) bool {
	t.Helper()
	segments, err := filepath.Glob(filepath.Join(dir, "wal", "*.wal"))
	require.NoError(t, err)
	var last wal.FrameKind
	for _, segment := range segments {
		_, err := wal.Dump(vfs.OS, segment, func(f wal.FrameInfo) error {
			last = f.Kind
			return nil
		})
		require.NoError(t, err)
	}
	return last == wal.FrameMark
}

// The table of allowed outcomes, with the real binary: a damaged store is
// refused with exit code 65 and the name of the file, or it serves and every
// answer is right or DATA_LOSS. Never a wrong value, never "not found" for a
// live key.
func TestServeOnADamagedStore(t *testing.T) {
	testsize.OneGoroutine(t) // what is tested is in other processes
	for _, killed := range []bool{false, true} {
		origin := filepath.Join(t.TempDir(), "origin")
		want := fill(t, origin, killed)
		for _, d := range damages {
			if d.killed != killed {
				continue
			}
			t.Run(d.name, func(t *testing.T) { d.check(t, origin, want) })
		}
	}
}

// smallBallast lets the store reserve a mebibyte, and not the 64 that would be copied for each damage.
const smallBallast = "--low-disk=1MiB"

// fill makes a store with tables, merged ones among them, and a log with synced
// records that no table has.
func fill(t *testing.T, dir string, kill bool) map[string]string {
	t.Helper()
	s := serve(t, dir, "--partitions", "2", "--flush-keys", "150", "--memory", "64MiB", smallBallast)
	db, err := kvd.Open(s.addr, kvd.WithTimeout(testwait.Left()))
	require.NoError(t, err)
	want := make(map[string]string)
	ctx := context.Background()
	put := func(key, value string) {
		require.NoError(t, db.Put(ctx, []byte(key), []byte(value)))
		want[key] = value
	}
	for i := range 1400 {
		size := 100
		if i%4 == 0 {
			size = 400 // kept apart from its key
		}
		put(fmt.Sprintf("key-%04d", i%1000), fmt.Sprintf("%d %s", i, strings.Repeat("v", size)))
	}
	require.NoError(t, db.Close())
	if kill {
		// A mark frame a second after the last write notes how far the log is synced;
		// with it, damage before that point cannot be taken for a torn tail.
		testwait.Until(t, func() bool { return endsWithMark(t, dir) }, "a mark frame ends the log")
		s.kill(t)
	} else {
		s.stop(t)
	}
	return want
}

func (d *damage) check(t *testing.T, origin string, want map[string]string) {
	dir := filepath.Join(t.TempDir(), "store")
	require.NoError(t, os.CopyFS(dir, os.DirFS(origin)))
	files := d.of(t, dir)
	for _, f := range files {
		d.do(t, f)
	}
	code, output, addr, stop := tryServe(t, dir)
	if addr == "" {
		require.Equal(t, exitDamaged, code, "%s", output)
		message := errorOf(output)
		assert.Contains(t, message, d.named(dir, files[0]), "the error names the file")
		t.Logf("%s: exit %d: %s", d.name, code, strings.ReplaceAll(message, dir, "DIR"))
		assert.False(t, d.spared, "a stranger's file is no reason to refuse")
		return
	}
	defer func() { stop() }()
	require.True(t, d.mayServe, "kvd must not serve this store")
	right, lost := readAll(t, addr, want)
	t.Logf("%s: serves, %d answers right, %d DATA_LOSS", d.name, right, lost)
	if !d.spared {
		if lost == 0 { // newer tables hide what was damaged
			stop()
			stop = func() {}
			out, err := exec.Command(kvdBinary, "check", dir).CombinedOutput()
			assert.Error(t, err, "nothing noticed the damage")
			assert.Contains(t, string(out), filepath.Base(files[0]))
		}
		return
	}
	assert.Zero(t, lost)
	left := 0
	require.NoError(t, filepath.WalkDir(dir, func(_ string, e fs.DirEntry, err error) error {
		for _, f := range files {
			if err == nil && e.Name() == filepath.Base(f) {
				left++
			}
		}
		return err
	}))
	assert.Equal(t, len(files), left, "files that are not ours are kept")
}

// named returns what an error must name. Of a log that is gone altogether, that
// is its directory.
func (d *damage) named(dir, file string) string {
	if segments, err := filepath.Glob(filepath.Join(dir, "wal", "*.wal")); err == nil && len(segments) == 0 {
		return filepath.Join(dir, "wal")
	}
	return filepath.Join(filepath.Base(filepath.Dir(file)), filepath.Base(file))
}

// errorOf returns the line in which kvd says why it ended; log lines and advice
// stand around it.
func errorOf(output string) string {
	for line := range strings.Lines(output) {
		if strings.HasPrefix(line, "kvd: ") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

// tryServe starts kvd and returns its address, or how it ended.
func tryServe(t *testing.T, dir string) (code int, output, addr string, stop func()) {
	t.Helper()
	s, err := kvdbinary.Serve(exec.Command(kvdBinary, kvdbinary.ServeArgs(dir, smallBallast)...))
	if err != nil {
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit)
		return exit.ExitCode(), s.Log.String(), "", nil
	}
	return 0, s.Log.String(), s.Addr, func() { (&server{cmd: s.Cmd}).kill(t) }
}

// readAll asks for every key, one by one, and fails on any answer that is
// neither right nor DATA_LOSS.
func readAll(t *testing.T, addr string, want map[string]string) (right, lost int) {
	t.Helper()
	db, err := kvd.Open(addr, kvd.WithTimeout(testwait.Left()))
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	for key, value := range want {
		got, err := db.Get(context.Background(), []byte(key))
		switch {
		case err == nil:
			require.Equal(t, value, string(got), "key %s", key)
			right++
		case errors.Is(err, kvd.ErrCorrupt):
			lost++
		default:
			t.Fatalf("key %s: %v", key, err)
		}
	}
	return right, lost
}

// Damage after the last synced offset is a torn tail: it is dropped with a log line and a metric,
// and everything acknowledged as synced is there.
func TestTornTailOfAKilledLogIsDropped(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s := serve(t, dir, "--partitions", "2")
	db, err := kvd.Open(s.addr, kvd.WithTimeout(testwait.Left()))
	require.NoError(t, err)
	ctx := context.Background()
	want := make(map[string]string)
	for i := range 100 {
		key := fmt.Sprintf("key-%04d", i)
		require.NoError(t, db.Put(ctx, []byte(key), []byte("synced")))
		want[key] = "synced"
	}
	require.NoError(t, db.Put(ctx, []byte("last"), []byte("buffered"), kvd.Durable(kvd.Buffered)))
	s.kill(t) // before the mark frame of an idle log can cover the last write
	require.NoError(t, db.Close())

	edit(t, logWithRecords(t, dir)[0], func(b []byte) []byte {
		b[len(strings.TrimRight(string(b), "\x00"))-1] ^= 0x10
		return b
	})
	s = serve(t, dir)
	right, lost := readAll(t, s.addr, want)
	assert.Equal(t, len(want), right)
	assert.Zero(t, lost)
	assert.Contains(t, s.log.String(), "torn", "a log line says what was dropped")
	assert.Regexp(t, `(?m)^kvd_wal_tail_dropped_bytes(_total)? [1-9]`, metrics(t, s.admin))
	s.stop(t)
}

func metrics(t *testing.T, admin string) string {
	t.Helper()
	r, err := http.Get("http://" + admin + "/metrics")
	require.NoError(t, err)
	body, err := io.ReadAll(r.Body)
	require.NoError(t, errors.Join(err, r.Body.Close()))
	http.DefaultClient.CloseIdleConnections()
	return string(body)
}
