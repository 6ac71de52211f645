package engine

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

func TestLookupCachedAtAnswersAllOrNothing(t *testing.T) {
	e := open(t, small(vfs.NewMem()))
	keys := keysIn(e, 0, 2)
	put(t, e, keys[0], "on disk", memory)
	require.NoError(t, e.Flush(t.Context()))
	require.NoError(t, e.CompactAll(t.Context())) // so that the file stays the same
	put(t, e, keys[1], "in a memtable", memory)

	budget := kv.NewReadBudget(len("on disk") + len("in a memtable"))
	before := budget.Mark()
	all := []kv.Lookup{{Key: []byte(keys[1]), Budget: budget}, {Key: []byte(keys[0]), Budget: budget}}
	reads := []*kv.Lookup{&all[0], &all[1]}
	_, answered, err := e.LookupCachedAt(reads, 0)
	require.NoError(t, err)
	assert.False(t, answered, "one is on disk")
	assert.Equal(t, before, budget.Mark(), "so no value counts")

	version, err := e.LookupAt(t.Context(), reads, 0)
	require.NoError(t, err)
	assert.False(t, budget.Spent())
	budget.Rewind(before)
	at, answered, err := e.LookupCachedAt(reads, 0)
	require.NoError(t, err)
	require.True(t, answered, "now it is in the cache")
	assert.Equal(t, version, at)
	assert.Equal(t, "in a memtable", string(all[0].Value))
	assert.Equal(t, "on disk", string(all[1].Value))
	assert.Equal(t, at, all[0].ReadVersion)

	s, err := e.BeginSnapshot(t.Context(), time.Minute)
	require.NoError(t, err)
	put(t, e, keys[1], "later", memory)
	budget.Rewind(before)
	at, answered, err = e.LookupCachedAt(reads, s.Version)
	require.NoError(t, err)
	require.True(t, answered)
	assert.Equal(t, s.Version, at)
	assert.Equal(t, "in a memtable", string(all[0].Value))
	e.ReleaseSnapshot(s.ID)
	_, answered, err = e.LookupCachedAt(reads, s.Version)
	require.ErrorIs(t, err, kv.ErrVersionGone)
	assert.False(t, answered)

	_, answered, err = e.LookupCachedAt(nil, 0)
	require.NoError(t, err)
	assert.True(t, answered)
	require.NoError(t, e.Close())
	_, _, err = e.LookupCachedAt(reads, 0)
	require.ErrorIs(t, err, kv.ErrClosed)
}

// LookupCachedAt does not wait for a version that is not yet visible in all partitions.
func TestLookupCachedAtDoesNotWaitForASync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := faultfs.Wrap(vfs.NewMem(), nil)
		e := open(t, small(disk))
		key := keysIn(e, 1, 1)[0]
		g := newGate(faultfs.Sync, "*.wal")
		defer g.open()
		disk.SetInjector(g)
		var synced sync.WaitGroup
		synced.Go(func() { put(t, e, keysIn(e, 0, 1)[0], "v", kv.WriteOptions{Durability: kv.DurabilitySync}) })
		synctest.Wait()
		put(t, e, key, "acknowledged", memory)
		l := kv.Lookup{Key: []byte(key)}
		_, answered, err := e.LookupCachedAt([]*kv.Lookup{&l}, 0)
		require.NoError(t, err)
		assert.False(t, answered)
		g.open()
		synced.Wait()
		_, answered, err = e.LookupCachedAt([]*kv.Lookup{&l}, 0)
		require.NoError(t, err)
		assert.True(t, answered)
		assert.Equal(t, "acknowledged", string(l.Value))
	})
}
