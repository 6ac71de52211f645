package embed_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/pkg/kvd"
	"github.com/kvd-db/kvd/pkg/kvd/embed"
)

// The results of GetMany, small and large, belong to the caller: neither a later call nor an
// append to one of them changes another one.
func TestResultsOfGetManyAreApart(t *testing.T) {
	db, err := embed.Memory()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	sizes := []int{0, 1, 100, 511, 512, 513, 4 << 10, 100 << 10}
	value := func(n, size int) []byte { return bytes.Repeat([]byte{byte(n)}, size) }
	var keys [][]byte
	for n := range 200 {
		keys = append(keys, fmt.Appendf(nil, "key%d", n))
		require.NoError(t, db.Put(t.Context(), keys[n], value(n, sizes[n%len(sizes)])))
	}
	keys = append(keys, []byte("absent"))
	var all [][]kvd.Lookup
	for i := range 4 {
		asked := keys[i*50:]
		found, err := db.GetMany(t.Context(), asked)
		require.NoError(t, err)
		require.Len(t, found, len(asked))
		all = append(all, found)
	}
	for _, found := range all {
		for i := range found {
			_ = append(found[i].Value, 0xff)
			_ = append(found[i].Key, 0xff)
		}
	}
	for i, found := range all {
		for j, l := range found {
			n := i*50 + j
			require.Equal(t, keys[n], l.Key)
			if n == 200 {
				require.Equal(t, kvd.Lookup{Item: kvd.Item{Key: keys[n]}}, l)
				continue
			}
			require.True(t, l.Found && l.Value != nil && bytes.Equal(value(n, sizes[n%len(sizes)]), l.Value), "key %d", n)
		}
	}
}
