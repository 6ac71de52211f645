package kvd

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	"github.com/kvd-db/kvd/pkg/kvd/internal/servertest"
)

func TestPipeline(t *testing.T) {
	for name, o := range map[string]Option{
		"raw": func(*config) {}, "gRPC": WithoutRawFrames(), "alone": WithBatching(Batching{Disabled: true}),
	} {
		t.Run(name, func(t *testing.T) {
			ctx := context.Background()
			db := openMemory(t, o)
			p := db.Pipeline()
			require.NoError(t, p.Do(ctx), "nothing to do")
			key, value := []byte("a"), []byte("1")
			absent := p.Get(key)
			put := p.Put(key, value)
			first := p.Get(key)
			value[0] = '2' // copied
			replacing := p.Put(key, value, ReturnPrevious())
			key[0] = 'x'
			second := p.Get([]byte("a"))
			p.Put([]byte("large"), make([]byte, 100<<10))
			conflict := p.Put([]byte("a"), nil, IfAbsent())
			p.Delete([]byte("a"))
			gone := p.Get([]byte("a"))
			nonsense := p.Delete([]byte("b"), TTL(time.Second))
			empty := p.Put(nil, nil)
			assert.Equal(t, 11, p.Len())
			_, err := put.Result()
			require.ErrorIs(t, err, ErrInvalid, "not done yet")

			err = p.Do(ctx)
			require.ErrorIs(t, err, ErrNotFound)
			require.ErrorIs(t, err, ErrConflict)
			require.ErrorIs(t, err, ErrInvalid)
			assert.Zero(t, p.Len())
			for _, test := range []struct {
				get  *Pending[[]byte]
				want string
				err  error
			}{{absent, "", ErrNotFound}, {first, "1", nil}, {second, "2", nil}, {gone, "", ErrNotFound}} {
				got, err := test.get.Result()
				require.ErrorIs(t, err, test.err)
				assert.Equal(t, test.want, string(got))
			}
			replaced, err := replacing.Result()
			require.NoError(t, err)
			assert.Equal(t, "1", string(replaced.Previous.Value))
			assert.Equal(t, "a", string(replaced.Previous.Key))
			for write, want := range map[*Pending[Written]]error{put: nil, conflict: ErrConflict, nonsense: ErrInvalid, empty: ErrInvalid} {
				_, err := write.Result()
				require.ErrorIs(t, err, want)
			}
			large, err := db.Get(ctx, []byte("large"))
			require.NoError(t, err)
			assert.Len(t, large, 100<<10)

			require.NoError(t, p.Put([]byte("again"), nil).operation.Err)
			require.NoError(t, p.Do(ctx))
			_, err = db.Get(ctx, []byte("again"))
			require.NoError(t, err)
		})
	}
}

// A pipeline makes large frames, of a goroutine that does not wait in between.
func TestAPipelineTravelsInFewFrames(t *testing.T) {
	everyTransport(t, func(t *testing.T, opts ...Option) {
		c := serve(t, nil, service.Options{})
		db := c.open(t, opts...)
		p := db.Pipeline()
		const n = 3 * 4096 // 4096 are in flight at once
		for i := range n {
			p.Put(fmt.Append(nil, i), nil)
		}
		require.NoError(t, p.Do(context.Background()))
		assert.Equal(t, n, c.store.Len())
		stats := c.server.Stats()
		assert.EqualValues(t, n, stats.Frames.Sum)
		assert.Less(t, stats.Frames.Count(), uint64(n/20))
	})
}

func TestWhatMayBeUnderWayTogether(t *testing.T) {
	p := (&Client{}).Pipeline()
	queued := func(ops string) (lengths []int) {
		p.queue = nil
		for i := 0; i < len(ops); i += 2 {
			if key := []byte(ops[i+1 : i+2]); ops[i] == 'r' {
				p.Get(key)
			} else {
				p.Delete(key)
			}
		}
		for rest := p.queue; len(rest) > 0; {
			n := p.independent(rest)
			lengths = append(lengths, n)
			rest = rest[n:]
		}
		return lengths
	}
	for ops, want := range map[string][]int{
		"rarbra":     {3},
		"warb":       {2},
		"wara":       {1, 1},
		"rawa":       {1, 1},
		"wawawa":     {1, 1, 1},
		"rawbrbwara": {2, 2, 1},
	} {
		assert.Equal(t, want, queued(ops), ops)
	}
}

// What is lost is sent again under its name, all of it at once.
func TestAPipelineThatIsCut(t *testing.T) {
	everyTransport(t, func(t *testing.T, opts ...Option) {
		store := servicetest.New(kv.DefaultLimits)
		c := serve(t, store, service.Options{})
		cut := &cuttable{dial: c.dialer}
		var cuts atomic.Int32
		store.OnWrite = func(context.Context, []*kv.Write) error {
			if cuts.Add(1) <= 2 {
				cut.cut()
			}
			return nil
		}
		db := c.open(t, append(opts, WithDialer(cut.dialer))...)
		p := db.Pipeline()
		const n = 600
		for i := range n {
			p.Put(fmt.Append(nil, i), nil)
		}
		require.NoError(t, p.Do(context.Background()))
		assert.EqualValues(t, n, servertest.VersionOf(t, store), "each was applied once")
		assert.Equal(t, n, store.Len())
	})
}

// longPipeline has more writes than the budget has retries.
func longPipeline(db *Client) *Pipeline {
	p := db.Pipeline()
	for i := range 10_000 {
		p.Put(fmt.Append(nil, i), nil)
	}
	return p
}

// A long pipeline goes on if the server is away for a moment.
func TestALongPipelineOutlastsARestart(t *testing.T) {
	everyTransport(t, func(t *testing.T, opts ...Option) {
		store := servicetest.New(kv.DefaultLimits)
		c := serve(t, store, service.Options{})
		cut := &cuttable{dial: c.dialer}
		var writes, dials atomic.Int32
		store.OnWrite = func(context.Context, []*kv.Write) error {
			if writes.Add(1) == 1 {
				cut.cut()
			}
			return nil
		}
		db := c.open(t, append(opts, WithConns(1), WithDialer(func(ctx context.Context, address string) (net.Conn, error) {
			if dials.Add(1) == 2 {
				return nil, errDown
			}
			return cut.dialer(ctx, address)
		}))...)
		require.NoError(t, longPipeline(db).Do(t.Context()))
		assert.Equal(t, 10_000, store.Len())
		assert.EqualValues(t, 10_000, servertest.VersionOf(t, store), "each was applied once")
	})
}

// A long pipeline finds the node that leads a cluster, also if it is the last one that is asked.
func TestALongPipelineFindsTheLeader(t *testing.T) {
	everyTransport(t, func(t *testing.T, opts ...Option) {
		l := serveAt(t, "a:1", "b:1", "c:1")
		for _, address := range []string{"a:1", "b:1"} {
			store := servicetest.New(kv.DefaultLimits)
			store.OnWrite = func(context.Context, []*kv.Write) error { return &kv.NotLeaderError{Leader: 3} }
			l.ways[address] = &cuttable{dial: serve(t, store, service.Options{}).dialer}
		}
		db := l.open(t, "a:1,b:1,c:1", opts...)
		require.NoError(t, longPipeline(db).Do(t.Context()))
		assert.Equal(t, 10_000, l.store.Len())
	})
}

func TestAPipelineEndsWithItsContext(t *testing.T) {
	c, entered, leave := held(t)
	defer leave()
	db := c.open(t, WithConns(1), WithBatching(Batching{MaxOps: 1, Window: 1}))
	p := db.Pipeline()
	sent, unsent := p.Put([]byte("sent"), nil), p.Put([]byte("unsent"), nil)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-entered
		cancel()
	}()
	require.ErrorIs(t, p.Do(ctx), context.Canceled)
	_, err := sent.Result()
	require.ErrorIs(t, err, ErrUncertain)
	_, err = unsent.Result()
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, ErrUncertain)

	late := p.Put([]byte("k"), nil)
	require.ErrorIs(t, p.Do(ctx), context.Canceled)
	_, err = late.Result()
	require.NotErrorIs(t, err, ErrUncertain)
	leave()
	require.NoError(t, db.Close())
	p.Put([]byte("k"), nil)
	require.ErrorIs(t, p.Do(context.Background()), ErrClosed)
}

// Pipelines of several goroutines share frames with everybody else.
func TestPipelinesOfManyGoroutines(t *testing.T) {
	everyTransport(t, func(t *testing.T, opts ...Option) {
		c := serve(t, nil, service.Options{})
		db := c.open(t, opts...)
		var all sync.WaitGroup
		for caller := range 8 {
			all.Go(func() {
				p := db.Pipeline()
				for round := range 5 {
					var gets []*Pending[[]byte]
					for i := range 20 {
						key := fmt.Appendf(nil, "%d/%d", caller, i)
						p.Put(key, fmt.Append(nil, round))
						gets = append(gets, p.Get(key))
					}
					if !assert.NoError(t, p.Do(context.Background())) {
						return
					}
					for _, get := range gets {
						value, err := get.Result()
						assert.NoError(t, err)
						assert.Equal(t, fmt.Sprint(round), string(value))
					}
				}
			})
		}
		all.Wait()
	})
}
