package kvdtest_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/pkg/kvd"
	"github.com/kvd-db/kvd/pkg/kvd/embed"
	"github.com/kvd-db/kvd/pkg/kvd/kvdtest"
)

func TestEmbeddedStoresConform(t *testing.T) {
	if testsize.Reduced() {
		kvdtest.Smaller(t)
	}
	t.Run("on disk", func(t *testing.T) {
		if testsize.Reduced() {
			kvdtest.WithoutLimits(t) // those in memory are the same
		}
		kvdtest.Conformance(t, func(t *testing.T) kvd.Store {
			db, err := embed.Open(t.TempDir(), embed.WithPartitions(3))
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, db.Close()) })
			return db
		})
	})
	t.Run("in memory", func(t *testing.T) {
		kvdtest.Conformance(t, func(t *testing.T) kvd.Store {
			db, err := embed.Memory()
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, db.Close()) })
			return db
		})
	})
}

func TestServedStoresConform(t *testing.T) {
	if testsize.Reduced() {
		kvdtest.Smaller(t)
	}
	for name, opts := range map[string][]kvd.Option{
		"by raw frames": nil,
		"by gRPC":       {kvd.WithoutRawFrames()},
		"call by call":  {kvd.WithBatching(kvd.Batching{Disabled: true})},
	} {
		t.Run(name, func(t *testing.T) {
			if testsize.Reduced() && opts != nil {
				kvdtest.WithoutLimits(t) // a sample: by raw frames alone
			}
			kvdtest.Conformance(t, func(t *testing.T) kvd.Store { return kvdtest.New(t, opts...) })
		})
	}
}

// The same mistakes are told with the same words, wherever the store is.
func TestErrorsReadAlikeEmbeddedAndServed(t *testing.T) {
	embedded, err := embed.Memory()
	require.NoError(t, err)
	defer func() { assert.NoError(t, embedded.Close()) }()
	k, long := []byte("k"), make([]byte, 5000)
	for name, call := range map[string]func(db kvd.Store) error{
		"not found": func(db kvd.Store) error { _, err := db.Get(t.Context(), []byte("absent")); return err },
		"condition": func(db kvd.Store) error { return db.Put(t.Context(), k, nil, kvd.IfAbsent()) },
		"batch": func(db kvd.Store) error {
			_, err := db.Apply(t.Context(), new(kvd.Batch).Delete(k, kvd.IfVersion(1<<40)))
			return err
		},
		"empty key":  func(db kvd.Store) error { return db.Delete(t.Context(), nil) },
		"long key":   func(db kvd.Store) error { return db.Put(t.Context(), long, nil) },
		"large":      func(db kvd.Store) error { return db.Put(t.Context(), k, make([]byte, 5<<20)) },
		"long range": func(db kvd.Store) error { return db.DeleteRange(t.Context(), kvd.Between(long, nil)) },
		"time":       func(db kvd.Store) error { return db.Put(t.Context(), k, nil, kvd.TTL(1<<62)) },
		"version":    func(db kvd.Store) error { _, err := db.Get(t.Context(), k, kvd.AtVersion(1<<50)); return err },
		"no version": func(db kvd.Store) error { _, err := db.Get(t.Context(), k, kvd.AtVersion(1<<63)); return err },
		"range": func(db kvd.Store) error {
			for _, err := range db.Scan(t.Context(), kvd.Between([]byte("b"), []byte("a"))) {
				return err
			}
			return nil
		},
		"conflict": func(db kvd.Store) error {
			return db.Update(t.Context(), func(tx *kvd.Txn) error {
				_, err := tx.Get(t.Context(), k)
				assert.NoError(t, err)
				assert.NoError(t, db.Put(t.Context(), k, nil))
				return tx.Put(t.Context(), k, nil)
			}, kvd.MaxAttempts(1))
		},
		"many keys": func(db kvd.Store) error {
			_, err := db.GetMany(t.Context(), make([][]byte, 1))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			var texts, reasons []string
			for _, db := range []kvd.Store{embedded, kvdtest.New(t)} {
				require.NoError(t, db.Put(t.Context(), k, nil))
				err := call(db)
				e, ok := errors.AsType[*kvd.Error](err)
				require.True(t, ok, err)
				texts, reasons = append(texts, e.Error()), append(reasons, e.Reason)
			}
			assert.Equal(t, texts[1], texts[0])
			assert.Equal(t, reasons[1], reasons[0])
		})
	}
}
