package engine

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/partition"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// A transaction that is under way when the store is closed does not commit if what it has read, in
// a partition that is closed already, was written since.
func TestATransactionDoesNotMissAConflictWhileTheStoreCloses(t *testing.T) {
	disk := faultfs.Wrap(vfs.NewMem(), nil)
	e, err := Open("data", small(disk))
	require.NoError(t, err)
	read, written := []byte(keysIn(e, 0, 1)[0]), []byte(keysIn(e, 3, 1)[0])
	put(t, e, string(read), "1", synced)
	s, err := e.BeginSnapshot(t.Context(), time.Minute)
	require.NoError(t, err)
	put(t, e, string(read), "2", synced)

	// The write that conflicts is in a sealed memtable, which is not flushed before the store closes.
	disk.SetInjector(faultfs.FailAt(0, syscall.EIO, true, faultfs.OnKind(faultfs.Create), faultfs.OnName("*.sst")))
	e.partitions[0].Seal()
	testwait.Until(t, e.partitions[0].FlushPending, "the memtable is sealed")

	// Commit has come up to where it proposes.
	to, err := e.writable(false)
	require.NoError(t, err)
	var b kv.WriteBatch
	b.Put(written, []byte("depends on 1"))
	p := e.newProposal(to, &b, synced)
	p.read(read, s.Version)

	// A get of the first partition is under way, so Close waits for it before it goes on to the others.
	get := partition.BeginLookup([]partition.ReadShare{{Partition: e.partitions[0]}})
	closed := make(chan error, 1)
	go func() { closed <- e.Close() }()
	testwait.Until(t, func() bool { return !e.partitions[0].FlushPending() }, "the first partition reads no more memtables")

	c, err := e.propose(t.Context(), p)
	if err == nil {
		_, err = e.await(t.Context(), to, c, synced, &stopwatch{})
	}
	get.End()
	<-closed
	require.ErrorIs(t, err, kv.ErrClosed, "the key that the transaction has read was written since")
}
