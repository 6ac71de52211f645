package main

import (
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/pkg/kvd"
)

// oneBase matches the metric of a partition whose base is one table.
var oneBase = regexp.MustCompile(`kvd_level_files{level="base",partition="[0-9]"} 1\n`)

// page returns an admin page of the server.
func (p *process) page(path string) string {
	p.t.Helper()
	r, err := http.Get("http://" + p.admin + path)
	require.NoError(p.t, err)
	defer func() { _ = r.Body.Close() }()
	require.Equal(p.t, http.StatusOK, r.StatusCode)
	text, err := io.ReadAll(r.Body)
	require.NoError(p.t, err)
	return string(text)
}

// A bit of a table is flipped under the running server: the scrub names the place and its keys,
// and so do the log, a metric and /readyz. The keys answer that the data is lost, all others
// are served.
func TestScrubOfARunningServer(t *testing.T) {
	dir := t.TempDir()
	p := serve(t, dir, "--flush-keys", "200")
	var lines strings.Builder
	for i := range 900 {
		lines.WriteString(`{"key":"key/` + strconv.Itoa(i) + `","value":"` + strings.Repeat("v", 50) + "\"}\n")
	}
	require.Zero(t, p.kvdWith(lines.String(), "import").code)
	testwait.Until(t, func() bool { // one flush in each partition, merged into the base
		page := p.page("/metrics")
		return len(oneBase.FindAllString(page, -1)) == 3
	})
	assert.Contains(t, p.must("scrub"), "whole: ")
	assert.NotContains(t, p.page("/readyz?verbose"), "damaged")
	assert.Contains(t, p.page("/metrics"), "\nkvd_damaged_places 0\n")

	table := findFile(t, dir, ".sst")
	flip(20)(t, filepath.Join(dir, table))
	r := p.kvd("scrub", "--rate", "100MiB")
	assert.Equal(t, 65, r.code, r.err)
	assert.Contains(t, r.out, "DAMAGED "+table+" (table) at offset 0, keys from key/")
	assert.Contains(t, r.err, "damaged: 1 places in 1 of")
	r = p.kvd("scrub", "--json")
	assert.Equal(t, 65, r.code, r.err)
	var damage struct {
		File, Kind, Reason string
		Offset             int64
		First              string `json:"first_key"`
		Last               string `json:"last_key"`
	}
	require.NoError(t, json.Unmarshal([]byte(strings.Split(r.out, "\n")[0]), &damage))
	assert.Equal(t, table, damage.File)
	assert.Contains(t, r.out, `"damaged":1,`)
	assert.Contains(t, p.page("/readyz?verbose"), "[+] data: 1 damaged places, reads of their keys fail; the first is in "+table+" at offset 0")
	assert.Regexp(t, `\nkvd_corruption_total [1-9]`, p.page("/metrics"))
	assert.Contains(t, p.page("/metrics"), "\nkvd_scrub_passes_total 3\n")
	assert.Contains(t, p.page("/metrics"), "\nkvd_damaged_places 1\n")
	assert.Equal(t, 1, strings.Count(p.log.String(), "stored data is damaged"), "told once")
	assert.Contains(t, p.log.String(), table)

	db, err := kvd.Open(p.addr, kvd.WithTimeout(testwait.Left()))
	require.NoError(t, err)
	lost, lostKey := 0, ""
	for i := range 900 {
		key := "key/" + strconv.Itoa(i)
		if _, err := db.Get(t.Context(), []byte(key)); err != nil {
			require.ErrorIs(t, err, kvd.ErrCorrupt, key)
			assert.GreaterOrEqual(t, key, damage.First)
			assert.LessOrEqual(t, key, damage.Last)
			lost, lostKey = lost+1, key
		}
	}
	assert.Positive(t, lost)
	assert.Less(t, lost, 300)
	require.NoError(t, db.Close())
	for _, args := range [][]string{
		{"get", lostKey}, {"put", lostKey, "v", "--if-present"}, {"del", lostKey, "--if-value", "v"},
		{"scan", "--prefix", "key/"}, {"export"}, {"digest"}, {"txn"},
		{"backup", filepath.Join(t.TempDir(), "backups")}, {"backup", "-"}, {"backup", "-", "--digest"},
	} {
		r := p.kvdWith("get "+lostKey+"\nput k v\n", args...)
		assert.Equal(t, 65, r.code, "%v: %s", args, r.err)
		assert.Contains(t, r.err, "kvd scrub lists every damaged place", "%v", args)
	}

	r = p.kvd("del", "--all", "--dry-run")
	assert.Equal(t, 65, r.code, r.err)
	assert.Contains(t, r.out, "and those that cannot be read")
	assert.Contains(t, p.must("del", "--all", "--yes"), "and those that cannot be read")
	assert.Zero(t, p.end(syscall.SIGTERM))
}

func TestScrubWithoutAServer(t *testing.T) {
	r := command(t, "", nil, "scrub", "--addr", "127.0.0.1:1", "--timeout", "100ms")
	assert.Equal(t, 5, r.code, r.err)
	r = command(t, "", nil, "scrub", "--rate", "1")
	assert.Equal(t, 64, r.code, r.err)
	assert.Contains(t, r.err, "16KiB")
}

// Without a table the store is refused. With --allow-damaged it is served but for the keys of
// that table.
func TestAMissingTableIsServedIfAllowed(t *testing.T) {
	dir := t.TempDir()
	p := serve(t, dir, "--flush-keys", "200")
	var lines strings.Builder
	for i := range 900 {
		lines.WriteString(`{"key":"key/` + strconv.Itoa(i) + `","value":"v"}` + "\n")
	}
	require.Zero(t, p.kvdWith(lines.String(), "import").code)
	testwait.Until(t, func() bool { return len(oneBase.FindAllString(p.page("/metrics"), -1)) == 3 })
	require.Zero(t, p.end(syscall.SIGTERM))
	table := findFile(t, dir, ".sst")
	remove(t, filepath.Join(dir, table))
	r := command(t, "", nil, "serve", "--data", dir, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0")
	assert.Equal(t, 65, r.code, r.err)
	assert.Contains(t, r.err, table)
	assert.Contains(t, r.err, "--allow-damaged")

	p = serve(t, dir, "--allow-damaged")
	assert.Contains(t, p.page("/readyz?verbose"), "[+] data: 1 damaged places, reads of their keys fail; the first is in "+table)
	assert.Contains(t, p.log.String(), table)
	db, err := kvd.Open(p.addr, kvd.WithTimeout(testwait.Left()))
	require.NoError(t, err)
	lost, right := 0, 0
	for i := range 900 {
		value, err := db.Get(t.Context(), []byte("key/"+strconv.Itoa(i)))
		if err == nil {
			require.Equal(t, "v", string(value))
			right++
			continue
		}
		require.ErrorIs(t, err, kvd.ErrCorrupt)
		lost++
	}
	assert.Positive(t, lost)
	assert.Greater(t, right, lost)
	require.NoError(t, db.Close())
	assert.Equal(t, 65, p.kvd("scrub").code)
	assert.Zero(t, p.end(syscall.SIGTERM))
}
