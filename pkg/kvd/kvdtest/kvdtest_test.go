package kvdtest_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/pkg/kvd"
	"github.com/kvd-db/kvd/pkg/kvd/kvdtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// greet is an example of code under test.
func greet(t testing.TB, db *kvd.Client, name string) string {
	value, err := db.Get(t.Context(), []byte("greeting"))
	require.NoError(t, err)
	return fmt.Sprintf("%s, %s!", value, name)
}

func TestARealServerInOneLine(t *testing.T) {
	db := kvdtest.New(t)
	require.NoError(t, db.Put(t.Context(), []byte("greeting"), []byte("Hello")))
	assert.Equal(t, "Hello, Ada!", greet(t, db, "Ada"))
	_, err := db.Get(t.Context(), []byte("nobody"))
	require.ErrorIs(t, err, kvd.ErrNotFound)
}

func TestEachTestHasAStoreOfItsOwn(t *testing.T) {
	for i := range 4 {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			db := kvdtest.New(t, kvd.WithDurability(kvd.Memory))
			_, err := db.Get(t.Context(), []byte("key"))
			require.ErrorIs(t, err, kvd.ErrNotFound)
			require.NoError(t, db.Put(t.Context(), []byte("key"), []byte(strconv.Itoa(i))))
			value, err := db.Get(t.Context(), []byte("key"))
			require.NoError(t, err)
			assert.Equal(t, strconv.Itoa(i), string(value))
		})
	}
}

func TestOptionsReachTheClient(t *testing.T) {
	db := kvdtest.New(t, kvd.WithBatching(kvd.Batching{Disabled: true}), kvd.WithTimeout(time.Minute))
	for i := range 100 {
		require.NoError(t, db.Put(t.Context(), fmt.Appendf(nil, "key/%02d", i), []byte("v")))
	}
	count := 0
	for item, err := range db.Scan(t.Context(), kvd.Prefix([]byte("key/"))) {
		require.NoError(t, err)
		assert.Equal(t, fmt.Sprintf("key/%02d", count), string(item.Key))
		count++
	}
	assert.Equal(t, 100, count)
}

// wrongOption is a testing.TB that notes Fatalf instead of ending the test.
type wrongOption struct {
	testing.TB
	fatal string
}

func (w *wrongOption) Fatalf(format string, args ...any) { w.fatal = fmt.Sprintf(format, args...) }

func TestAWrongOptionFailsTheTestAndLeavesNothing(t *testing.T) {
	w := &wrongOption{TB: t}
	kvdtest.New(w, kvd.WithConns(-1))
	assert.Contains(t, w.fatal, "connections")
}

// A transaction may be the first thing that happens to a store.
func TestATransactionOnAnEmptyStore(t *testing.T) {
	db := kvdtest.New(t)
	ctx := t.Context()
	require.NoError(t, db.View(ctx, func(s *kvd.Snapshot) error {
		require.NoError(t, db.Put(ctx, []byte("later"), nil))
		_, err := s.Get(ctx, []byte("later"))
		require.ErrorIs(t, err, kvd.ErrNotFound)
		return nil
	}))
	db = kvdtest.New(t)
	require.NoError(t, db.Update(ctx, func(tx *kvd.Txn) error {
		_, err := tx.Get(ctx, []byte("a"))
		require.ErrorIs(t, err, kvd.ErrNotFound)
		return tx.Put(ctx, []byte("a"), []byte("1"))
	}))
	value, err := db.Get(ctx, []byte("a"))
	require.NoError(t, err)
	assert.Equal(t, "1", string(value))
}

func TestConditionsExpiryAndRanges(t *testing.T) {
	db := kvdtest.New(t)
	ctx := t.Context()
	k := []byte("k")
	first, err := db.PutItem(ctx, k, []byte("1"), kvd.IfAbsent(), kvd.TTL(time.Hour))
	require.NoError(t, err)
	version := first.Version
	err = db.Put(ctx, k, []byte("2"), kvd.IfAbsent())
	require.ErrorIs(t, err, kvd.ErrConflict)
	e, ok := errors.AsType[*kvd.Error](err)
	require.True(t, ok)
	assert.Equal(t, version, e.Version)
	second, err := db.PutItem(ctx, k, []byte("2"), kvd.IfVersion(version), kvd.ReturnPrevious())
	require.NoError(t, err)
	require.NotNil(t, second.Previous)
	previous := *second.Previous
	assert.Equal(t, "1", string(previous.Value))
	assert.Equal(t, version, previous.Version)
	assert.Positive(t, previous.TTL)
	assert.LessOrEqual(t, previous.TTL, time.Hour)

	require.NoError(t, db.Put(ctx, []byte("short"), nil, kvd.TTL(time.Millisecond)))
	testwait.Until(t, func() bool {
		_, err := db.Get(ctx, []byte("short"))
		return errors.Is(err, kvd.ErrNotFound)
	})

	_, err = db.Apply(ctx, new(kvd.Batch).Put([]byte("u/1"), nil).Put([]byte("u/2"), nil).Put([]byte("v"), nil))
	require.NoError(t, err)
	require.NoError(t, db.DeleteRange(ctx, kvd.Prefix([]byte("u/"))))
	var keys []string
	for item, err := range db.Scan(ctx, kvd.All(), kvd.Reverse(), kvd.KeysOnly()) {
		require.NoError(t, err)
		keys = append(keys, string(item.Key))
	}
	assert.Equal(t, []string{"v", "k"}, keys)
}

// Concurrent transfers keep the sum of all accounts, which a read at one version sees.
func TestTransactionsKeepTheSum(t *testing.T) {
	db := kvdtest.New(t, kvd.WithDurability(kvd.Memory))
	ctx := t.Context()
	const accounts, movers, moves = 5, 8, 25
	account := func(i int) []byte { return fmt.Appendf(nil, "account/%d", i%accounts) }
	var b kvd.Batch
	for i := range accounts {
		b.Put(account(i), []byte("100"))
	}
	_, err := db.Apply(ctx, &b)
	require.NoError(t, err)
	sum := func(r kvd.Reader) (total int) {
		for item, err := range r.Scan(ctx, kvd.Prefix([]byte("account/"))) {
			assert.NoError(t, err)
			n, err := strconv.Atoi(string(item.Value))
			assert.NoError(t, err)
			total += n
		}
		return total
	}
	var all sync.WaitGroup
	for mover := range movers {
		all.Go(func() {
			for i := range moves {
				err := db.Update(ctx, func(tx *kvd.Txn) error {
					for n, change := range map[int]int{mover + i: -1, mover + 2*i + 1: 1} {
						value, err := tx.Get(ctx, account(n))
						if err != nil {
							return err
						}
						old, err := strconv.Atoi(string(value))
						if err != nil {
							return err
						}
						if err := tx.Put(ctx, account(n), []byte(strconv.Itoa(old+change))); err != nil {
							return err
						}
					}
					if mover == 0 {
						assert.Equal(t, 100*accounts, sum(tx), "with its own writes")
					}
					return nil
				}, kvd.MaxAttempts(1000))
				assert.NoError(t, err)
				assert.NoError(t, db.View(ctx, func(s *kvd.Snapshot) error {
					assert.Equal(t, 100*accounts, sum(s))
					return nil
				}))
			}
		})
	}
	all.Wait()
	assert.Equal(t, 100*accounts, sum(db))
}

// A transaction that found a key conflicts if the key has expired when it commits,
// whichever way it found it.
func TestATransactionConflictsWithTheExpiryOfWhatItRead(t *testing.T) {
	for name, read := range map[string]func(context.Context, *kvd.Txn) (found bool, err error){
		"get": func(ctx context.Context, tx *kvd.Txn) (bool, error) {
			_, err := tx.Get(ctx, []byte("lease"))
			if errors.Is(err, kvd.ErrNotFound) {
				return false, nil
			}
			return err == nil, err
		},
		"get many": func(ctx context.Context, tx *kvd.Txn) (bool, error) {
			found, err := tx.GetMany(ctx, [][]byte{[]byte("other"), []byte("lease")})
			return err == nil && found[1].Found, err
		},
		"scan": func(ctx context.Context, tx *kvd.Txn) (found bool, err error) {
			for item, err := range tx.Scan(ctx, kvd.All()) {
				if err != nil {
					return false, err
				}
				found = found || string(item.Key) == "lease"
			}
			return found, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it waits for time to pass
			db, ctx := kvdtest.New(t), t.Context()
			for ttl := 200 * time.Millisecond; ; ttl *= 2 {
				require.NoError(t, db.Put(ctx, []byte("lease"), []byte("mine"), kvd.TTL(ttl)))
				tx, err := db.Begin()
				require.NoError(t, err)
				found, err := read(ctx, tx)
				require.NoError(t, err)
				if !found { // this machine is slow
					tx.Discard()
					continue
				}
				require.NoError(t, tx.Put(ctx, []byte("work"), []byte("done")))
				testwait.Until(t, func() bool {
					_, err = db.Get(ctx, []byte("lease"))
					return err != nil
				})
				require.ErrorIs(t, err, kvd.ErrNotFound)
				_, err = tx.Commit(ctx)
				require.ErrorIs(t, err, kvd.ErrConflict)
				_, err = db.Get(ctx, []byte("work"))
				require.ErrorIs(t, err, kvd.ErrNotFound)
				return
			}
		})
	}
}
