package kvdtest_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/pkg/kvd"
	"github.com/kvd-db/kvd/pkg/kvd/embed"
	"github.com/kvd-db/kvd/pkg/kvd/kvdtest"
)

func TestEmbeddedStoresConform(t *testing.T) {
	t.Run("on disk", func(t *testing.T) {
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
	for name, opts := range map[string][]kvd.Option{
		"by raw frames": nil,
		"by gRPC":       {kvd.WithoutRawFrames()},
		"call by call":  {kvd.WithBatching(kvd.Batching{Disabled: true})},
	} {
		t.Run(name, func(t *testing.T) {
			kvdtest.Conformance(t, func(t *testing.T) kvd.Store { return kvdtest.New(t, opts...) })
		})
	}
}
