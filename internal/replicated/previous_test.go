package replicated

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
)

// A member reads a key again before it says that a condition does not hold. The call is charged for
// the value that it returns, once.
func TestAFailedConditionReturnsItsValueWithinTheBudgetOfOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCluster(t, 3, nil)
		defer c.stop()
		n, value := c.leader(), strings.Repeat("v", 1000)
		n.put("k", value)

		budget := kv.NewReadBudget(0)
		budget.ResetExact(len(value))
		w := &kv.Write{
			Op: kv.Op{Kind: kv.KindPut, Key: []byte("k"), Value: []byte("new")},
			If: &kv.Condition{Kind: kv.IfAbsent}, Previous: &kv.Lookup{Budget: budget},
		}
		require.NoError(t, n.store.Write(t.Context(), []*kv.Write{w}))
		require.ErrorIs(t, w.Err, kv.ErrConditionFailed)
		assert.Equal(t, value, string(w.Previous.Value))
		budget.Give(len(value))
		assert.True(t, budget.Take(len(value)), "it is charged for nothing else")
	})
}
