package torture

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/pkg/kvd"
)

// The nodes of a cluster stay within their memory budget and a quarter more, with the newest
// entries of the log that they keep for each other.
func TestNodesStayWithinTheBudget(t *testing.T) {
	testsize.OneGoroutine(t) // what is tested is in other processes
	const (
		budget          = 64 << 20
		size            = 64 << 10
		writers, writes = 8, 192 // 96 MiB
	)
	c := makeNodes(t, 3, "--memory", "64MiB")
	c.start(c.all...)
	db := c.open(t, c.all, kvd.WithTimeout(testwait.Left()))
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := range writes {
				if !assert.NoError(t, db.Put(context.Background(), fmt.Appendf(nil, "%d-%d", w, i), make([]byte, size))) {
					return
				}
			}
		})
	}
	all.Wait()
	require.NoError(t, db.Close())
	for _, n := range c.all {
		peak := peakOf(t, n.server)
		t.Logf("node %d: peak %d MiB", n.id, peak>>20)
		assert.LessOrEqual(t, peak, int64(budget+budget/slackShare), "node %d", n.id)
	}
	c.stop(c.all...)
}
