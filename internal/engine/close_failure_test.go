package engine

import (
	"context"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// A read that waits for a write to become visible ends if the log fails while the store is closed.
func TestAReadEndsIfTheLogFailsWhileTheStoreCloses(t *testing.T) {
	disk := faultfs.Wrap(vfs.NewMem(), nil)
	e, err := Open("data", small(disk))
	require.NoError(t, err)
	keys := keysIn(e, 0, 2)
	put(t, e, keys[0], "0", synced)
	syncs, fail := make(chan struct{}, 64), make(chan struct{})
	chosen := faultfs.OnName("*.wal")
	disk.SetInjector(faultfs.InjectorFunc(func(op faultfs.Op) faultfs.Fault {
		if op.Kind != faultfs.Sync || !chosen(op) {
			return faultfs.Fault{}
		}
		return faultfs.Fault{Err: syscall.EIO, Delay: func() { syncs <- struct{}{}; <-fail }}
	}))
	written := make(chan error, 1)
	go func() {
		_, err := e.Put(context.Background(), []byte(keys[0]), []byte("1"), synced)
		written <- err
	}()
	<-syncs
	put(t, e, keys[1], "2", memory) // early: acknowledged before the write that is older

	read := make(chan error, 1)
	go func() {
		_, err := e.LookupAt(context.Background(), []*kv.Lookup{{Key: []byte(keys[1])}}, 0)
		read <- err
	}()
	testwait.Until(t, func() bool {
		e.sequencer.mu.Lock()
		defer e.sequencer.mu.Unlock()
		return len(e.sequencer.waits) == 1
	}, "the read waits")
	closed := make(chan error, 1)
	go func() { closed <- e.Close() }()
	testwait.Until(t, func() bool {
		e.scheduler.mu.Lock()
		defer e.scheduler.mu.Unlock()
		return e.scheduler.done
	}, "the maintenance loop has ended")
	close(fail)
	require.ErrorIs(t, <-closed, kv.ErrFailed)
	require.ErrorIs(t, <-written, kv.ErrFailed)
	err, ok := testwait.Receive(t, read, "the read ends, since the store is closed")
	require.True(t, ok)
	require.ErrorIs(t, err, kv.ErrFailed)
}
