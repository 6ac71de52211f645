package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// An export has its name once it is complete: one that is killed leaves no file that looks like it.
func TestAnExportHasItsNameOnceItIsComplete(t *testing.T) {
	a := &app{}
	dir := t.TempDir()
	file := filepath.Join(dir, "export.jsonl")
	require.NoError(t, a.toFile([]string{file}, func(w io.Writer) error {
		for range 100_000 { // more than is buffered
			_, err := io.WriteString(w, "line\n")
			require.NoError(t, err)
		}
		require.NoFileExists(t, file)
		names := list(t, dir)
		require.Len(t, names, 1)
		assert.Regexp(t, `^export\.jsonl\.\d+\.kvd-tmp$`, names[0])
		return nil
	}))
	info, err := os.Stat(file)
	require.NoError(t, err)
	assert.EqualValues(t, 500_000, info.Size())
	assert.EqualValues(t, 0o600, info.Mode())
	assert.Equal(t, []string{"export.jsonl"}, list(t, dir))
}

// An export that fails leaves nothing, and one whose name was taken meanwhile leaves what has it.
func TestAnExportThatFailsLeavesNothing(t *testing.T) {
	a := &app{}
	dir := t.TempDir()
	file := filepath.Join(dir, "export.jsonl")
	failure := errors.New("the server is gone")
	require.ErrorIs(t, a.toFile([]string{file}, func(io.Writer) error { return failure }), failure)
	assert.Empty(t, list(t, dir))

	err := a.toFile([]string{file}, func(io.Writer) error { return os.WriteFile(file, []byte("another"), 0o600) })
	require.ErrorContains(t, err, "exists already")
	assert.Equal(t, []string{"export.jsonl"}, list(t, dir))
	kept, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, "another", string(kept))
}

// list returns the names in a directory.
func list(t *testing.T, dir string) (names []string) {
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
