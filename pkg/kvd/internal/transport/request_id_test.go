package transport

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/pkg/kvd/internal/backend"
	"github.com/kvd-db/kvd/pkg/kvd/internal/servertest"
)

func TestRequestIDsAreUnique(t *testing.T) {
	var a, b requestIDs
	a.init()
	b.init()
	assert.NotEqual(t, a.client, b.client)
	assert.False(t, noRequestID.given())
	var mu sync.Mutex
	given := make(map[uint64]bool)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 100 {
				id := a.next()
				assert.True(t, id.given())
				mu.Lock()
				given[id.sequence] = true
				mu.Unlock()
			}
		})
	}
	all.Wait()
	assert.Len(t, given, 800)
}

func TestTheNewestVersionSeenNeverGoesBack(t *testing.T) {
	var ids requestIDs
	var all sync.WaitGroup
	for caller := range uint64(8) {
		all.Go(func() {
			for i := range uint64(1000) {
				ids.observe(i*8 + caller)
				assert.GreaterOrEqual(t, ids.next().known, i*8+caller)
			}
		})
	}
	all.Wait()
	ids.observe(3)
	assert.EqualValues(t, 7999, ids.newest.Load())
}

// The client knows the newest version that any answer had.
func TestEveryAnswerTellsAVersion(t *testing.T) {
	ctx := context.Background()
	newest := backend.ReadVersion{}
	for name, unframed := range map[string]bool{"in frames": false, "alone": true} {
		for what, call := range map[string]func(caller) error{
			"get": func(db caller) error { _, err := db.get(ctx, "k"); return err },
			"get many": func(db caller) error {
				return db.GetMany(ctx, [][]byte{[]byte("k")}, newest, nil, func(int, backend.Value, bool) {})
			},
			"snapshot": func(db caller) error {
				s, err := db.BeginSnapshot(ctx, 0, nil)
				db.ReleaseSnapshot(s.ID)
				return err
			},
			"scan": func(db caller) error {
				return db.Scan(ctx, &backend.Scan{}, func(backend.Item) bool { return false })
			},
			"put": func(db caller) error { return db.put(ctx, "k", nil) },
			"apply": func(db caller) error {
				_, err := db.Apply(ctx, []backend.Mutation{{Kind: backend.Delete, Key: []byte("k")}}, backend.WriteOptions{})
				return err
			},
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				c := servertest.Serve(t, nil, service.Options{})
				openBy(t, c.Dial, Options{}).mustPut(t, "a", "", "b", "", "k", "")
				db := openBy(t, c.Dial, Options{Unframed: unframed})
				require.NoError(t, call(db))
				assert.Equal(t, servertest.VersionOf(t, c.Store), db.requestIDs.newest.Load())
			})
		}
	}
}

// What others learn while a write is under way is of no use to it: it may have
// been applied before that.
func TestAWriteKnowsWhatWasKnownWhenItWasFirstSent(t *testing.T) {
	var log servertest.TryLog
	s := servertest.Losing(&log, 1, servertest.Succeed)
	db := openBy(t, s.Dialer(t), Options{})
	db.requestIDs.observe(7)
	unary := s.Unary
	s.Unary = func(request any) (any, error) {
		db.requestIDs.observe(1000)
		return unary(request)
	}
	write := []backend.Mutation{{Kind: backend.Put, Key: []byte("k"), Value: []byte("v")}}
	_, err := db.Apply(t.Context(), write, backend.WriteOptions{})
	require.NoError(t, err)
	tries := log.Take()
	require.Len(t, tries, 2)
	assert.EqualValues(t, 7, tries[1].KnownVersion)
}
