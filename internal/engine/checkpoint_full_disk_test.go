package engine

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// A client that reads a checkpoint slowly keeps log and tables. When they fill the disk the
// store gives them up, so that clients can go on that only overwrite.
func TestACheckpointThatFillsTheDiskEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewMem()
		e := open(t, fullOptions(disk))
		value := strings.Repeat("v", 1000)
		put(t, e, "k", value, synced)
		usage, err := disk.Usage("data")
		require.NoError(t, err)
		disk.SetCapacity(int64(usage.Total-usage.Free) + 2<<20)

		c := checkpoint(t, e)
		defer c.Release()
		for i, ended := 0, false; !ended; i++ {
			require.Less(t, i, 100_000, "the checkpoint keeps the log, so the disk gets full")
			_, err := e.Put(t.Context(), []byte(key(i%20)), []byte(value), synced)
			if errors.Is(err, kv.ErrReadOnly) {
				// A flush that ends just then may free enough: the store keeps the checkpoint.
				time.Sleep(time.Minute)
				_, _, err = c.Fetch(t.Context(), "STORE", nil)
				if ended = errors.Is(err, kv.ErrVersionGone); !ended {
					require.NoError(t, err)
				}
				_, err = e.Put(t.Context(), []byte("k"), []byte(value), synced)
			}
			require.NoError(t, err)
			if i%100 == 0 {
				time.Sleep(100 * time.Millisecond)
			}
		}
	})
}
