package kvdtest_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/pkg/kvd"
	"github.com/kvd-db/kvd/pkg/kvd/kvdtest"
)

// rangeDeletes are all ways to delete a range.
var rangeDeletes = map[string]func(context.Context, *kvd.Client, kvd.Range) error{
	"a call": func(ctx context.Context, db *kvd.Client, r kvd.Range) error { return db.DeleteRange(ctx, r) },
	"a batch": func(ctx context.Context, db *kvd.Client, r kvd.Range) error {
		_, err := db.Apply(ctx, new(kvd.Batch).DeleteRange(r))
		return err
	},
	"a batch with a condition": func(ctx context.Context, db *kvd.Client, r kvd.Range) error {
		_, err := db.Apply(ctx, new(kvd.Batch).Delete([]byte("absent"), kvd.IfAbsent()).DeleteRange(r))
		return err
	},
	"a transaction that reads nothing": func(ctx context.Context, db *kvd.Client, r kvd.Range) error {
		return db.Update(ctx, func(tx *kvd.Txn) error { return tx.DeleteRange(ctx, r) })
	},
	"a transaction": func(ctx context.Context, db *kvd.Client, r kvd.Range) error {
		return db.Update(ctx, func(tx *kvd.Txn) error {
			for _, err := range tx.Scan(ctx, kvd.All()) {
				if err != nil {
					return err
				}
			}
			return tx.DeleteRange(ctx, r)
		})
	},
}

func storedKeys(t *testing.T, db *kvd.Client) (keys []string) {
	t.Helper()
	for item, err := range db.Scan(t.Context(), kvd.All(), kvd.KeysOnly()) {
		require.NoError(t, err)
		keys = append(keys, string(item.Key))
	}
	return keys
}

func TestARangeDeleteWithoutAnEndReachesTheLastKey(t *testing.T) {
	const longest = 4 << 10
	last := bytes.Repeat([]byte{0xff}, longest) // no legal key is after it
	stored := [][]byte{{0}, []byte("a"), []byte("b"), []byte("b\x00"), {0xff}, last[:longest-1], last}
	for name, remove := range rangeDeletes {
		t.Run(name, func(t *testing.T) {
			db := kvdtest.New(t)
			for _, c := range []struct {
				start []byte
				kept  []string
			}{
				{last, []string{"\x00", "a", "b", "b\x00", "\xff", string(last[:longest-1])}},
				{[]byte("b"), []string{"\x00", "a"}},
				{[]byte{0}, nil},
				{nil, nil},
			} {
				for _, key := range stored {
					require.NoError(t, db.Put(t.Context(), key, nil))
				}
				require.NoError(t, remove(t.Context(), db, kvd.Between(c.start, nil)))
				assert.Equal(t, c.kept, storedKeys(t, db))
			}
			require.NoError(t, db.Put(t.Context(), last, nil), "what is put later is there")
			assert.Equal(t, []string{string(last)}, storedKeys(t, db))
		})
	}
}

func TestAnEmptyRangeDeleteDeletesNothing(t *testing.T) {
	for name, remove := range rangeDeletes {
		t.Run(name, func(t *testing.T) {
			db := kvdtest.New(t)
			for _, key := range []string{"a", "b", "c"} {
				require.NoError(t, db.Put(t.Context(), []byte(key), nil))
			}
			for _, bounds := range [][2]string{{"b", "b"}, {"c", "a"}, {"", "\x00"}, {"\x00", "\x00"}} {
				require.NoError(t, remove(t.Context(), db, kvd.Between([]byte(bounds[0]), []byte(bounds[1]))), bounds)
			}
			assert.Equal(t, []string{"a", "b", "c"}, storedKeys(t, db))
		})
	}
}
