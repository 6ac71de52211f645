package peertest

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/bench/peers"
)

// testPoints checks concurrent operations.
func testPoints(t *testing.T, open func(peers.Options) (peers.Store, error), sync bool) {
	o := peers.Options{Dir: t.TempDir(), MemoryBytes: 16 << 20, Sync: sync}
	s, err := open(o)
	require.NoError(t, err)
	inParallel(t, 8, func(worker int) error { return writeMine(t.Context(), s, worker) })
	checkPoints(t, s)
	testTransactions(t, s)
	require.NoError(t, s.Settle())
	checkPoints(t, s)
	require.NoError(t, s.Close())

	s, err = open(o)
	require.NoError(t, err)
	checkPoints(t, s)
	require.NoError(t, s.Close())
	files, err := filepath.Glob(filepath.Join(o.Dir, "*"))
	require.NoError(t, err)
	require.NotEmpty(t, files, "it lives where it was told to")
}

func inParallel(t *testing.T, workers int, do func(worker int) error) {
	t.Helper()
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() { errs[i] = do(i) })
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
}

func pointKey(worker, n int) string { return fmt.Sprintf("w%d-%04d", worker, n) }

// Values of all lengths around the threshold from which on some stores separate them.
func pointValue(worker, n int) string {
	return strings.Repeat(string(rune('a'+worker)), n*20) + pointKey(worker, n)
}

const pointsOfWorker = 40

// writeMine puts each key twice and deletes every third, from reused memory, and reads
// its own writes.
func writeMine(ctx context.Context, s peers.Store, worker int) error {
	var buf []byte
	for n := range pointsOfWorker {
		key, value := []byte(pointKey(worker, n)), []byte("old")
		if err := s.Put(ctx, key, value); err != nil {
			return err
		}
		value = append(value[:0], pointValue(worker, n)...)
		if err := s.Put(ctx, key, value); err != nil {
			return err
		}
		clear(value) // Put only borrowed it
		got, found, err := s.Get(ctx, key, buf)
		if err != nil || !found || string(got) != pointValue(worker, n) {
			return fmt.Errorf("get %s: %q, %v, %w", key, got, found, err)
		}
		buf = got
		if n%3 == 0 {
			if err := s.Delete(ctx, key); err != nil {
				return err
			}
			if _, found, err := s.Get(ctx, key, buf); err != nil || found {
				return fmt.Errorf("get %s, which was deleted: %v, %w", key, found, err)
			}
		}
		clear(key)
	}
	return s.Delete(ctx, []byte("never there"))
}

// checkPoints reads what all workers wrote, one by one and in batches.
func checkPoints(t *testing.T, s peers.Store) {
	t.Helper()
	var keys [][]byte
	var want []string // empty: absent
	for worker := range 8 {
		for n := range pointsOfWorker {
			keys = append(keys, []byte(pointKey(worker, n)))
			if n%3 == 0 {
				want = append(want, "")
				requireLacks(t, s, pointKey(worker, n))
				continue
			}
			want = append(want, pointValue(worker, n))
			requireHas(t, s, pointKey(worker, n), pointValue(worker, n))
		}
	}
	visited := make([]int, len(keys))
	require.NoError(t, s.GetBatch(t.Context(), keys, func(i int, value []byte, found bool) error {
		visited[i]++
		assert.Equal(t, want[i] != "", found, "%s", keys[i])
		assert.Equal(t, want[i], string(value), "%s", keys[i])
		return nil
	}))
	for i, n := range visited {
		require.Equal(t, 1, n, "visits of key %d", i)
	}
	err := s.GetBatch(t.Context(), keys, func(int, []byte, bool) error { return assert.AnError })
	require.ErrorIs(t, err, assert.AnError)
}

func requireHas(t *testing.T, s peers.Store, key, want string) {
	t.Helper()
	value, found, err := s.Get(t.Context(), []byte(key), nil)
	require.NoError(t, err)
	require.True(t, found, "%s is absent", key)
	require.Equal(t, want, string(value), key)
}

func requireLacks(t *testing.T, s peers.Store, key string) {
	t.Helper()
	_, found, err := s.Get(t.Context(), []byte(key), nil)
	require.NoError(t, err)
	require.False(t, found, "%s is there", key)
}
