package engine

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// A snapshot that needs a version of its own, since the clock has advanced, begins also while the disk
// takes no write, as when its file system is frozen.
func TestASnapshotBeginsWhileTheDiskIsFrozen(t *testing.T) {
	tt := newTestTime()
	disk := faultfs.Wrap(vfs.NewMem(), nil)
	o := small(disk)
	o.time = tt.source()
	e := open(t, o)
	putFor(t, e, "a", "v", time.Hour, kv.DurabilityMemory)
	first := begin(t, e, time.Minute)
	tt.pass(time.Second)

	thaw := make(chan struct{})
	disk.SetInjector(faultfs.At(0, true, faultfs.Fault{Delay: func() { <-thaw }}, faultfs.OnKind(faultfs.Write), faultfs.OnName("*.wal")))
	begun := make(chan kv.Snapshot, 1)
	go func() {
		s, _ := e.BeginSnapshot(context.Background(), time.Minute)
		begun <- s
	}()
	second, ok := testwait.Receive(t, begun, "the snapshot begins")
	close(thaw)
	require.True(t, ok)
	require.Greater(t, second.Version, first.Version)
	requireAt(t, e, second, "a", "v")
}
