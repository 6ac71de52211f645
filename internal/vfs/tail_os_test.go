//go:build unix

package vfs

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTailWithoutWindows: a file that cannot be mapped, here because it may not be read,
// is written to all the same.
func TestTailWithoutWindows(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a")
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o600)
	require.NoError(t, err)
	f := &osFile{File: file}
	defer closeFile(t, f)
	tail := NewTail(f)
	require.NoError(t, tail.Write([]byte("first "), 0, true))
	require.NoError(t, tail.Write([]byte("second"), 6, true))
	require.Nil(t, tail.mapper)
	require.NoError(t, tail.Close())
	requireTail(t, []byte("first second"), read(t, OS, name))
}

// TestTailTellsErrorsOfTheDisk: of WriteAt, and of a page that is mapped but that the
// kernel cannot have, here because the file has become too short for it.
func TestTailTellsErrorsOfTheDisk(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a")
	f := create(t, OS, name, "")
	tail := NewTail(f)
	require.NoError(t, tail.Write([]byte("first"), 0, true))
	if tail.window == nil {
		t.Skip("no windows here")
	}
	require.NoError(t, f.Truncate(0))
	err := tail.Write([]byte("second"), 5, true)
	require.ErrorIs(t, err, syscall.EIO)
	require.ErrorContains(t, err, name)
	require.NoError(t, tail.Close())
	closeFile(t, f)

	for _, more := range []bool{false, true} {
		readOnly, err := OS.Open(name)
		require.NoError(t, err)
		tail := NewTail(readOnly)
		require.ErrorIs(t, tail.Write([]byte("third"), 0, more), syscall.EBADF)
		require.NoError(t, tail.Close())
		closeFile(t, readOnly)
	}
}

// TestTailPassesPanicsOn: only what the disk did becomes an error.
func TestTailPassesPanicsOn(t *testing.T) {
	tail := Tail{window: make([]byte, 10)}
	require.Panics(t, func() { _, _ = tail.fill([]byte("piece"), 11) })
}

const tailHelperEnv = "KVD_VFS_TAIL_HELPER"

// TestTailOutlivesItsProcess starts this test binary again, which writes pieces, tells
// of each and is killed.
func TestTailOutlivesItsProcess(t *testing.T) {
	if name := os.Getenv(tailHelperEnv); name != "" {
		f, err := OS.OpenReadWrite(name)
		require.NoError(t, err)
		tail := NewTail(f)
		for off := int64(0); ; off++ {
			require.NoError(t, tail.Write([]byte("x"), off, true))
			_, err := os.Stdout.WriteString("x")
			require.NoError(t, err)
		}
	}
	name := filepath.Join(t.TempDir(), "a")
	closeFile(t, create(t, OS, name, ""))
	cmd := exec.Command(os.Args[0], "-test.run=^TestTailOutlivesItsProcess$")
	cmd.Env = append(os.Environ(), tailHelperEnv+"="+name)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	_, err = io.CopyN(io.Discard, out, 10_000)
	require.NoError(t, err)
	require.NoError(t, cmd.Process.Kill())
	rest, err := io.ReadAll(out)
	require.NoError(t, err)
	require.Error(t, cmd.Wait())
	written := bytes.TrimRight([]byte(read(t, OS, name)), "\x00")
	require.GreaterOrEqual(t, len(written), 10_000+len(rest))
	require.Empty(t, bytes.Trim(written, "x"))
}
