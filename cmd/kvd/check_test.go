package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/engine"
	"github.com/kvd-db/kvd/internal/kv"
)

// storeOfManyFiles makes a store with a table, a value file and several segments of the log.
func storeOfManyFiles(t *testing.T) (dir string, segments []string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "data")
	e, err := engine.Open(dir, engine.Options{Partitions: 1, SegmentBytes: 64 << 10})
	require.NoError(t, err)
	put := func(from, to int) {
		for i := from; i < to; i++ {
			_, err := e.Put(t.Context(), fmt.Appendf(nil, "key-%03d", i), []byte(strings.Repeat("v", 1000)), kv.WriteOptions{Durability: kv.DurabilityBuffered})
			require.NoError(t, err)
		}
	}
	put(0, 20)
	require.NoError(t, e.Flush(t.Context()))
	put(20, 320)
	require.NoError(t, e.Close())
	segments, err = filepath.Glob(filepath.Join(dir, "wal", "*.wal"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(segments), 5)
	for i := range segments {
		segments[i], err = filepath.Rel(dir, segments[i])
		require.NoError(t, err)
	}
	return dir, segments
}

// The check of a stopped store goes on after damage of the log: the oracle is what the test has
// damaged, and no file besides is blamed.
func TestCheckNamesEveryDamagedFile(t *testing.T) {
	dir, segments := storeOfManyFiles(t)
	requireOK(t, "check", dir)
	damaged := []string{segments[1], segments[3], findFile(t, dir, ".sst"), findFile(t, dir, ".val")}
	for _, name := range damaged {
		flipByte(t, filepath.Join(dir, name), 500)
	}
	flipByte(t, filepath.Join(dir, segments[3]), 30_000) // a second place of one file
	before := tree(t, dir)
	r := command(t, "", nil, "check", dir)
	assert.Equal(t, 65, r.code, r.err)
	for _, name := range damaged {
		assert.Regexp(t, `(?m)^`+regexp.QuoteMeta(name)+` .*corruption in .*`+regexp.QuoteMeta(name)+` at offset [0-9]+: `, r.out)
		assert.Contains(t, r.err, name)
	}
	assert.Contains(t, r.out, "DAMAGED: 4 files")
	assert.Regexp(t, `(?m)^`+regexp.QuoteMeta(segments[3])+` .* at offset [0-9]{1,3}: .* at offset [0-9]{5}: `, r.out)

	r = command(t, "", nil, "check", "--json", dir)
	assert.Equal(t, 65, r.code, r.err)
	var report struct {
		Files   []struct{ Path, Status string }
		Records int
	}
	require.NoError(t, json.Unmarshal([]byte(r.out), &report), r.out)
	var blamed []string
	for _, f := range report.Files {
		if f.Status != "ok" {
			blamed = append(blamed, f.Path)
		}
	}
	slices.Sort(damaged)
	assert.Equal(t, damaged, blamed)
	assert.Greater(t, report.Records, 200, "the records after the damage count")
	assert.Equal(t, before, tree(t, dir), "the check changes nothing")
}

// What the check did not read is not "ok", and the verdict counts it.
func TestCheckCallsNothingOKThatItDidNotRead(t *testing.T) {
	dir, segments := storeOfManyFiles(t)
	table, values, manifest := findFile(t, dir, ".sst"), findFile(t, dir, ".val"), findFile(t, dir, "MANIFEST-")
	for _, c := range []struct {
		damaged   string
		unchecked []string
	}{
		{"p-0000/CURRENT", []string{table, values, manifest}},
		{manifest, []string{table, values}},
		{"STORE", segments},
	} {
		damaged := filepath.Join(t.TempDir(), "data")
		copyStore(t, damaged, dir)
		flipByte(t, filepath.Join(damaged, c.damaged), 20)
		r := command(t, "", nil, "check", damaged)
		assert.Equal(t, 65, r.code, r.err)
		for _, name := range c.unchecked {
			assert.Regexp(t, `(?m)^`+regexp.QuoteMeta(name)+` .* not checked \(`, r.out)
		}
		assert.Contains(t, r.out, fmt.Sprintf("DAMAGED: 1 files, %d files not checked.", len(c.unchecked)))
	}
}
