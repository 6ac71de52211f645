package replicated

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/replica"
)

// A leader that is about to stop lets another node lead; one that is not, or is alone, does not.
func TestHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3, nil)
		defer c.stop()
		old := c.leader()
		old.put("key", "value")
		next, err := old.log.HandOver(t.Context())
		require.NoError(t, err)
		require.NotEqual(t, old.id, next)
		require.Equal(t, next, c.leader().id)
		require.Equal(t, "value", c.leader().get("key"))
		next, err = old.log.HandOver(t.Context())
		require.NoError(t, err)
		require.Zero(t, next, "it does not lead")
	})
	synctest.Test(t, func(t *testing.T) { // a change of the configuration is under way
		c := startCluster(t, 3, nil)
		defer c.stop()
		old := c.leader()
		c.cutOff(old.id)
		described := make(chan error, 1)
		go func() { described <- old.log.Describe(t.Context(), old.id, Node{Client: "here:1"}) }()
		synctest.Wait()
		short, cancel := context.WithTimeout(t.Context(), 2*replica.TickInterval)
		defer cancel()
		_, err := old.log.HandOver(short)
		require.Error(t, err)
		c.lose(nil)
		next, err := old.log.HandOver(t.Context())
		require.NoError(t, err)
		require.NotEqual(t, old.id, next)
		require.NoError(t, <-described)
	})
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 1, nil)
		defer c.stop()
		_, err := c.leader().log.HandOver(t.Context())
		require.ErrorContains(t, err, "no other voter answers")
	})
}
