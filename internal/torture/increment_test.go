package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/pkg/kvd"
)

// Clients increment counters by batches with conditions, one on the value of a
// counter in memory and one on the version of a counter on disk. A condition that
// does not hold is tried again. Every increment that was acknowledged is there.
func TestConditionalBatchesLoseNoIncrement(t *testing.T) {
	testsize.OneGoroutine(t) // what is tested is in other processes
	for name, size := range map[string]int{"values inline": 10, "values in value files": 400} {
		t.Run(name, func(t *testing.T) {
			const clients, hot, cold = 16, 3, 3000
			increments := int64(3000)
			if testing.Short() {
				increments = 1000
			}
			server := serve(t, t.TempDir(), "--partitions", "1", "--memory", "64MiB", "--flush-keys", "500", "--durability", "buffered")
			defer server.stop(t)
			db, err := kvd.Open(server.addr, kvd.WithTimeout(testwait.Left()))
			require.NoError(t, err)
			defer func() { require.NoError(t, db.Close()) }()
			value := func(n int) []byte { return fmt.Appendf(nil, "%0*d", size, n) }
			counter := func(n int) []byte { return fmt.Appendf(nil, "counter-%05d", n) }
			for n := 0; n < hot+cold; n += 1000 {
				var b kvd.Batch
				for i := n; i < min(n+1000, hot+cold); i++ {
					b.Put(counter(i), value(0))
				}
				_, err := db.Apply(t.Context(), &b)
				require.NoError(t, err)
			}

			var all sync.WaitGroup
			var tried, lost atomic.Int64
			var done [hot + cold]atomic.Int64
			for client := range clients {
				all.Go(func() {
					rng := rand.New(rand.NewPCG(1, uint64(client)))
					for tried.Add(1) <= increments && !t.Failed() {
						a, b := rng.IntN(hot), hot+rng.IntN(cold)
						switch err := incrementBoth(t.Context(), db, counter(a), counter(b), value); {
						case errors.Is(err, kvd.ErrConflict):
							lost.Add(1)
						case !assert.NoError(t, err):
							return
						default:
							done[a].Add(1)
							done[b].Add(1)
						}
					}
				})
			}
			all.Wait()
			var gone, total int64
			for i := range done {
				got, err := db.Get(t.Context(), counter(i))
				require.NoError(t, err)
				n, err := strconv.ParseInt(string(got), 10, 64)
				require.NoError(t, err)
				gone, total = gone+done[i].Load()-n, total+done[i].Load()
			}
			require.Zero(t, gone, "of %d acknowledged increments so many are not there", total)
			require.Positive(t, lost.Load(), "no client met another: the test shows nothing")
		})
	}
}

// incrementBoth adds one to two counters, under a condition on the value of the first
// and the version of the second.
func incrementBoth(ctx context.Context, db *kvd.Client, a, b []byte, value func(int) []byte) error {
	var batch kvd.Batch
	for i, key := range [][]byte{a, b} {
		item, err := db.GetItem(ctx, key)
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(string(item.Value))
		if err != nil {
			return err
		}
		condition := kvd.IfValue(item.Value)
		if i == 1 {
			condition = kvd.IfVersion(item.Version)
		}
		batch.Put(key, value(n+1), condition)
	}
	_, err := db.Apply(ctx, &batch)
	return err
}
