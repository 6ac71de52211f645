package faultfs

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/vfs"
)

// SyncParents passes over directories that the process may not open, and reports other errors.
func TestSyncParentsReportsErrors(t *testing.T) {
	for _, fault := range []error{syscall.EACCES, syscall.EIO} {
		m := vfs.NewMem()
		require.NoError(t, m.MkdirAll("a/b"))
		err := vfs.SyncParents(Wrap(m, FailAt(1, fault, false, OnKind(SyncDir))), "a/b")
		if fault == syscall.EIO {
			require.ErrorIs(t, err, fault)
		} else {
			require.NoError(t, err)
		}
	}
}
