package engine

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/batcher"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/vfs"
)

// Time passes only while reads of the disk wait, so the test is exact.
func TestReadsOfASlowDiskAreUnderWayTogether(t *testing.T) {
	// Keys that are read are so far apart that no two lie in a block: one disk read each, so
	// it does not matter which of them share a batch.
	const readers, each, apart = 128, 16, 4
	const reads, keys = readers * each, readers * each * apart
	const latency = 10 * time.Millisecond
	key := func(n int) []byte { return fmt.Appendf(nil, "%08d", n) }
	synctest.Test(t, func(t *testing.T) {
		files := vfs.NewMem()
		o := Options{FS: files, Partitions: 1, Durability: kv.DurabilityMemory}
		o.table.BlockBytes = 512
		load, err := Open("d", o)
		require.NoError(t, err)
		value := make([]byte, 200)
		for n := 0; n < keys; {
			var b kv.WriteBatch
			for ; b.Len() < 1024; n++ {
				b.Put(key(n), value)
			}
			_, err := load.Apply(t.Context(), &b, kv.WriteOptions{})
			require.NoError(t, err)
		}
		require.NoError(t, load.CompactAll(t.Context()))
		require.NoError(t, load.Close())

		takes := func(depth int, policy batcher.Policy) time.Duration {
			e, err := Open("d", Options{FS: vfs.SlowReads(files, latency, depth), CacheBytes: 1, Reads: policy})
			require.NoError(t, err)
			began := time.Now()
			var group sync.WaitGroup
			for r := range readers {
				group.Go(func() {
					for n := range each {
						_, err := e.Get(t.Context(), key((r*each+n)*7919%reads*apart))
						assert.NoError(t, err)
					}
				})
			}
			group.Wait()
			took := time.Since(began)
			require.NoError(t, e.Close())
			return took
		}
		for _, depth := range []int{0, 10} {
			adaptive := takes(depth, batcher.Policy{})
			if depth == 0 {
				assert.Less(t, adaptive, 500*time.Millisecond, "at least 40 reads of the disk are under way at a time")
			}
			sizes := []int{1, 4, 16, 32}
			if testsize.Reduced() {
				sizes = []int{1, 16}
			}
			for _, size := range sizes {
				fixed := takes(depth, batcher.Policy{MaxOps: size, Linger: 500 * time.Microsecond})
				assert.LessOrEqual(t, adaptive, fixed*100/95, "depth %d: batches of %d take %v", depth, size, fixed)
			}
		}
	})
}
