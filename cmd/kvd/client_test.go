package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/daemon"
)

func TestPutGetDeleteOfAnyBytes(t *testing.T) {
	p := serve(t, t.TempDir(), "--dev")
	p.must("put", "hello", "world")
	assert.Equal(t, "world", p.must("get", "hello"), "the very bytes, no newline")

	// The same key and value in every spelling.
	r := p.kvdWith("\x00\xff\n", "put", "--hex", "6b00ff", "-")
	require.Zero(t, r.code, r.err)
	assert.Equal(t, "00ff0a\n", p.must("get", "--hex", "6b00ff"))
	assert.Equal(t, "AP8K\n", p.must("get", "--base64", "awD/"))
	assert.Equal(t, `\x00\xff\x0a`+"\n", p.must("get", "--escaped", `k\x00\xff`))
	p.must("put", "-e", `k\x00\xff`, `a\\b`)
	assert.Equal(t, "615c62\n", p.must("get", "--hex", "6b00ff"))

	p.must("put", "empty", "")
	r = p.kvd("get", "empty")
	assert.Equal(t, result{}, r, "an empty value is a value")

	p.must("del", "hello", "empty", "never there")
	for _, key := range []string{"hello", "empty"} {
		r = p.kvd("get", key)
		assert.Equal(t, exitNotFound, r.code)
		assert.Contains(t, r.err, "not found")
	}
}

// A command finds the one server that listens among several addresses.
func TestSeveralAddresses(t *testing.T) {
	p := serve(t, t.TempDir(), "--dev")
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	closed := free.Addr().String()
	require.NoError(t, free.Close())
	several := closed + "," + p.addr
	p.must("put", "--addr", several, "hello", "world")
	assert.Equal(t, "world", p.must("get", "--addr", several, "hello"))
	assert.Equal(t, "hello\tworld\n", p.must("scan", "--addr", several))
	p.must("health", "--addr", several)
	r := p.kvd("get", "--addr", p.addr+",,", "hello")
	assert.Equal(t, daemon.ExitUsage, r.code)
	assert.Contains(t, r.err, "endpoint 2")
}

func TestScanFormats(t *testing.T) {
	p := serve(t, t.TempDir(), "--dev")
	for _, key := range []string{"a", "b/1", "b/2", "c"} {
		p.must("put", key, "value of "+key)
	}
	assert.Equal(t, "a\tvalue of a\nb/1\tvalue of b/1\nb/2\tvalue of b/2\nc\tvalue of c\n", p.must("scan"))
	assert.Equal(t, "b/1\nb/2\n", p.must("scan", "--prefix", "b/", "--keys-only"))
	assert.Equal(t, "b/1\tvalue of b/1\nb/2\tvalue of b/2\n", p.must("scan", "--start", "b", "--end", "c"))
	assert.Equal(t, "a\nb/1\n", p.must("scan", "--limit", "2", "--keys-only"))
	assert.Equal(t, "a    value of a\nb/1  value of b/1\nb/2  value of b/2\nc    value of c\n", p.must("scan", "-o", "table"))
	assert.Equal(t, `{"key":"a","value":"value of a","version":1}`+"\n", p.must("scan", "-o", "json", "--end", "b"))
	assert.Equal(t, `{"key":"a","version":1}`+"\n", p.must("scan", "-o", "json", "--end", "b", "--keys-only"))
	assert.Equal(t, "622f31\t76616c7565206f6620622f31\n", p.must("scan", "--hex", "--prefix", "622f31"))
	assert.Empty(t, p.must("scan", "--prefix", "nothing"))
	assert.Equal(t, "c\nb/2\n", p.must("scan", "--reverse", "--limit", "2", "--keys-only"))
	assert.Equal(t, "b/1\tvalue of b/1\na\tvalue of a\n", p.must("scan", "--reverse", "--end", "b/2"))
	assert.Equal(t, "4\n", p.must("scan", "--count"))
	assert.Equal(t, "2\n", p.must("scan", "--count", "--prefix", "b/"))
	assert.Equal(t, "4\n", p.must("scan", "--count", "--stale", "1s", "--min-version", "1"), "a single node answers it as any other")
	assert.Equal(t, "value of a", p.must("get", "a", "--stale", "1s", "--min-version", "1"))
	for _, args := range [][]string{{"get", "a"}, {"scan"}} {
		r := p.kvd(append(args, "--stale", "-1s")...)
		assert.Equal(t, daemon.ExitUsage, r.code)
		assert.Contains(t, r.err, "--stale -1s is negative")
	}
	assert.Equal(t, "1\n", p.must("scan", "--count", "--start", "b/2", "--limit", "1", "--reverse"))
	assert.Equal(t, "0\n", p.must("scan", "--count", "--prefix", "nothing"))
}

func TestExportAndImportKeepEveryByte(t *testing.T) {
	from, to := serve(t, t.TempDir(), "--dev"), serve(t, t.TempDir(), "--dev")
	var lines strings.Builder
	for i := range 500 {
		l := line{Key: fmt.Appendf(nil, "key/%d", i), Value: []byte(strings.Repeat("ä", i))}
		if i%3 == 0 {
			l = line{Key: []byte{0xff, byte(i), byte(i >> 8)}, Value: []byte{0, byte(i), '\n', 0x80}}
		}
		require.NoError(t, l.write(&lines))
	}
	r := from.kvdWith(lines.String(), "import", "-")
	require.Zero(t, r.code, r.err)
	assert.Contains(t, r.err, "500 lines")

	file := filepath.Join(t.TempDir(), "export.jsonl")
	from.must("export", file)
	r = from.kvd("export", file)
	assert.Equal(t, 64, r.code, "nothing is overwritten")
	to.must("import", file)
	digest := from.must("digest")
	assert.Regexp(t, `^[0-9a-f]{32} 500\n$`, digest)
	assert.Equal(t, digest, to.must("digest"))
	again := filepath.Join(t.TempDir(), "again.jsonl")
	to.must("export", again)
	first, err := os.ReadFile(file)
	require.NoError(t, err)
	second, err := os.ReadFile(again)
	require.NoError(t, err)
	assert.True(t, bytes.Equal(first, second), "exports of equal contents are equal")
	to.must("import", file)
	assert.Equal(t, digest, to.must("digest"), "importing again does no harm")
}

func TestTheLastOfSeveralLinesWithAKeyWins(t *testing.T) {
	p := serve(t, t.TempDir(), "--dev")
	var lines strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&lines, "{\"key\":\"key/%d\",\"value\":\"%d\"}\n", i%7, i)
	}
	r := p.kvdWith(lines.String(), "import")
	require.Zero(t, r.code, r.err)
	for i := range 7 {
		last := 1999
		for last%7 != i {
			last--
		}
		assert.Equal(t, fmt.Sprint(last), p.must("get", fmt.Sprintf("key/%d", i)))
	}
}

func TestABadLineEndsTheImportWithItsNumberAndResumeGoesOn(t *testing.T) {
	p := serve(t, t.TempDir())
	dir := t.TempDir()
	file, state := filepath.Join(dir, "in.jsonl"), filepath.Join(dir, "state")
	good := func(i int) string { return fmt.Sprintf("{\"key\":\"key/%03d\",\"value\":\"%d\"}\n", i, i) }
	var lines []string
	for i := range 100 {
		lines = append(lines, good(i))
	}
	lines[60] = "{\"key\":\"key/060\",\"vlaue\":\"60\"}\n"
	lines[70] = "\n" // an empty line is none
	require.NoError(t, os.WriteFile(file, []byte(strings.Join(lines, "")), 0o600))

	r := p.kvd("import", file, "--resume", state)
	assert.Equal(t, 64, r.code)
	assert.Contains(t, r.err, "line 61:")
	assert.Contains(t, r.err, "vlaue")
	assert.Equal(t, 60, strings.Count(p.must("scan", "--keys-only"), "\n"), "what stands before it is there")
	saved, err := os.ReadFile(state)
	require.NoError(t, err)
	sum := xxhash.Sum64String(strings.Join(lines[:60], ""))
	assert.Equal(t, fmt.Sprintf("{\"source\":%q,\"lines\":60,\"checksum\":\"%016x\"}\n", file, sum), string(saved))

	// The first sixty are not written again.
	p.must("put", "key/000", "newer")
	lines[60] = good(60)
	require.NoError(t, os.WriteFile(file, []byte(strings.Join(lines, "")), 0o600))
	r = p.kvd("import", file, "--resume", state)
	require.Zero(t, r.code, r.err)
	assert.Equal(t, 99, strings.Count(p.must("scan", "--keys-only"), "\n"))
	assert.Equal(t, "60", p.must("get", "key/060"))
	assert.Equal(t, "newer", p.must("get", "key/000"))

	for _, wrong := range [][]string{
		{"import", "-", "--resume", state},
		{"import", file, "--resume", file},
		{"import", file, "--resume", state, "--durability", "memory"},
		{"import", filepath.Join(dir, "nothing")},
		{"import", file, "--in-flight", "0"},
	} {
		assert.Equal(t, 64, p.kvd(wrong...).code, wrong)
	}
}

func TestAnImportEndsWhenTheServerDoes(t *testing.T) {
	p := serve(t, t.TempDir())
	require.Zero(t, p.end(syscall.SIGTERM))
	r := saying(t, "is the server running", 200*time.Millisecond, func(timeout string) result {
		return p.kvdWith(`{"key":"a","value":"b"}`, "import", "--timeout", timeout)
	})
	assert.Equal(t, exitUnavailable, r.code, r.err)
	assert.Contains(t, r.err, "line 1:")
}

func TestNobodyThereIsExitCode5AndSaysWhatToDo(t *testing.T) {
	for _, args := range [][]string{{"get", "a"}, {"put", "a", "b"}, {"scan"}, {"health"}, {"digest"}} {
		r := saying(t, "kvd serve", 300*time.Millisecond, func(timeout string) result {
			return command(t, "", nil, append(args, "--addr", "127.0.0.1:1", "--timeout", timeout)...)
		})
		assert.Equal(t, exitUnavailable, r.code, "%v: %s", args, r.err)
	}
}

func TestHelpVersionAndCompletionNeedNoServer(t *testing.T) {
	r := command(t, "", nil)
	assert.Zero(t, r.code)
	assert.Contains(t, r.out, "serve")
	r = command(t, "", nil, "serve", "--help")
	assert.Zero(t, r.code)
	assert.Contains(t, r.out, "$KVD_MAX_SYNC_TIME")
	r = command(t, "", nil, "version", "-o", "json")
	assert.Zero(t, r.code)
	assert.Contains(t, r.out, `"version":`)
	r = command(t, "", nil, "completion", "bash")
	assert.Zero(t, r.code)
	assert.Contains(t, r.out, "bash completion")
}

func TestDumpPrintsAFileOfAStoppedStore(t *testing.T) {
	dir := t.TempDir()
	p := serve(t, dir)
	p.must("put", "-e", `a\x00`, strings.Repeat("long", 50))
	require.Zero(t, p.end(syscall.SIGTERM))
	r := command(t, "", nil, "dump", filepath.Join(dir, "STORE"))
	assert.Zero(t, r.code)
	assert.Contains(t, r.out, "partitions  3")
	segment := filepath.Join(dir, findFile(t, dir, ".wal"))
	r = command(t, "", nil, "dump", segment)
	require.Zero(t, r.code, r.err)
	assert.Contains(t, r.out, `1 put "a\x00" = "longlong`)
	assert.Contains(t, r.out, "(200 bytes)")
	r = command(t, "", nil, "dump", "--values", segment)
	assert.Contains(t, r.out, `"`+strings.Repeat("long", 50)+`"`)
	assert.Equal(t, 64, command(t, "", nil, "dump", binary).code)
}
