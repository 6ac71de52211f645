package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/results"
)

// redrawn returns the page of a report, which kvbench report must draw again to the letter.
func redrawn(t *testing.T, dir string) string {
	t.Helper()
	page := filepath.Join(dir, results.ReportFile)
	before, err := os.ReadFile(page)
	require.NoError(t, err)
	require.NoError(t, os.Remove(page))
	var stderr bytes.Buffer
	require.Equal(t, exitOK, execute(t.Context(), []string{"report", dir}, io.Discard, &stderr, nil), stderr.String())
	after, err := os.ReadFile(page)
	require.NoError(t, err)
	assert.Equal(t, string(before), string(after))
	return string(after)
}

// refuses runs a command with each of several arguments, which are wrong, and looks for the
// reason in what it says.
func refuses(t *testing.T, command string, wrong map[string][]string) {
	t.Helper()
	for says, args := range wrong {
		r := runCommand(t, t.Context(), nil, append([]string{command}, args...)...)
		assert.Equal(t, exitUsage, r.code, says)
		assert.Contains(t, r.stderr, says)
	}
}
