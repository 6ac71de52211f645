package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// jsonLines returns a line for each key.
func jsonLines(keys ...string) string {
	var b strings.Builder
	for _, key := range keys {
		fmt.Fprintf(&b, "{\"key\":%q,\"value\":\"1\"}\n", key)
	}
	return b.String()
}

// TestAFinishedImportHidesNoLaterInput: the file of --resume is of an import that is complete. Another
// input of the same name, such as standard input of the next night, is refused; it is not passed
// over with exit code 0.
func TestAFinishedImportHidesNoLaterInput(t *testing.T) {
	for _, monday := range []string{jsonLines("monday/1", "monday/2"), ""} {
		p := serve(t, t.TempDir())
		state := filepath.Join(t.TempDir(), "state")
		r := p.kvdWith(monday, "import", "--resume", state)
		require.Zero(t, r.code, r.err)
		tuesday := jsonLines("tuesday/1", "tuesday/2", "tuesday/3")
		r = p.kvdWith(tuesday, "import", "--resume", state)
		assert.Equal(t, 64, r.code, r.err)
		assert.Contains(t, r.err, state+" says that the import of standard input is complete; remove it")
		assert.Equal(t, "0\n", p.must("scan", "--prefix", "tuesday/", "--count"))

		require.NoError(t, os.Remove(state))
		r = p.kvdWith(tuesday, "import", "--resume", state)
		require.Zero(t, r.code, r.err)
		assert.Equal(t, "3\n", p.must("scan", "--prefix", "tuesday/", "--count"))
	}
}

// TestAnInterruptedImportGoesOnOnlyWithItsInput: an input that does not begin with the lines that
// are durable is another one. Nothing of it is imported, and the file of --resume stays.
func TestAnInterruptedImportGoesOnOnlyWithItsInput(t *testing.T) {
	p := serve(t, t.TempDir())
	state := filepath.Join(t.TempDir(), "state")
	r := p.kvdWith(jsonLines("a", "b")+"bad\n", "import", "--resume", state)
	require.Equal(t, 64, r.code, r.err)
	saved, err := os.ReadFile(state)
	require.NoError(t, err)
	for input, want := range map[string]string{
		jsonLines("a", "x", "c", "d"): "the input begins with other lines",
		jsonLines("b", "a", "c"):      "the input begins with other lines",
		jsonLines("a"):                "the input ends after line 1",
		"":                            "the input ends after line 0",
	} {
		r := p.kvdWith(input, "import", "--resume", state)
		assert.Equal(t, 64, r.code, r.err)
		assert.Contains(t, r.err, want)
		assert.Contains(t, r.err, state)
		assert.Equal(t, "2\n", p.must("scan", "--count"), input)
		now, err := os.ReadFile(state)
		require.NoError(t, err)
		assert.Equal(t, string(saved), string(now))
	}
	r = p.kvdWith(jsonLines("a", "b", "c"), "import", "--resume", state)
	require.Zero(t, r.code, r.err)
	assert.Equal(t, "3\n", p.must("scan", "--count"))
}

// TestAnImportGoesOnFromAStateWithoutChecksum: earlier versions wrote such a file. The state that
// replaces it has the checksum of all lines.
func TestAnImportGoesOnFromAStateWithoutChecksum(t *testing.T) {
	p := serve(t, t.TempDir())
	state := filepath.Join(t.TempDir(), "state")
	require.NoError(t, os.WriteFile(state, []byte(`{"source":"standard input","lines":1}`), 0o600))
	input := jsonLines("a", "b")
	r := p.kvdWith(input, "import", "--resume", state)
	require.Zero(t, r.code, r.err)
	assert.Equal(t, "1\n", p.must("scan", "--count"), "the first line is passed over")
	saved, err := os.ReadFile(state)
	require.NoError(t, err)
	assert.Equal(t, fmt.Sprintf("{\"source\":\"standard input\",\"lines\":2,\"checksum\":\"%016x\",\"complete\":true}\n", xxhash.Sum64String(input)), string(saved))
}
