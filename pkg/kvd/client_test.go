package kvd

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestPutGetDelete(t *testing.T) {
	for name, opts := range map[string][]Option{
		"in frames": nil,
		"by gRPC":   {WithoutRawFrames()},
		"alone":     {WithBatching(Batching{Disabled: true})},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			db := openMemory(t, opts...)
			_, err := db.Get(ctx, []byte("a"))
			require.ErrorIs(t, err, ErrNotFound)
			require.NoError(t, db.Put(ctx, []byte("a"), []byte("1")))
			value, err := db.Get(ctx, []byte("a"))
			require.NoError(t, err)
			assert.Equal(t, "1", string(value))
			item, err := db.GetItem(ctx, []byte("a"))
			require.NoError(t, err)
			assert.Equal(t, Item{Key: []byte("a"), Value: []byte("1"), Version: 1}, item)

			require.NoError(t, db.Delete(ctx, []byte("a")))
			require.NoError(t, db.Delete(ctx, []byte("a")), "deleting an absent key succeeds")
			_, err = db.Get(ctx, []byte("a"))
			require.ErrorIs(t, err, ErrNotFound)
		})
	}
}

func TestAnEmptyValueIsAValueAndAnEmptyKeyIsNone(t *testing.T) {
	ctx := context.Background()
	db := openMemory(t)
	require.NoError(t, db.Put(ctx, []byte("a"), nil))
	value, err := db.Get(ctx, []byte("a"))
	require.NoError(t, err)
	assert.NotNil(t, value)
	assert.Empty(t, value)
	found, err := db.GetMany(ctx, [][]byte{[]byte("a"), []byte("b")})
	require.NoError(t, err)
	assert.True(t, found[0].Found)
	assert.NotNil(t, found[0].Value)
	assert.False(t, found[1].Found)

	require.ErrorIs(t, db.Put(ctx, nil, nil), ErrInvalid)
	require.ErrorIs(t, db.Delete(ctx, []byte{}), ErrInvalid)
	_, err = db.Get(ctx, nil)
	require.ErrorIs(t, err, ErrInvalid)
	_, err = db.GetMany(ctx, [][]byte{nil})
	require.ErrorIs(t, err, ErrInvalid)
}

func TestScanYieldsARangeInOrder(t *testing.T) {
	ctx := context.Background()
	db := openMemory(t)
	var batch Batch
	for i := range 3000 {
		batch.Put(fmt.Appendf(nil, "k%04d", i), fmt.Appendf(nil, "v%d", i))
	}
	version, err := db.Apply(ctx, &batch)
	require.NoError(t, err)
	assert.EqualValues(t, 1, version)

	i := 0
	for item, err := range db.Scan(ctx, All()) {
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("k%04d", i), string(item.Key))
		require.Equal(t, fmt.Sprintf("v%d", i), string(item.Value))
		require.EqualValues(t, 1, item.Version)
		i++
	}
	assert.Equal(t, 3000, i)

	keys := func(r Range, opts ...ScanOption) (keys []string) {
		for item, err := range db.Scan(ctx, r, opts...) {
			require.NoError(t, err)
			require.Empty(t, item.Value)
			keys = append(keys, string(item.Key))
		}
		return keys
	}
	assert.Equal(t, []string{"k0010", "k0011"}, keys(Between([]byte("k0010"), []byte("k0012")), KeysOnly()))
	assert.Equal(t, []string{"k2990", "k2991"}, keys(Prefix([]byte("k299")), KeysOnly(), Limit(2)))
	assert.Len(t, keys(Prefix([]byte("k299")), KeysOnly()), 10)
	assert.Empty(t, keys(Prefix([]byte("x"))))
}
