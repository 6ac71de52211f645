package kvd

import (
	"context"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
)

// What a read asks for of the newest version comes to the server, whichever call it is; a snapshot
// and a transaction take no such option.
func TestReadsSayHowNewTheStateMustBe(t *testing.T) {
	everyTransport(t, func(t *testing.T, opts ...Option) {
		store := servicetest.New(kv.DefaultLimits)
		var seen atomic.Value
		store.OnLookup = func(_ context.Context, reads []*kv.Lookup) error {
			for _, r := range reads {
				seen.Store(r.Fresh)
			}
			return nil
		}
		server := serve(t, store, service.Options{})
		db := server.open(t, opts...)
		ctx, k := t.Context(), []byte("k")
		require.NoError(t, db.Put(ctx, k, []byte("v")))
		reads := map[string]func(opts ...ReadOption) error{
			"get": func(opts ...ReadOption) error {
				_, err := db.Get(ctx, k, opts...)
				return err
			},
			"get many": func(opts ...ReadOption) error {
				_, err := db.GetMany(ctx, [][]byte{k, k}, opts...)
				return err
			},
			"pipeline": func(opts ...ReadOption) error {
				p := db.Pipeline()
				p.Get(k, opts...)
				p.Get(k)
				return p.Do(ctx)
			},
		}
		for name, read := range reads {
			for want, opts := range map[kv.Freshness][]ReadOption{
				{}:                                 {Stale(-time.Second), Stale(time.Microsecond)},
				{MaxLag: 1500 * time.Millisecond}:  {Stale(1500*time.Millisecond + 1)},
				{MinVersion: 9}:                    {MinVersion(9)},
				{MaxLag: time.Hour, MinVersion: 7}: {MinVersion(7), Stale(time.Hour)},
			} {
				require.NoError(t, read(opts...), name)
				if name != "pipeline" { // whose second read comes when it likes
					require.Equal(t, want, seen.Load(), name)
				}
			}
			require.ErrorIs(t, read(MinVersion(math.MaxUint64)), ErrInvalid, name)
		}
		for _, err := range db.Scan(ctx, All(), Stale(time.Second), MinVersion(1)) {
			require.NoError(t, err)
		}
		for _, err := range db.Scan(ctx, All(), MinVersion(math.MaxUint64)) {
			require.ErrorIs(t, err, ErrInvalid)
		}

		s, err := db.Snapshot(ctx)
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		_, err = s.Get(ctx, k, Stale(time.Second))
		require.ErrorIs(t, err, ErrInvalid)
		for _, err := range s.Scan(ctx, All(), MinVersion(1)) {
			require.ErrorIs(t, err, ErrInvalid)
		}
		err = db.Update(ctx, func(tx *Txn) error {
			_, err := tx.Get(ctx, k, Stale(time.Second))
			require.ErrorIs(t, err, ErrInvalid)
			return nil
		})
		require.NoError(t, err)
	})
}
