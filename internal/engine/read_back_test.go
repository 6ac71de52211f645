package engine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/event"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// A bit that flips while a new file is written is detected before the file is installed:
// the flush or compaction fails, reports it, is tried again, and nothing is lost.
func TestDamagedOutputIsNotInstalled(t *testing.T) {
	for name, c := range map[string]struct {
		index int // of the write that is spoilt, among those to such files
		file  string
	}{
		"flush":           {0, "*.sst"},
		"flush of values": {0, "*.val"},
		"compaction":      {1, "*.sst"}, // a delta above an empty base is moved into it at once
	} {
		t.Run(name, func(t *testing.T) {
			disk := faultfs.Wrap(vfs.NewMem(), nil)
			o := small(disk)
			o.Partitions, o.FlushKeys, o.ValueThreshold = 1, 10, 100
			failed, merged := make(chan error, 100), make(chan error, 100)
			corrupt := make(chan error, 100)
			done := func(err error) {
				if err != nil {
					failed <- err
				}
			}
			o.Events = &event.Listener{
				Flush: func(f event.Flush) { done(f.Err) },
				Compaction: func(c event.Compaction) {
					done(c.Err)
					if c.Err == nil {
						merged <- nil
					}
				},
				Corruption: func(err error) { corrupt <- err },
			}
			e, err := Open("data", o)
			require.NoError(t, err)
			spoilt := faultfs.At(c.index, false, faultfs.Fault{FlipMask: 4, FlipOffset: 60}, faultfs.OnKind(faultfs.Write), faultfs.OnName(c.file))
			disk.SetInjector(spoilt)
			value := strings.Repeat("v", 150)
			for i := range 10 {
				put(t, e, fmt.Sprintf("%02d", i), value, synced)
			}
			var failures []error
			for more := true; more; {
				select {
				case err := <-failed:
					failures = append(failures, err)
					require.Len(t, failures, 1, "it is tried again and succeeds")
				case <-merged: // so the flush before it has succeeded, too
					more = false
				}
			}
			require.True(t, spoilt.Fired())
			require.Len(t, failures, 1)
			require.ErrorIs(t, failures[0], kv.ErrCorrupt)
			require.Len(t, corrupt, 1)
			require.ErrorContains(t, <-corrupt, "just written")
			for i := range 10 {
				item, err := e.Get(t.Context(), fmt.Appendf(nil, "%02d", i))
				require.NoError(t, err)
				require.Equal(t, value, string(item.Value))
			}
			require.NoError(t, e.Close())
		})
	}
}
