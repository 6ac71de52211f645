package main

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestASecondSignalLeavesNoStore: the first one waits for an operation that takes a minute.
func TestASecondSignalLeavesNoStore(t *testing.T) {
	program, err := os.Executable()
	require.NoError(t, err)
	dir := t.TempDir()
	c := exec.Command(program, strings.Fields("run --mix WRITE_ONLY --threads 1 --keys 20 --value-size 100 --duration 1h --linger 1m")...)
	c.Dir, c.Env = dir, append(os.Environ(), childVariable+"=1")
	stderr, err := c.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	defer func() { _ = c.Process.Kill() }() // it may have ended
	lines := bufio.NewScanner(stderr)
	var all bytes.Buffer
	until := func(says string) {
		for lines.Scan() {
			all.WriteString(lines.Text() + "\n")
			if strings.Contains(lines.Text(), says) {
				return
			}
		}
		t.Fatalf("no line says %q: %s", says, all.String())
	}
	until("ops/s")
	made, err := filepath.Glob(filepath.Join(dir, "kvbench-data-*"))
	require.NoError(t, err)
	assert.Len(t, made, 1)
	require.NoError(t, c.Process.Signal(os.Interrupt))
	until("another signal ends it at once")
	require.NoError(t, c.Process.Signal(os.Interrupt))
	for lines.Scan() {
		all.WriteString(lines.Text() + "\n")
	}
	var exit *exec.ExitError
	require.ErrorAs(t, c.Wait(), &exit)
	assert.Equal(t, exitError, exit.ExitCode(), all.String())
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	assert.Empty(t, left)
}

// TestACommandThatEndsByItselfSaysNothingOfSignals: as it would if the end of the command ended
// its context like a signal.
func TestACommandThatEndsByItselfSaysNothingOfSignals(t *testing.T) {
	program, err := os.Executable()
	require.NoError(t, err)
	for range 20 {
		c := exec.Command(program, "--help")
		c.Env = append(os.Environ(), childVariable+"=1")
		var stderr bytes.Buffer
		c.Stderr = &stderr
		require.NoError(t, c.Run())
		assert.Empty(t, stderr.String())
	}
}

// TestAStoreThatCannotBeRemovedIsNamed by a process that ends at once.
func TestAStoreThatCannotBeRemovedIsNamed(t *testing.T) {
	t.Chdir(t.TempDir())
	var s storeDirectories
	kept, err := s.make()
	require.NoError(t, err)
	removed, err := s.make()
	require.NoError(t, err)
	require.NoError(t, s.remove(removed))
	const impossible = "/no such\x00name"
	s.dirs[impossible] = struct{}{}
	var out bytes.Buffer
	s.abandon(&out)
	assert.Equal(t, 1, strings.Count(out.String(), "\n"))
	assert.Contains(t, out.String(), "remove the store in "+impossible+", which is left: ")
	assert.NoDirExists(t, kept)
}
