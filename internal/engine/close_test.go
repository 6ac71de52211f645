package engine

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// Close returns the error of a manifest that stopped the store, although the log closes
// without one.
func TestCloseReturnsWhyTheStoreFailed(t *testing.T) {
	disk := faultfs.Wrap(vfs.NewMem(), nil)
	e, err := Open("data", small(disk))
	require.NoError(t, err)
	put(t, e, "a", "1", synced)
	disk.SetInjector(faultfs.FailAt(0, syscall.EIO, true, faultfs.OnKind(faultfs.Sync), faultfs.OnName("MANIFEST-*")))
	require.Error(t, e.Flush(t.Context()))
	<-e.Failed()
	err = e.Close()
	require.ErrorIs(t, err, e.Err())
	require.ErrorIs(t, err, kv.ErrFailed)
}
