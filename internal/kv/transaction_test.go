package kv

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Expiring keys are subject to the same limits as keys that were read.
func TestExpiringKeysOfATransactionAreChecked(t *testing.T) {
	l := Limits{KeyBytes: 2, ValueBytes: 1, BatchOps: 2, BatchBytes: 10}
	transaction := func(at SeqNum, keys ...string) error {
		tx := Transaction{ReadVersion: at, Batch: new(WriteBatch)}
		tx.Batch.Put([]byte("k"), nil)
		for _, key := range keys {
			tx.Expiring = append(tx.Expiring, []byte(key))
		}
		return tx.Check(l)
	}
	require.NoError(t, transaction(1, "aa", "b"))
	require.ErrorIs(t, transaction(1, "a", "b", "c"), ErrTooLarge)
	require.ErrorIs(t, transaction(1, "aaa"), ErrTooLarge)
	require.ErrorIs(t, transaction(1, ""), ErrInvalidArgument)
	require.ErrorIs(t, transaction(0, "a"), ErrInvalidArgument)
}
