package kvd

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/pkg/kvd/internal/servertest"
)

// A call whose context has ended before it sends nothing, so that its outcome is known. Each is
// tried often: the network beneath the client would send some of them.
func TestACallWithAnEndedContextSendsNothing(t *testing.T) {
	everyTransport(t, func(t *testing.T, opts ...Option) {
		c := serve(t, nil, service.Options{})
		db := c.open(t, opts...)
		require.NoError(t, db.Ping(t.Context()))
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		key := []byte("k")
		calls := map[string]func() error{
			"Put":    func() error { return db.Put(ctx, key, key) },
			"Delete": func() error { return db.Delete(ctx, key) },
			"Apply": func() error {
				b := new(Batch)
				b.Put(key, key)
				_, err := db.Apply(ctx, b)
				return err
			},
			"Do": func() error {
				p := db.Pipeline()
				p.Put(key, key)
				return p.Do(ctx)
			},
			"Update": func() error { return db.Update(ctx, func(tx *Txn) error { return tx.Put(ctx, key, key) }) },
			"Get": func() error {
				_, err := db.Get(ctx, key)
				return err
			},
			"GetMany": func() error {
				_, err := db.GetMany(ctx, [][]byte{key})
				return err
			},
		}
		for name, call := range calls {
			for range 500 {
				err := call()
				require.ErrorIs(t, err, context.Canceled, name)
				require.NotErrorIs(t, err, ErrUncertain, name)
			}
		}
		assert.Zero(t, servertest.VersionOf(t, c.store))
	})
}
