package torture

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/pkg/kvd"
)

// A leader is paused under load; another node is elected, and acknowledges a new value. Reads that
// were sent to the paused node meanwhile are answered when it goes on, and never with the old value,
// although it still believes that it leads, and answers to its heartbeats from before the pause
// wait to be read. etcd has had this bug (etcd-io/etcd#20418).
func TestAPausedLeaderAnswersNothingOld(t *testing.T) {
	testsize.OneGoroutine(t) // what is tested is in other processes
	rounds := 2
	if os.Getenv("NEMESIS") != "" {
		rounds = 40
	} else if testing.Short() {
		t.Skip("seconds of real processes")
	}
	c := makeNodes(t, 3)
	c.start(c.all...)
	db := c.open(t, c.all, kvd.WithTimeout(testwait.Left()))
	putStale(t, db, "0")
	answered := 0
	for round := 1; round <= rounds; round++ {
		answered += c.readWhilePaused(t, strconv.Itoa(round))
	}
	require.NoError(t, db.Close())
	c.stop(c.all...)
	fmt.Printf("paused leader: %d rounds, %d reads answered, none of them stale\n", rounds, answered)
}

var staleKey = []byte("key")

// putStale puts the value, however long the nodes take to choose a leader.
func putStale(t *testing.T, db *kvd.Client, value string) {
	testwait.Until(t, func() bool { return db.Put(t.Context(), staleKey, []byte(value)) == nil }, "a write is acknowledged")
}

// readWhilePaused pauses the leader, puts a value through the others, and reads at the paused node.
func (c *nodes) readWhilePaused(t *testing.T, value string) (answered int) {
	leader := c.leader()
	alone := c.open(t, []*node{leader}, kvd.WithTimeout(testwait.Left()))
	_, err := alone.Get(t.Context(), staleKey) // connects
	require.NoError(t, err)
	busy := c.open(t, []*node{leader})
	done := make(chan struct{})
	var loading, reading sync.WaitGroup
	for i := range 8 {
		loading.Go(func() {
			for {
				select {
				case <-done:
					return
				default: // what fails, fails because the node no longer leads
					_ = busy.Put(context.Background(), fmt.Appendf(nil, "load-%d", i), nil)
					_, _ = busy.Get(context.Background(), staleKey)
				}
			}
		})
	}
	c.pause(leader)
	others := c.open(t, c.others(leader), kvd.WithTimeout(testwait.Left()))
	putStale(t, others, value)
	const reads = 16
	started := make(chan struct{}, reads)
	for range reads {
		reading.Go(func() {
			started <- struct{}{}
			got, err := alone.Get(context.Background(), staleKey)
			assert.NoError(t, err)
			assert.Equal(t, value, string(got), "a stale read")
		})
	}
	for range reads {
		<-started
	}
	c.resume(leader)
	reading.Wait()
	close(done)
	loading.Wait()
	for _, db := range []*kvd.Client{alone, busy, others} {
		require.NoError(t, db.Close())
	}
	return reads
}
