package peertest

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/bench/peers"
	"github.com/kvd-db/kvd/internal/workload"
)

// checkPages makes several walks of a few entries at a time.
func checkPages(t *testing.T, s peers.Store, want []peers.Entry) {
	t.Helper()
	inParallel(t, 4, func(worker int) error {
		for first := worker; first < len(want); first += len(want) / 20 {
			for _, n := range []int{1, 50} {
				if err := checkPage(t.Context(), s, want[first:], n); err != nil {
					return fmt.Errorf("from entry %d: %w", first, err)
				}
			}
		}
		return nil
	})
	err := peers.Page(t.Context(), s, nil, 10, func([]byte, []byte) error { return assert.AnError })
	require.ErrorIs(t, err, assert.AnError)
}

func checkPage(ctx context.Context, s peers.Store, want []peers.Entry, n int) error {
	seen := 0
	err := peers.Page(ctx, s, want[0].Key, n, func(key, value []byte) error {
		if seen == n || string(key) != string(want[seen].Key) || string(value) != string(want[seen].Value) {
			return fmt.Errorf("entry %d of a page of %d is %s", seen, n, key)
		}
		seen++
		return nil
	})
	if err == nil && seen != min(n, len(want)) {
		err = fmt.Errorf("a page of %d ended after %d", n, seen)
	}
	return err
}

// testTransactions checks those of a store that has some.
func testTransactions(t *testing.T, s peers.Store) {
	transactor, ok := s.(workload.Transactor)
	if !ok {
		return
	}
	ctx := t.Context()
	require.NoError(t, s.Put(ctx, []byte("tx 1"), []byte("one")))
	change := func(ctx context.Context, tx workload.Transaction) error {
		old, found, err := tx.Get(ctx, []byte("tx 1"))
		if err != nil || !found {
			return fmt.Errorf("get: %v, %w", found, err)
		}
		longer := append(append([]byte(nil), old...), '!')
		if _, found, err := tx.Get(ctx, []byte("tx none")); err != nil || found {
			return fmt.Errorf("get what is absent: %v, %w", found, err)
		}
		if err := tx.Put(ctx, []byte("tx 1"), longer); err != nil {
			return err
		}
		return tx.Put(ctx, []byte("tx 2"), longer)
	}
	conflicts, err := transactor.Transact(ctx, change)
	require.NoError(t, err)
	assert.Zero(t, conflicts)
	requireHas(t, s, "tx 1", "one!")
	requireHas(t, s, "tx 2", "one!")

	_, err = transactor.Transact(ctx, func(ctx context.Context, tx workload.Transaction) error {
		if err := change(ctx, tx); err != nil {
			return err
		}
		return assert.AnError
	})
	require.ErrorIs(t, err, assert.AnError)
	requireHas(t, s, "tx 1", "one!")
	requireHas(t, s, "tx 2", "one!")

	if _, lossy := s.(peers.LossyTransactor); lossy {
		return
	}
	inParallel(t, 4, func(int) error {
		for range 5 {
			if _, err := transactor.Transact(ctx, change); err != nil {
				return err
			}
		}
		return nil
	})
	requireHas(t, s, "tx 1", "one!"+"!!!!!!!!!!!!!!!!!!!!")
}
