package engine

import (
	"errors"
	"io/fs"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// A checkpoint may end at every place where the call that makes it waits: the disk gets full, or
// the store is closed. The call returns the reason and keeps nothing.
func TestACheckpointThatEndsWhileItIsMade(t *testing.T) {
	type waiting struct {
		gate  *gate
		early bool // before the checkpoint has a version
	}
	places := map[string]func() waiting{
		"for its version": func() waiting { return waiting{newGate(faultfs.Sync, "*.wal"), true} },
		"for a sync":      func() waiting { return waiting{newGate(faultfs.Sync, "*.wal"), false} },
		"for a segment":   func() waiting { return waiting{newGate(faultfs.Open, "*.wal"), false} },
		"for a segment that goes": func() waiting {
			g := newGate(faultfs.Open, "*.wal")
			g.fault.Err = fs.ErrNotExist
			return waiting{g, false}
		},
	}
	reasons := map[string]error{"the disk is full": kv.ErrVersionGone, "the store is closed": kv.ErrClosed}
	for place, prepare := range places {
		for reason, want := range reasons {
			t.Run(place+", "+reason, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := prepare()
					disk := faultfs.Wrap(vfs.NewMem(), nil)
					e := open(t, small(disk))
					put(t, e, "flushed", "v", synced)
					require.NoError(t, e.Flush(t.Context()))
					defer w.gate.open()
					disk.SetInjector(w.gate)
					if w.early {
						// The second write is acknowledged, and visible once the first one is.
						keys := keysIn(e, 0, 2)
						go func() { _, _ = e.Put(t.Context(), []byte(keys[0]), []byte("v"), synced) }()
						synctest.Wait()
						put(t, e, keys[1], "v", buffered)
					} else {
						put(t, e, "in the log", "v", memory)
					}
					type result struct {
						c   *Checkpoint
						err error
					}
					made := make(chan result, 1)
					go func() {
						c, err := e.Checkpoint(t.Context(), 0)
						made <- result{c, err}
					}()
					synctest.Wait()
					require.Empty(t, made, "it waits")
					count, _ := e.checkpoints.oldest()
					require.Equal(t, 1, count)

					closed := make(chan error, 1)
					if errors.Is(want, kv.ErrClosed) {
						go func() { closed <- e.Close() }()
						synctest.Wait()
					} else {
						e.checkpoints.end(errCheckpointEnded)
						closed <- nil
					}
					count, _ = e.checkpoints.oldest()
					require.Zero(t, count)
					w.gate.open()
					r := <-made
					require.ErrorIs(t, r.err, want)
					assert.Nil(t, r.c)
					assert.Zero(t, e.snapshots.count(), "no lease keeps its version")
					require.NoError(t, <-closed)
				})
			})
		}
	}
}
