package client

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/pkg/kvd"
	"github.com/kvd-db/kvd/pkg/kvd/kvdtest"
)

func TestAConditionalSetIsRefusedIfTheKeyHasChanged(t *testing.T) {
	c, key := kvdClient{kvdtest.New(t)}, []byte("k")
	require.NoError(t, c.Set(t.Context(), key, []byte("1")))
	_, version, err := c.GetVersion(t.Context(), key)
	require.NoError(t, err)
	second, err := c.SetIfVersion(t.Context(), key, []byte("2"), version)
	require.NoError(t, err)
	assert.Greater(t, second, version)
	_, err = c.SetIfVersion(t.Context(), key, []byte("3"), version)
	require.ErrorIs(t, err, kvd.ErrConflict)
	require.ErrorIs(t, c.SetIfValue(t.Context(), key, []byte("3"), []byte("1")), kvd.ErrConflict)
	require.NoError(t, c.SetIfValue(t.Context(), key, []byte("3"), []byte("2")))
	value, _, err := c.GetVersion(t.Context(), key)
	require.NoError(t, err)
	assert.Equal(t, "3", string(value))
}

func TestAnUpdateThatIsNotWantedWritesNothing(t *testing.T) {
	c, key := kvdClient{kvdtest.New(t)}, []byte("k")
	require.NoError(t, c.Set(t.Context(), key, []byte("old")))
	var seen string
	refuse := func(old []byte) error { seen = string(old); return assert.AnError }
	require.ErrorIs(t, c.Update(t.Context(), key, []byte("new"), refuse), assert.AnError)
	assert.Equal(t, "old", seen)
	for _, reader := range []Client{c, kvdView{c}} {
		value, err := reader.Get(t.Context(), key)
		require.NoError(t, err)
		assert.Equal(t, "old", string(value))
	}
}

func TestASnapshotKeepsWhatItReads(t *testing.T) {
	c, key := kvdClient{kvdtest.New(t)}, []byte("k")
	require.NoError(t, c.Set(t.Context(), key, []byte("old")))
	at, err := c.c.Snapshot(t.Context())
	require.NoError(t, err)
	defer func() { assert.NoError(t, at.Close()) }()
	require.NoError(t, c.Update(t.Context(), key, []byte("new"), func([]byte) error { return nil }))
	value, err := kvdSnapshot{c, at}.Get(t.Context(), key)
	require.NoError(t, err)
	assert.Equal(t, "old", string(value))
}
