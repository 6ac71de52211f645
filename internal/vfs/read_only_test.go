package vfs

import (
	"errors"
	"io"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A Mem that is read-only refuses each change, also through files that were opened before,
// and goes on to be read.
func TestReadOnlyMemRefusesEveryChange(t *testing.T) {
	m := NewMem()
	require.NoError(t, m.MkdirAll("d"))
	f, err := m.Create("d/f")
	require.NoError(t, err)
	_, err = f.WriteAt([]byte("abc"), 0)
	require.NoError(t, err)
	lock := func(name string) error {
		held, err := m.Lock(name)
		if err == nil {
			err = held.Close()
		}
		return err
	}
	open := func(name string, open func(string) (File, error)) error {
		g, err := open(name)
		if err == nil {
			err = g.Close()
		}
		return err
	}
	changes := map[string]func() error{
		"create":    func() error { return open("d/g", m.Create) },
		"open":      func() error { return open("d/f", m.OpenReadWrite) },
		"remove":    func() error { return m.Remove("d/f") },
		"none":      func() error { return m.Remove("d/none") },
		"rename":    func() error { return m.Rename("d/f", "d/g") },
		"mkdir":     func() error { return m.MkdirAll("d/e") },
		"syncdir":   func() error { return m.SyncDir("d") },
		"lock":      func() error { return lock("d/f") },
		"lock none": func() error { return lock("d/LOCK") },
		"write":     func() error { _, err := f.WriteAt([]byte("x"), 0); return err },
		"truncate":  func() error { return f.Truncate(1) },
		"reserve":   func() error { return f.Reserve(3, 10) },
		"sync":      f.Sync,
	}
	m.SetReadOnly(true)
	for name, change := range changes {
		require.ErrorIs(t, change(), syscall.EROFS, name)
	}
	names, err := m.List("d")
	require.NoError(t, err)
	assert.Equal(t, []string{"f"}, names)
	require.NoError(t, m.MkdirAll("d"), "it is there")
	_, err = m.Stat("d/f")
	require.NoError(t, err)
	_, err = m.Usage("d")
	require.NoError(t, err)
	shared, err := m.LockExisting("d", true)
	require.NoError(t, err)
	require.NoError(t, shared.Close())
	require.NoError(t, open("d/f", m.Open))
	_, err = m.OpenReadWrite("d/none")
	require.ErrorIs(t, err, syscall.ENOENT)
	_, err = m.Create("d/f")
	require.ErrorIs(t, err, syscall.EEXIST)
	got := make([]byte, 4)
	n, err := f.ReadAt(got, 0)
	require.ErrorIs(t, err, io.EOF)
	assert.Equal(t, "abc", string(got[:n]))
	_, err = m.KillImage().Create("g")
	require.NoError(t, err, "an image is writable")

	m.SetReadOnly(false)
	for _, name := range []string{"write", "sync", "reserve", "truncate", "create", "open", "mkdir", "syncdir", "lock", "lock none"} {
		require.NoError(t, changes[name](), name)
	}
	require.NoError(t, errors.Join(m.Remove("d/f"), f.Close()))
}
