package engine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
)

// transaction reads keys at a snapshot and returns what would put them all.
func transaction(t *testing.T, e *Engine, keys ...string) *kv.Transaction {
	s, err := e.BeginSnapshot(t.Context(), 0)
	require.NoError(t, err)
	t.Cleanup(func() { e.ReleaseSnapshot(s.ID) })
	tx := &kv.Transaction{ReadVersion: s.Version, Epoch: s.Epoch, Batch: putAll(keys)}
	for _, key := range keys {
		tx.Keys = append(tx.Keys, []byte(key))
	}
	return tx
}

// W19: the source took the newest write that a snapshot sees for a later one, and failed
// the transaction.
func TestATransactionDoesNotConflictWithWhatItReadW19(t *testing.T) {
	e := open(t, small(vfs.NewMem()))
	keys := []string{keysIn(e, 0, 1)[0], keysIn(e, 1, 1)[0]}
	for range 3 {
		for _, key := range keys {
			put(t, e, key, "newest", synced)
		}
		_, err := e.Commit(t.Context(), transaction(t, e, keys...), synced)
		require.NoError(t, err)
		require.NoError(t, e.Flush(t.Context()))
	}
}

// A transaction that loses leaves nothing in the log, in one partition or over
// several, by a key, a range or a condition.
func TestALostTransactionCostsNoLog(t *testing.T) {
	e := open(t, small(vfs.NewMem()))
	one, two := keysIn(e, 0, 1)[0], keysIn(e, 1, 1)[0]
	byKey := transaction(t, e, one)
	overTwo := transaction(t, e, one, two)
	byRange := transaction(t, e, two)
	byRange.Keys, byRange.Ranges = nil, []kv.Range{{Start: []byte(one), End: []byte(one + "\x00")}}
	byGuard := transaction(t, e, two)
	byGuard.Batch.Require(kv.Guard{Key: []byte(one), Condition: kv.Condition{Kind: kv.IfPresent}})
	put(t, e, one, "rival", synced)
	before := e.Stats()
	for name, tx := range map[string]*kv.Transaction{"key": byKey, "two partitions": overTwo, "range": byRange} {
		_, err := e.Commit(t.Context(), tx, synced)
		require.ErrorIs(t, err, kv.ErrConflict, name)
	}
	_, err := e.Commit(t.Context(), byGuard, synced)
	require.ErrorIs(t, err, kv.ErrConditionFailed, "it did not hold at the version of the transaction")
	after := e.Stats()
	require.Equal(t, before.Log.Records, after.Log.Records)
	require.Equal(t, before.Log.Bytes, after.Log.Bytes)
	require.Equal(t, before.Visible, after.Visible, "nor a number")
	require.EqualValues(t, 3, after.Conflicts-before.Conflicts)
	requireValue(t, e, one, "rival")
}
