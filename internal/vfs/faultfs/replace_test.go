package faultfs

import (
	"errors"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/vfs"
)

// A file whose access cannot be kept, and any other failed step, leaves the old file alone.
func TestReplaceThatFailsLeavesTheOldFile(t *testing.T) {
	for _, kind := range []Kind{Stat, Open, Attributes, Create, SetAccess, SetAttributes, Write, Sync, Rename} {
		m := newMem(t)
		fsys := Wrap(m, FailAt(0, syscall.EPERM, false, OnKind(kind)))
		err := vfs.Replace(fsys, "old", []byte("new"))
		require.ErrorIs(t, err, syscall.EPERM, kind)
		require.Equal(t, kind == Open || kind == Attributes || kind == SetAttributes, errors.Is(err, vfs.ErrAttributes), "%v: %v", kind, err)
		require.Equal(t, "hello", content(t, m, "old"), kind)
		names, err := m.List("/")
		require.NoError(t, err)
		require.Equal(t, []string{"old"}, names, kind)
	}
}
