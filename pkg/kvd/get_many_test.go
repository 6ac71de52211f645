package kvd

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
)

// Keys that fit one are read by one frame, at one version; others by a call.
func TestGetManyTravelsInAFrame(t *testing.T) {
	everyTransport(t, func(t *testing.T, opts ...Option) {
		c := serve(t, nil, service.Options{})
		db := c.open(t, opts...)
		ctx := context.Background()
		put(t, db, "a", "1")
		put(t, db, "b", "2")
		snapshot, err := db.Snapshot(ctx)
		require.NoError(t, err)
		defer func() { require.NoError(t, snapshot.Close()) }()
		put(t, db, "a", "3")
		many := func(r Reader, n int) (values []string) {
			keys := [][]byte{[]byte("a"), []byte("absent"), []byte("b")}
			for i := len(keys); i < n; i++ {
				keys = append(keys, fmt.Appendf(nil, "no %d", i))
			}
			lookups, err := r.GetMany(ctx, keys)
			require.NoError(t, err)
			require.Len(t, lookups, len(keys))
			for i, l := range lookups {
				assert.Equal(t, keys[i], l.Key)
				assert.Equal(t, l.Found, l.Version > 0)
				if l.Found {
					values = append(values, fmt.Sprintf("%s=%s", l.Key, l.Value))
				}
			}
			return values
		}
		before := c.server.Stats().Frames.Count()
		assert.Equal(t, []string{"a=3", "b=2"}, many(db, 3))
		assert.Equal(t, []string{"a=1", "b=2"}, many(snapshot, 3))
		assert.Equal(t, []string{"a=3", "b=2"}, many(db, 1024))
		assert.Equal(t, before+3, c.server.Stats().Frames.Count())
		assert.Equal(t, []string{"a=3", "b=2"}, many(db, 1025))
		assert.Equal(t, before+3, c.server.Stats().Frames.Count())
		none, err := db.GetMany(ctx, nil)
		require.NoError(t, err)
		assert.Empty(t, none)
		_, err = db.GetMany(ctx, [][]byte{[]byte("a")}, AtVersion(1<<40))
		require.Error(t, err)
	})
}

// What is too much for a server is refused as by a call of its own; what it refuses
// for the moment is tried again, all of it.
func TestGetManyFails(t *testing.T) {
	everyTransport(t, func(t *testing.T, opts ...Option) {
		store := servicetest.New(kv.DefaultLimits)
		db := serve(t, store, service.Options{}).open(t, opts...)
		ctx := context.Background()
		large := make([]byte, 3<<20)
		keys := [][]byte{[]byte("a"), []byte("b"), []byte("c")}
		for _, key := range keys {
			require.NoError(t, db.Put(ctx, key, large))
		}
		_, err := db.GetMany(ctx, keys)
		require.ErrorIs(t, err, ErrTooLarge)
		lookups, err := db.GetMany(ctx, keys[:2])
		require.NoError(t, err)
		assert.Len(t, lookups[1].Value, len(large))

		tries := 0
		store.OnLookup = func(context.Context, []*kv.Lookup) error {
			if tries++; tries == 1 {
				return kv.ErrOverloaded
			}
			return nil
		}
		_, err = db.GetMany(ctx, keys[:1])
		require.NoError(t, err)
		assert.Equal(t, 2, tries)

		ended, cancel := context.WithCancel(ctx)
		cancel()
		_, err = db.GetMany(ended, keys)
		require.ErrorIs(t, err, context.Canceled)
	})
}

// A server with a larger limit for batches than usual answers a snapshot up to that limit.
func TestASnapshotReadsAsMuchAsItsServerAnswers(t *testing.T) {
	everyTransport(t, func(t *testing.T, opts ...Option) {
		limits := kv.DefaultLimits
		limits.BatchBytes = 12 << 20
		store, ctx := servicetest.New(limits), t.Context()
		db := serve(t, store, service.Options{}).open(t, opts...)
		var keys [][]byte
		var writes []*kv.Write // to the store itself: the test is of the answers
		value := make([]byte, 1<<20)
		for i := range 14 {
			keys = append(keys, []byte{byte(i + 1)})
			writes = append(writes, &kv.Write{Op: kv.Op{Kind: kv.KindPut, Key: keys[i], Value: value[i:]}})
		}
		require.NoError(t, store.Write(ctx, writes))
		require.NoError(t, db.View(ctx, func(s *Snapshot) error {
			found, err := s.GetMany(ctx, keys[:11])
			require.NoError(t, err)
			for i, l := range found {
				assert.Len(t, l.Value, 1<<20-i)
			}
			_, err = s.GetMany(ctx, keys)
			assert.ErrorIs(t, err, ErrTooLarge)
			return nil
		}))
		require.NoError(t, db.Put(ctx, keys[0], nil), "the connection goes on")
	})
}
