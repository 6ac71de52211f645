package replicated

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
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
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 1, nil)
		defer c.stop()
		_, err := c.leader().log.HandOver(t.Context())
		require.ErrorContains(t, err, "no other voter answers")
	})
}
