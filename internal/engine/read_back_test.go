package engine

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/event"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testwait"
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
			type attempt struct {
				merge bool
				err   error
			}
			attempts, corrupt := make(chan attempt, 100), make(chan error, 100)
			o.Events = &event.Listener{
				Flush:      func(f event.Flush) { attempts <- attempt{false, f.Err} },
				Compaction: func(c event.Compaction) { attempts <- attempt{true, c.Err} },
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
			for merged := false; !merged; {
				a, ok := testwait.Receive(t, attempts, "a flush or a compaction ends")
				require.True(t, ok)
				if a.err != nil {
					failures = append(failures, a.err)
					require.Len(t, failures, 1, "it is tried again and succeeds")
					continue
				}
				if a.merge || name != "compaction" {
					require.NotEmpty(t, failures, "a damaged file is installed")
				}
				merged = a.merge
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
