//go:build unix

package vfs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOSRefusesSymbolicLinks(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "target")
	link := filepath.Join(dir, "link")
	require.NoError(t, os.WriteFile(target, []byte("theirs"), 0o600))
	require.NoError(t, os.Symlink(target, link))

	_, err := OS.Open(link)
	require.Error(t, err)
	_, err = OS.OpenReadWrite(link)
	require.Error(t, err)
	_, err = OS.Lock(link)
	require.Error(t, err)
	_, err = OS.Create(link)
	require.ErrorIs(t, err, os.ErrExist)

	dangling := filepath.Join(dir, "dangling")
	require.NoError(t, os.Symlink(filepath.Join(dir, "victim"), dangling))
	_, err = OS.Create(dangling)
	require.ErrorIs(t, err, os.ErrExist)
	_, err = os.Stat(filepath.Join(dir, "victim"))
	require.ErrorIs(t, err, os.ErrNotExist)

	content, err := os.ReadFile(target)
	require.NoError(t, err)
	require.Equal(t, "theirs", string(content), "a refused lock writes no pid")
}

// A symbolic link in the place of the temporary file must not lead the data
// elsewhere.
func TestWriteAtomicReplacesASymbolicLink(t *testing.T) {
	dir := t.TempDir()
	victim := filepath.Join(dir, "victim")
	require.NoError(t, os.WriteFile(victim, []byte("theirs"), 0o600))
	name := filepath.Join(dir, "CURRENT")
	require.NoError(t, os.Symlink(victim, name+".tmp"))
	require.NoError(t, os.Symlink(victim, name))

	require.NoError(t, WriteAtomic(OS, name, []byte("ours")))
	require.Equal(t, "ours", read(t, OS, name))
	require.Equal(t, "theirs", read(t, OS, victim))
}

func TestOSRefusesWhatIsNoFile(t *testing.T) {
	_, err := OS.Open(os.DevNull)
	require.ErrorContains(t, err, "not a regular file")
}

const lockHelperEnv = "KVD_VFS_LOCK_HELPER"

// TestOSLockHoldsAcrossProcesses starts this test binary again, which tries to
// take the lock that is held here, and then one that is free.
func TestOSLockHoldsAcrossProcesses(t *testing.T) {
	if name := os.Getenv(lockHelperEnv); name != "" {
		_, err := OS.Lock(name)
		require.ErrorIs(t, err, ErrLocked)
		require.ErrorContains(t, err, "pid "+strconv.Itoa(os.Getppid()))
		l, err := OS.Lock(name + "2")
		require.NoError(t, err)
		require.NoError(t, l.Close())
		return
	}
	name := filepath.Join(t.TempDir(), "LOCK")
	l, err := OS.Lock(name)
	require.NoError(t, err)
	cmd := exec.Command(os.Args[0], "-test.run=^TestOSLockHoldsAcrossProcesses$")
	cmd.Env = append(os.Environ(), lockHelperEnv+"="+name)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, l.Close())
}

func TestOSLockOfAnUnreadablePid(t *testing.T) {
	name := filepath.Join(t.TempDir(), "LOCK")
	l, err := OS.Lock(name)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(name, []byte("rm -rf /"), 0o600))
	_, err = OS.Lock(name)
	require.ErrorIs(t, err, ErrLocked)
	require.ErrorContains(t, err, "pid unknown")
	require.NoError(t, l.Close())
}

// TestOSSyncErrorIsFinal: a pipe cannot be synced. What comes after could, but
// must not be tried.
func TestOSSyncErrorIsFinal(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, r.Close())
	f := &osFile{file: w}
	first := f.Sync()
	require.ErrorIs(t, first, syscall.EINVAL)

	f.file, err = os.Create(filepath.Join(t.TempDir(), "a"))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	require.Equal(t, first, f.Sync())
	require.NoError(t, f.Close())
	require.ErrorIs(t, f.Sync(), os.ErrClosed)
}
