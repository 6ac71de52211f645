package kvd

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/service"
)

func TestNamesAreNeverTheSame(t *testing.T) {
	var a, b names
	a.init()
	b.init()
	assert.NotEqual(t, a.client, b.client)
	assert.False(t, noName.given())
	var mu sync.Mutex
	given := make(map[uint64]bool)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				n := a.next()
				assert.True(t, n.given())
				mu.Lock()
				given[n.sequence] = true
				mu.Unlock()
			}
		})
	}
	all.Wait()
	assert.Len(t, given, 800)
}

func TestTheNewestVersionSeenNeverGoesBack(t *testing.T) {
	var n names
	var all sync.WaitGroup
	for caller := range uint64(8) {
		all.Go(func() {
			for i := range uint64(1000) {
				n.see(i*8 + caller)
				assert.GreaterOrEqual(t, n.next().known, i*8+caller)
			}
		})
	}
	all.Wait()
	n.see(3)
	assert.EqualValues(t, 7999, n.newest.Load())
}

// The client knows the newest version that any answer had.
func TestEveryAnswerTellsAVersion(t *testing.T) {
	ctx := context.Background()
	k := []byte("k")
	for name, batching := range map[string]Batching{"in frames": {}, "alone": {Disabled: true}} {
		for what, call := range map[string]func(*Client) error{
			"get":      func(db *Client) error { _, err := db.Get(ctx, k); return err },
			"get many": func(db *Client) error { _, err := db.GetMany(ctx, [][]byte{k}); return err },
			"snapshot": func(db *Client) error { return db.View(ctx, func(*Snapshot) error { return nil }) },
			"scan": func(db *Client) error {
				for _, err := range db.Scan(ctx, All()) {
					return err
				}
				return nil
			},
			"put":   func(db *Client) error { return db.Put(ctx, k, nil) },
			"apply": func(db *Client) error { _, err := db.Apply(ctx, new(Batch).Delete(k)); return err },
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				c := serve(t, nil, service.Options{})
				put(t, c.open(t), "a", "", "b", "", "k", "")
				db := c.open(t, WithBatching(batching))
				require.NoError(t, call(db))
				assert.Equal(t, versionOf(t, c.store), networkOf(db).names.newest.Load())
			})
		}
	}
}

// What others learn while a write is under way is of no use to it: it may have
// been applied before that.
func TestAWriteKnowsWhatWasKnownWhenItWasFirstSent(t *testing.T) {
	ctx := context.Background()
	var log tryLog
	s := losing(&log, 1, succeed)
	db := s.open(t)
	networkOf(db).names.see(7)
	unary := s.unary
	s.unary = func(request any) (any, error) {
		networkOf(db).names.see(1000)
		return unary(request)
	}
	require.NoError(t, writesOf(db)["apply"](ctx))
	tries := log.take()
	require.Len(t, tries, 2)
	assert.EqualValues(t, 7, tries[1].KnownVersion)
}
