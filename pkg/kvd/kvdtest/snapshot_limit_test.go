package kvdtest_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/pkg/kvd"
	"github.com/kvd-db/kvd/pkg/kvd/embed"
	"github.com/kvd-db/kvd/pkg/kvd/kvdtest"
)

// A snapshot refuses an answer with more bytes than a batch may have, as the client does, and whether the
// store is served or embedded.
func TestASnapshotReadsNoMoreAtOnceThanTheClient(t *testing.T) {
	embedded, err := embed.Memory()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, embedded.Close()) })
	for name, db := range map[string]kvd.Store{"served": kvdtest.New(t), "embedded": embedded} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			var keys [][]byte
			for i := range 9 {
				keys = append(keys, fmt.Appendf(nil, "key-%d", i))
				require.NoError(t, db.Put(ctx, keys[i], make([]byte, 1<<20), kvd.Durable(kvd.Memory)))
			}
			_, err := db.GetMany(ctx, keys)
			require.ErrorIs(t, err, kvd.ErrTooLarge)
			require.NoError(t, db.View(ctx, func(s *kvd.Snapshot) error {
				_, err := s.GetMany(ctx, keys)
				assert.ErrorIs(t, err, kvd.ErrTooLarge)
				return nil
			}))
		})
	}
}
