package kvd

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/bench/peers"
	"github.com/kvd-db/kvd/bench/peers/peertest"
)

func TestKeepsTheObligations(t *testing.T) {
	peertest.Run(t, func(o peers.Options) (peers.Store, error) { return Open(o, 4) })
}

func TestInsideTellsOfCacheAndTables(t *testing.T) {
	s, err := Open(peers.Options{Dir: t.TempDir(), MemoryBytes: 16 << 20}, 4)
	require.NoError(t, err)
	var entries []peers.Entry
	for i := range 1000 {
		entries = append(entries, peers.Entry{Key: fmt.Appendf(nil, "key %06d", i), Value: make([]byte, 100)})
	}
	require.NoError(t, s.Load(entries))
	insider := s.(peers.Insider)
	assert.Zero(t, insider.Inside())
	require.NoError(t, s.Settle())
	tables := insider.Inside().TableBytes
	assert.Greater(t, tables, int64(1000*(10+100)))
	assert.Zero(t, insider.Inside().BlocksRead)

	for range 2 { // the second time from the cache
		_, found, err := s.Get(t.Context(), []byte("key 000500"), nil)
		require.NoError(t, err)
		require.True(t, found)
		inside := insider.Inside()
		assert.Equal(t, uint64(1), inside.BlocksRead)
		assert.Greater(t, inside.CacheBytes, int64(1000))
		assert.Less(t, inside.CacheBytes, int64(20_000))
	}
	require.NoError(t, s.Close())
}
