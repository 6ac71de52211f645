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

		require.NoError(t, db.Put(ctx, k, v, IfAbsent(), WrittenAt(&version)))
		assert.NotZero(t, version)
		failed(db.Put(ctx, k, v, IfAbsent()))
		failed(db.Put(ctx, k, v, IfVersion(0)))
		failed(db.Put(ctx, k, v, IfVersion(version+1)))
		failed(db.Put(ctx, k, v, IfValue([]byte("other"))))
		first := version
		require.NoError(t, db.Put(ctx, k, []byte("w"), IfVersion(version), WrittenAt(&version)))
		assert.Greater(t, version, first)
		require.NoError(t, db.Put(ctx, k, v, IfValue([]byte("w"))))
		require.NoError(t, db.Put(ctx, k, v, IfPresent()))
		require.NoError(t, db.Delete(ctx, k, IfValue(v)))
		require.NoError(t, db.Put(ctx, k, v, IfVersion(0)))
	})
}

func TestPrevious(t *testing.T) {
	everyWay(t, func(t *testing.T, _ *cluster, db *Client) {
		ctx := context.Background()
		k := []byte("k")
		previous := Item{Key: []byte("?"), Version: 99}
		require.NoError(t, db.Put(ctx, k, []byte("1"), Previous(&previous), TTL(time.Hour)))
		assert.Equal(t, Item{}, previous, "it was absent")
		require.NoError(t, db.Put(ctx, k, nil, Previous(&previous)))
		assert.Equal(t, Item{Key: k, Value: []byte("1"), Version: 1, TTL: time.Hour}, previous)
		require.NoError(t, db.Delete(ctx, k, Previous(&previous)))
		assert.Equal(t, Item{Key: k, Value: []byte{}, Version: 2}, previous)
		require.ErrorIs(t, db.Put(ctx, k, nil, Previous(&previous), IfPresent()), ErrConflict)
		assert.EqualValues(t, 2, previous.Version, "an error fills in nothing")
	})
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
	var version uint64
	require.NoError(t, db.DeleteRange(ctx, Prefix([]byte("b")), WrittenAt(&version), Durable(Sync)))
	assert.EqualValues(t, 6, version)
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
	var version uint64
	at, err := db.Apply(ctx, b, WrittenAt(&version))
	require.NoError(t, err)
	assert.Equal(t, at, version)
	assert.Equal(t, []string{"b2", "c"}, keys(t, db, All()))
	_, err = db.Apply(ctx, b)
	require.ErrorIs(t, err, ErrConflict)
	assert.Equal(t, []string{"b2", "c"}, keys(t, db, All()), "none of it happened")

	for _, b := range []*Batch{
		new(Batch).Put([]byte("k"), nil, Durable(Sync)),
		new(Batch).Put([]byte("k"), nil, Previous(new(Item))),
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
			db.Put(ctx, k, nil, Previous(nil)),
			db.Put(ctx, k, nil, WrittenAt(nil)),
			db.Put(ctx, k, nil, Durable(Sync), Durable(Memory)),
			db.Delete(ctx, k, TTL(time.Second)),
		} {
			require.ErrorIs(t, err, ErrInvalid)
		}
		assert.Zero(t, c.store.Len())
	})
}
