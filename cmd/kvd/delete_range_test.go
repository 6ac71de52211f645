package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// withKeys is a server that holds a, k/00 to k/11, z and a key of a single 0xff.
func withKeys(t *testing.T) *process {
	p := serve(t, t.TempDir(), "--dev")
	var lines strings.Builder
	for _, key := range []string{"a", "z"} {
		fmt.Fprintf(&lines, "{\"key\":%q,\"value\":\"\"}\n", key)
	}
	for i := range 12 {
		fmt.Fprintf(&lines, "{\"key\":\"k/%02d\",\"value\":\"\"}\n", i)
	}
	fmt.Fprintln(&lines, `{"key_base64":"/w==","value":""}`)
	r := p.kvdWith(lines.String(), "import")
	require.Zero(t, r.code, r.err)
	return p
}

func (p *process) keys() string { return p.must("scan", "-e", "--keys-only") }

func TestARangeIsRemovedAndNothingElse(t *testing.T) {
	p := withKeys(t)
	p.must("del", "--start", "k/02", "--end", "k/10")
	assert.Equal(t, "a\nk/00\nk/01\nk/10\nk/11\nz\n\\xff\n", p.keys())
	p.must("del", "--prefix", "k/1")
	assert.Equal(t, "a\nk/00\nk/01\nz\n\\xff\n", p.keys())
	p.must("del", "--end", "k/01")
	assert.Equal(t, "k/01\nz\n\\xff\n", p.keys())
	p.must("del", "--hex", "--prefix", "ff") // a prefix that no key is above
	assert.Equal(t, "k/01\nz\n", p.keys())
	p.must("del", "--start", "l")
	assert.Equal(t, "k/01\n", p.keys())
	p.must("del", "--start", "l", "--yes")
	assert.Equal(t, "k/01\n", p.keys(), "an empty range is no error")
	p.must("del", "--start", "z", "--end", "a")
	assert.Equal(t, "k/01\n", p.keys(), "a range that ends before it starts holds no key")
	r := p.kvdWith("delrange a\n", "txn")
	require.Zero(t, r.code, r.err)
	assert.Empty(t, p.keys(), "a range delete of a script may have no end")
}

func TestEverythingGoesOnlyWithAll(t *testing.T) {
	p := withKeys(t)
	before := p.keys()
	for _, args := range [][]string{
		{"del", "--prefix", "", "--yes"}, {"del", "--start", "", "--yes"}, {"del", "--end", "", "--yes"}, {"del", "--yes"},
		{"del", "--hex", "--start", "00", "--yes"},
	} {
		assert.Equal(t, 64, p.kvd(args...).code, args)
	}
	assert.Equal(t, before, p.keys())
	p.must("del", "--all", "--yes")
	assert.Empty(t, p.keys())
	p.must("del", "--all", "-y")
	p.must("put", "--hex", "00", "")
	p.must("del", "--all", "-y")
	assert.Empty(t, p.keys(), "the first of all keys is one")
}

func TestADryRunShowsWhatWouldGoAndRemovesNothing(t *testing.T) {
	p := withKeys(t)
	before := p.keys()
	assert.Equal(t, "keys that would go: 12\n"+
		"  k/00\n  k/01\n  k/02\n  k/03\n  k/04\n  k/05\n  k/06\n  k/07\n  k/08\n  k/09\n  and 2 more\n",
		p.must("del", "--prefix", "k/", "--dry-run", "--yes"))
	assert.Equal(t, "keys that would go: 2\n  z\n  \\xff\n", p.must("del", "--start", "z", "--dry-run"))
	assert.Equal(t, "keys that would go: 0\n", p.must("del", "--prefix", "none", "--dry-run"))
	assert.Contains(t, p.must("del", "--all", "--dry-run"), "keys that would go: 15\n")
	assert.Equal(t, before, p.keys())
}

func TestOnATerminalARangeIsRemovedOnlyAfterYes(t *testing.T) {
	p := withKeys(t)
	before := p.keys()
	const shown = "keys that would go: 2\n  k/10\n  k/11\nRemove them? [y/N] "
	for _, answer := range []string{"n\n", "\n", "yellow\n"} {
		r := p.atTerminal(answer, "del", "--prefix", "k/1")
		assert.Equal(t, 1, r.code, "%q: %s", answer, r.err)
		assert.True(t, strings.HasPrefix(r.err, shown), r.err)
		assert.Contains(t, r.err, "nothing was removed")
	}
	assert.Equal(t, before, p.keys())
	r := p.atTerminal("", "del", "--prefix", "none")
	assert.Equal(t, result{err: "keys that would go: 0\n"}, r, "there is nothing to ask")
	r = p.atTerminal("y\n", "del", "--prefix", "k/1")
	assert.Equal(t, result{err: shown}, r)
	assert.Equal(t, strings.ReplaceAll(before, "k/10\nk/11\n", ""), p.keys())
	r = p.atTerminal("", "del", "--prefix", "k/", "--yes")
	assert.Equal(t, result{}, r)
	assert.Equal(t, "a\nz\n\\xff\n", p.keys())
}

// atTerminal runs a client command whose standard input is a terminal on
// which typed is typed.
func (p *process) atTerminal(typed string, args ...string) result {
	p.t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	require.NoError(p.t, err)
	defer func() { require.NoError(p.t, master.Close()) }()
	fd := int(master.Fd())
	require.NoError(p.t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	require.NoError(p.t, err)
	slave, err := os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(p.t, err)
	defer func() { require.NoError(p.t, slave.Close()) }()
	_, err = master.WriteString(typed)
	require.NoError(p.t, err)
	return commandFrom(p.t, slave, []string{"KVD_ADDR=" + p.addr}, args...)
}
