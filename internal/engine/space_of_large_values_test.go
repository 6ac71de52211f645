package engine

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/vfs"
)

// The space of large values comes back also if what has overwritten them is small: the delta that hides
// them is then small against the base, however much it hides.
func TestSpaceOfLargeValuesComesBackAfterSmallOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const scale, keys, large, little = 128, 100, 64 << 10, 300
		disk := vfs.NewMem()
		o := small(disk)
		o.MemtableBytes, o.tableBytes = 32<<20/scale, 32<<20/scale
		o.SegmentBytes, o.CacheBytes = 64<<20/scale, 64<<10
		e, err := Open("data", o)
		require.NoError(t, err)
		for _, size := range []int{large, little} {
			for i := range keys {
				_, err := e.Put(context.Background(), fmt.Appendf(nil, "key-%08d", i), make([]byte, size), spaceWrites)
				require.NoError(t, err)
			}
		}
		before := diskBytes(t, disk, "data")
		time.Sleep(2 * rest)
		after, allowed := diskBytes(t, disk, "data"), int64(keys*little*13/10+64<<20/scale)
		t.Logf("%d live, %d before, %d at rest, %d allowed", keys*little, before, after, allowed)
		assert.LessOrEqual(t, after, allowed)
		require.NoError(t, e.Close())
	})
}
