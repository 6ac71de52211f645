package kvd

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/service"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// everyWay runs a test with operations in frames and with calls of their own.
func everyWay(t *testing.T, test func(*testing.T, *cluster, *Client)) {
	for name, batching := range map[string]Batching{"in frames": {}, "alone": {Disabled: true}} {
		t.Run(name, func(t *testing.T) {
			c := serve(t, nil, service.Options{})
			test(t, c, c.open(t, WithBatching(batching)))
		})
	}
}

func TestConditions(t *testing.T) {
	everyWay(t, func(t *testing.T, _ *cluster, db *Client) {
		ctx := context.Background()
		k, v := []byte("k"), []byte("v")
		var version uint64
		failed := func(err error) {
			t.Helper()
			require.ErrorIs(t, err, ErrConflict)
			require.NotErrorIs(t, err, ErrUncertain)
			e := requireError(t, err)
			assert.Equal(t, kvdpb.ReasonConditionFailed, e.Reason)
			assert.Equal(t, version, e.Version, "what was found")
		}
		failed(db.Put(ctx, k, v, IfPresent()))
		failed(db.Put(ctx, k, v, IfVersion(3)))
		failed(db.Put(ctx, k, v, IfValue(nil)))
		failed(db.Delete(ctx, k, IfPresent()))
		assert.Equal(t, "-", get(t, db, "k"))

		written := func(w Written, err error) {
			t.Helper()
			require.NoError(t, err)
			assert.Greater(t, w.Version, version)
			assert.Nil(t, w.Previous, "it did not ask")
			version = w.Version
		}
		written(db.PutItem(ctx, k, v, IfAbsent()))
		failed(db.Put(ctx, k, v, IfAbsent()))
		failed(db.Put(ctx, k, v, IfVersion(0)))
		failed(db.Put(ctx, k, v, IfVersion(version+1)))
		failed(db.Put(ctx, k, v, IfValue([]byte("other"))))
		written(db.PutItem(ctx, k, []byte("w"), IfVersion(version)))
		require.NoError(t, db.Put(ctx, k, v, IfValue([]byte("w"))))
		require.NoError(t, db.Put(ctx, k, v, IfPresent()))
		require.NoError(t, db.Delete(ctx, k, IfValue(v)))
		require.NoError(t, db.Put(ctx, k, v, IfVersion(0)))
	})
}

// Whether alone or in a pipeline, a write returns its version and, if it asks for that,
// what the key held before.
func TestWhatAWriteReturns(t *testing.T) {
	type writes struct {
		put func(value []byte, opts ...WriteOption) (Written, error)
		del func(opts ...WriteOption) (Written, error)
	}
	k := []byte("k")
	for way, of := range map[string]func(context.Context, *Client) writes{
		"call": func(ctx context.Context, db *Client) writes {
			return writes{
				func(value []byte, opts ...WriteOption) (Written, error) { return db.PutItem(ctx, k, value, opts...) },
				func(opts ...WriteOption) (Written, error) { return db.DeleteItem(ctx, k, opts...) },
			}
		},
		"pipeline": func(ctx context.Context, db *Client) writes {
			done := func(p *Pipeline, w *Pending[Written]) (Written, error) {
				_ = p.Do(ctx) // Result says the same
				return w.Result()
			}
			return writes{
				func(value []byte, opts ...WriteOption) (Written, error) {
					p := db.Pipeline()
					return done(p, p.Put(k, value, opts...))
				},
				func(opts ...WriteOption) (Written, error) {
					p := db.Pipeline()
					return done(p, p.Delete(k, opts...))
				},
			}
		},
	} {
		t.Run(way, func(t *testing.T) {
			everyWay(t, func(t *testing.T, _ *cluster, db *Client) {
				do := of(t.Context(), db)
				w, err := do.put([]byte("1"), ReturnPrevious(), TTL(time.Hour))
				require.NoError(t, err)
				assert.Equal(t, Written{Version: 1}, w, "it was absent")
				w, err = do.put(nil, ReturnPrevious())
				require.NoError(t, err)
				assert.Equal(t, Written{2, &Item{Key: k, Value: []byte("1"), Version: 1, TTL: time.Hour}}, w)
				w, err = do.del(ReturnPrevious())
				require.NoError(t, err)
				assert.Equal(t, Written{3, &Item{Key: k, Value: []byte{}, Version: 2}}, w)
				w, err = do.put(nil, ReturnPrevious(), IfPresent())
				require.ErrorIs(t, err, ErrConflict)
				assert.Zero(t, w)
				w, err = do.put([]byte("2"))
				require.NoError(t, err)
				assert.Equal(t, Written{Version: 4}, w)
				w, err = do.del()
				require.NoError(t, err)
				assert.Equal(t, Written{Version: 5}, w, "it did not ask")
			})
		})
	}
}

func TestTTL(t *testing.T) {
	everyWay(t, func(t *testing.T, c *cluster, db *Client) {
		ctx := context.Background()
		require.NoError(t, db.Put(ctx, []byte("a"), nil, TTL(10*time.Second)))
		require.NoError(t, db.Put(ctx, []byte("b"), nil, TTL(1)))
		put(t, db, "c", "")
		_, err := db.Apply(ctx, new(Batch).Put([]byte("d"), nil, TTL(20*time.Second)))
		require.NoError(t, err)
		c.store.Advance(time.Millisecond)
		want := 10*time.Second - time.Millisecond
		item, err := db.GetItem(ctx, []byte("a"))
		require.NoError(t, err)
		assert.Equal(t, want, item.TTL)
		found, err := db.GetMany(ctx, [][]byte{[]byte("a"), []byte("b"), []byte("c")})
		require.NoError(t, err)
		assert.Equal(t, want, found[0].TTL)
		assert.False(t, found[1].Found, "it lived for a millisecond")
		assert.Zero(t, found[2].TTL, "for ever")
		var left []time.Duration
		for item, err := range db.Scan(ctx, All()) {
			require.NoError(t, err)
			left = append(left, item.TTL)
		}
		assert.Equal(t, []time.Duration{want, 0, 20*time.Second - time.Millisecond}, left)
		c.store.Advance(want)
		assert.Equal(t, []string{"c", "d"}, keys(t, db, All()))
	})
}

func TestDeleteRange(t *testing.T) {
	ctx := context.Background()
	db := openMemory(t)
	put(t, db, "a", "", "b", "", "b1", "", "c", "", "\x00", "")
	require.NoError(t, db.DeleteRange(ctx, Prefix([]byte("b")), Durable(Sync)))
	assert.Equal(t, []string{"\x00", "a", "c"}, keys(t, db, All()))
	require.NoError(t, db.DeleteRange(ctx, Between(nil, []byte("b"))), "from the first key on")
	assert.Equal(t, []string{"c"}, keys(t, db, All()))
	require.NoError(t, db.DeleteRange(ctx, Between([]byte("c"), []byte("c"))))
	require.ErrorIs(t, db.DeleteRange(ctx, Prefix([]byte("c")), IfPresent()), ErrInvalid)
	assert.Equal(t, []string{"c"}, keys(t, db, All()))
	require.NoError(t, db.DeleteRange(ctx, All()))
	assert.Empty(t, keys(t, db, All()))
}

func TestABatchWithConditionsAndRanges(t *testing.T) {
	ctx := context.Background()
	db := openMemory(t)
	put(t, db, "a", "1", "b1", "1", "b2", "1")
	b := new(Batch).
		DeleteRange(Prefix([]byte("b"))).
		Put([]byte("b2"), []byte("2"), IfVersion(3)).
		Put([]byte("c"), []byte("2"), IfAbsent()).
		Delete([]byte("a"), IfPresent())
	at, err := db.Apply(ctx, b)
	require.NoError(t, err)
	assert.EqualValues(t, 4, at)
	assert.Equal(t, []string{"b2", "c"}, keys(t, db, All()))
	_, err = db.Apply(ctx, b)
	require.ErrorIs(t, err, ErrConflict)
	assert.Equal(t, []string{"b2", "c"}, keys(t, db, All()), "none of it happened")

	for _, b := range []*Batch{
		new(Batch).Put([]byte("k"), nil, Durable(Sync)),
		new(Batch).Put([]byte("k"), nil, ReturnPrevious()),
		new(Batch).Delete([]byte("k"), TTL(time.Second)),
		new(Batch).Delete(nil),
	} {
		_, err := db.Apply(ctx, b)
		require.ErrorIs(t, err, ErrInvalid)
		b.Reset()
		_, err = db.Apply(ctx, b.Put([]byte("k"), nil))
		require.NoError(t, err)
	}
	_, err = db.Apply(ctx, b, IfAbsent())
	require.ErrorIs(t, err, ErrInvalid)
}

func TestWritesRefuseWhatTheyDoNotTake(t *testing.T) {
	everyWay(t, func(t *testing.T, c *cluster, db *Client) {
		ctx := context.Background()
		k := []byte("k")
		for _, err := range []error{
			db.Put(ctx, k, nil, TTL(0)),
			db.Put(ctx, k, nil, TTL(-time.Second)),
			db.Put(ctx, k, nil, IfAbsent(), IfVersion(1)),
			db.Put(ctx, k, nil, ReturnPrevious()),
			db.Delete(ctx, k, ReturnPrevious()),
			db.Put(ctx, k, nil, Durable(Sync), Durable(Memory)),
			db.Delete(ctx, k, TTL(time.Second)),
		} {
			require.ErrorIs(t, err, ErrInvalid)
		}
		assert.Zero(t, c.store.Len())
	})
}
