package kvd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/pkg/kvd/internal/servertest"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

// listeners are the ways to servers of one store, by address. A test takes them down
// and up again.
type listeners struct {
	store   *servicetest.Store
	servers []*cluster

	mu    sync.Mutex
	ways  map[string]*cuttable
	down  map[string]bool
	dials map[string]int
}

func serveAt(t *testing.T, addresses ...string) *listeners {
	t.Helper()
	l := &listeners{
		store: servicetest.New(kv.DefaultLimits),
		ways:  make(map[string]*cuttable), down: make(map[string]bool), dials: make(map[string]int),
	}
	for _, a := range addresses {
		server := serve(t, l.store, service.Options{})
		l.servers = append(l.servers, server)
		l.ways[a] = &cuttable{dial: server.dialer}
	}
	return l
}

var errDown = errors.New("connection refused")

func (l *listeners) dial(ctx context.Context, address string) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dials[address]++
	if l.down[address] {
		return nil, errDown
	}
	return l.ways[address].dialer(ctx, address)
}

// kill refuses connections to an address and cuts those that it has.
func (l *listeners) kill(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down[address] = true
	l.ways[address].cut()
}

func (l *listeners) revive(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down[address] = false
}

func (l *listeners) dialed() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.dials)
}

func (l *listeners) open(t *testing.T, target string, opts ...Option) *Client {
	t.Helper()
	db, err := Open(target, append([]Option{WithDialer(l.dial), WithTimeout(testwait.Left())}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, db.Close()) })
	return db
}

// callsOf has every kind of call.
func callsOf(db *Client) map[string]func(context.Context) error {
	calls := writesOf(db)
	k := []byte("k")
	maps.Copy(calls, map[string]func(context.Context) error{
		"ping":     db.Ping,
		"get":      func(ctx context.Context) error { _, err := db.Get(ctx, k); return err },
		"get many": func(ctx context.Context) error { _, err := db.GetMany(ctx, [][]byte{k, k}); return err },
		"scan": func(ctx context.Context) error {
			for _, err := range db.Scan(ctx, All()) {
				if err != nil {
					return err
				}
			}
			return nil
		},
		"snapshot": func(ctx context.Context) error {
			return db.View(ctx, func(s *Snapshot) error { _, err := s.GetItem(ctx, k); return err })
		},
		"update": func(ctx context.Context) error {
			return db.Update(ctx, func(tx *Txn) error {
				_, err := tx.Get(ctx, k)
				return errors.Join(err, tx.Put(ctx, k, nil))
			})
		},
		"pipeline": func(ctx context.Context) error {
			p := db.Pipeline()
			p.Get(k)
			p.Put(k, nil)
			p.Put(k, make([]byte, 100<<10))
			return p.Do(ctx)
		},
	})
	return calls
}

// Every kind of call finds the one endpoint that can be reached, from whichever the
// client begins with.
func TestACallFindsTheEndpointThatCanBeReached(t *testing.T) {
	l := serveAt(t, "a:7070", "b:1", "c:1")
	l.kill("a:7070")
	l.kill("b:1")
	for name := range callsOf(nil) {
		t.Run(name, func(t *testing.T) {
			everyTransport(t, func(t *testing.T, opts ...Option) {
				t.Parallel() // it waits between tries
				db := l.open(t, "a:7070, b:1,c:1", opts...)
				put(t, l.open(t, "c:1"), "k", "v")
				require.NoError(t, callsOf(db)[name](t.Context()))
			})
		})
	}
}

// Writes go to the node of a cluster that leads, wherever the client begins and whenever another
// node begins to lead.
func TestWritesFindTheLeader(t *testing.T) {
	everyTransport(t, func(t *testing.T, opts ...Option) {
		l := serveAt(t)
		var leader atomic.Uint64
		for id, address := range map[uint64]string{1: "a:1", 2: "b:1", 3: "c:1"} {
			store := servicetest.New(kv.DefaultLimits)
			refuse := func() error {
				if leader.Load() == id {
					return nil
				}
				return &kv.NotLeaderError{Leader: leader.Load()}
			}
			store.OnWrite = func(context.Context, []*kv.Write) error { return refuse() }
			store.OnApply = func(context.Context, *kv.WriteBatch) error { return refuse() }
			way := &cuttable{dial: serve(t, store, service.Options{}).dialer}
			l.mu.Lock()
			l.ways[address] = way
			l.mu.Unlock()
			leader.Store(id)
			put(t, l.open(t, address), "k", "v")
		}
		db := l.open(t, "a:1,b:1,c:1", opts...)
		for _, id := range []uint64{2, 1, 3, 2} {
			leader.Store(id)
			for name, write := range writesOf(db) {
				require.NoError(t, write(t.Context()), "%s, node %d leads", name, id)
			}
		}
	})
}

// A client of one node that does not lead, and forwards nothing, is told so after some seconds.
func TestAClientOfANodeThatForwardsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := servicetest.New(kv.DefaultLimits)
		store.OnWrite = func(context.Context, []*kv.Write) error { return &kv.NotLeaderError{Leader: 2} }
		err := serve(t, store, service.Options{}).open(t).Put(t.Context(), []byte("k"), nil)
		require.ErrorIs(t, err, ErrReadOnly)
		require.ErrorContains(t, err, "write to node 2")
	})
}

// Endpoints die under load, in turns. Every call ends well, and each write was applied
// once.
func TestEndpointsThatDieUnderLoad(t *testing.T) {
	everyTransport(t, func(t *testing.T, opts ...Option) {
		t.Parallel()
		l := serveAt(t, "a:1", "b:1")
		db := l.open(t, "a:1,b:1", opts...)
		var all sync.WaitGroup
		var writes atomic.Int64
		stop := make(chan struct{})
		for caller := range 8 {
			all.Go(func() {
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
					}
					key := []byte(fmt.Sprintf("%d/%d", caller, i))
					w, err := db.PutItem(context.Background(), key, key)
					if !assert.NoError(t, err) {
						return
					}
					writes.Add(1)
					item, err := db.GetItem(context.Background(), key)
					assert.NoError(t, err)
					assert.Equal(t, w.Version, item.Version)
				}
			})
		}
		// An endpoint is down for a moment, and callers may find it up again, or until calls go on
		// at the other. There are turns until both were dialled again.
		again := func() bool {
			dials := l.dialed()
			return dials["a:1"] > 1 && dials["b:1"] > 1
		}
		for turn := 0; turn < 8 || !again(); turn++ {
			die, live := "a:1", "b:1"
			if turn%2 == 1 {
				die, live = live, die
			}
			l.revive(live)
			before := writes.Load()
			testwait.Until(t, func() bool { return writes.Load() > before+50 }, "calls go on")
			l.kill(die)
			if turn%4 < 2 {
				before = writes.Load()
				testwait.Until(t, func() bool { return writes.Load() > before+50 }, "calls go on at the other endpoint")
			}
		}
		close(stop)
		all.Wait()
		assert.EqualValues(t, writes.Load(), servertest.VersionOf(t, l.store), "each was applied once")
	})
}

// A client stays with an endpoint that serves it.
func TestAClientStaysWithAnEndpoint(t *testing.T) {
	l := serveAt(t, "a:1", "b:1")
	l.kill("a:1")
	db := l.open(t, "a:1,b:1", WithConns(1))
	put(t, db, "k", "v")
	l.revive("a:1")
	before := l.dialed()
	for i := range 100 {
		put(t, db, "k", strconv.Itoa(i))
		require.NoError(t, db.Ping(t.Context()))
	}
	assert.Equal(t, before["a:1"], l.dialed()["a:1"])
	l.kill("b:1")
	put(t, db, "k", "w")
	assert.Greater(t, l.dialed()["a:1"], before["a:1"])
}

// Without any endpoint a call fails after a bounded number of tries, each endpoint having
// had one.
func TestNoEndpointCanBeReached(t *testing.T) {
	addresses := []string{"a:1", "b:1", "c:1"}
	l := serveAt(t, addresses...)
	for _, a := range addresses {
		l.kill(a)
	}
	db := l.open(t, "a:1,b:1,c:1")
	for what, call := range map[string]func() error{
		"get":  func() error { _, err := db.Get(t.Context(), []byte("k")); return err },
		"ping": func() error { return db.Ping(t.Context()) },
	} {
		err := call()
		require.ErrorIs(t, err, ErrUnavailable, what)
		require.NotErrorIs(t, err, ErrUncertain, what)
		assert.Equal(t, tries+2, requireError(t, err).Attempts, what)
		for _, a := range addresses {
			assert.Positive(t, l.dialed()[a], what)
		}
	}
	l.revive("b:1")
	put(t, db, "k", "v")
}

// A server that stops in order sends its callers to the next endpoint.
func TestAServerThatStopsSendsItsCallersOn(t *testing.T) {
	everyTransport(t, func(t *testing.T, opts ...Option) {
		l := serveAt(t, "a:1", "b:1")
		db := l.open(t, "a:1,b:1", opts...)
		for name, call := range callsOf(db) {
			put(t, db, "k", "v")
			require.NoError(t, call(t.Context()), name)
		}
		require.NoError(t, l.servers[0].server.Shutdown(t.Context()))
		for name, call := range callsOf(db) {
			put(t, db, "k", "v")
			require.NoError(t, call(t.Context()), name)
		}
	})
}

// An address may lead nowhere, so that connecting takes its time. There is time left for
// the next endpoint within the default timeout of a call; a lone endpoint has all of it.
func TestAnEndpointThatLeadsNowhere(t *testing.T) {
	for target, want := range map[string]error{"nowhere,b": nil, "nowhere": context.DeadlineExceeded} {
		synctest.Test(t, func(t *testing.T) {
			server := &servertest.Scripted{Frames: func(_ int, conn servertest.FrameConn) error { return servertest.ServeFrames(conn) }}
			var all sync.WaitGroup
			db, err := Open(target, WithDialer(func(ctx context.Context, address string) (net.Conn, error) {
				if address == "nowhere" {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				ours, theirs := net.Pipe()
				all.Go(func() { server.ServeRaw(theirs) })
				return ours, nil
			}), WithTimeout(4*time.Second)) // with five both end at the same time
			require.NoError(t, err)
			begun := time.Now()
			require.ErrorIs(t, db.Put(t.Context(), []byte("k"), nil), want)
			if want == nil {
				assert.InDelta(t, 1, time.Since(begun).Seconds(), 0.1)
			}
			require.NoError(t, db.Close())
			all.Wait()
		})
	}
}

// piped opens a client, in a bubble, of servers behind pipes. To addresses without a server, and to
// those whose server has been called already, nothing answers.
func piped(t *testing.T, target string, servers map[string]*servertest.Scripted, once map[string]bool) *Client {
	var all sync.WaitGroup
	var mu sync.Mutex
	dialed := map[string]bool{}
	db, err := Open(target, WithConns(1), WithDialer(func(_ context.Context, address string) (net.Conn, error) {
		mu.Lock()
		defer mu.Unlock()
		ours, theirs := net.Pipe()
		if server := servers[address]; server != nil && !(once[address] && dialed[address]) {
			all.Go(func() { server.ServeRaw(theirs) })
		}
		dialed[address] = true
		return ours, nil
	}))
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, db.Close())
		all.Wait()
	})
	return db
}

// refuse answers a frame with an error for each operation.
func refuse(r *kvdpb.PipelineRequest, code codes.Code, reason string) *kvdpb.PipelineResponse {
	response := &kvdpb.PipelineResponse{}
	for _, op := range r.Ops {
		response.Results = append(response.Results, &kvdpb.PipelineResponse_Result{Tag: op.Tag, Status: &kvdpb.Status{Code: int32(code), Reason: reason}})
	}
	return response
}

// A process that is paused answers nothing, and its connections stay. The call that it has, and
// later ones, go on at the next endpoint.
func TestAnEndpointThatIsPaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := piped(t, "paused,b", map[string]*servertest.Scripted{
			"paused": {Frames: func(_ int, conn servertest.FrameConn) error { <-conn.Context().Done(); return nil }},
			"b":      {},
		}, map[string]bool{"paused": true})
		begun := time.Now()
		require.NoError(t, db.Put(t.Context(), []byte("k"), nil))
		assert.InDelta(t, 2, time.Since(begun).Seconds(), 0.2)
		begun = time.Now()
		require.NoError(t, db.Put(t.Context(), []byte("k"), nil))
		assert.Zero(t, time.Since(begun))
	})
}

// A call whose time runs out at an endpoint sends later ones to the next, unless it had little time.
func TestAnEndpointWhereTimeRunsOut(t *testing.T) {
	for wait, moves := range map[time.Duration]bool{100 * time.Millisecond: false, 1500 * time.Millisecond: true} {
		synctest.Test(t, func(t *testing.T) {
			var late atomic.Int64
			db := piped(t, "late,b", map[string]*servertest.Scripted{
				"late": answering(func(r *kvdpb.PipelineRequest) *kvdpb.PipelineResponse {
					late.Add(1)
					time.Sleep(wait)
					return refuse(r, codes.DeadlineExceeded, kvdpb.ReasonDeadlineExceeded)
				}),
				"b": {},
			}, map[string]bool{"late": true})
			_, err := db.Get(t.Context(), []byte("k"))
			require.ErrorIs(t, err, context.DeadlineExceeded)
			_, err = db.Get(t.Context(), []byte("k"))
			if moves {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
			assert.Equal(t, moves, late.Load() == 1)
		})
	}
}

// While a cluster has no leader, calls look for one; they find it soon after there is one, however
// many they are.
func TestCallsFindALeaderSoon(t *testing.T) {
	for _, callers := range []int{1, 64} {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			const elected = 1500 * time.Millisecond
			var refused atomic.Int64
			servers := make(map[string]*cluster)
			for _, address := range []string{"a", "b", "c"} {
				store := servicetest.New(kv.DefaultLimits)
				store.OnWrite = func(context.Context, []*kv.Write) error {
					if address == "c" && time.Since(begun) >= elected {
						return nil
					}
					refused.Add(1)
					return &kv.NotLeaderError{}
				}
				servers[address] = serve(t, store, service.Options{})
			}
			db, err := Open("a,b,c", WithDialer(func(ctx context.Context, address string) (net.Conn, error) {
				return servers[address].dialer(ctx, address)
			}))
			require.NoError(t, err)
			defer func() { assert.NoError(t, db.Close()) }()
			var all sync.WaitGroup
			for range callers {
				all.Go(func() { assert.NoError(t, db.Put(t.Context(), []byte("k"), nil)) })
			}
			all.Wait()
			assert.Less(t, time.Since(begun), elected+3*400*time.Millisecond)
			assert.Positive(t, refused.Load())
		})
	}
}

func TestTargetsThatAreInvalid(t *testing.T) {
	for _, target := range []string{"a,", ",a", "a,,b", ",", "a, ,b"} {
		_, err := Open(target)
		require.ErrorIs(t, err, ErrInvalid, target)
	}
	_, err := Open("a" + strings.Repeat(",a", 16))
	require.ErrorIs(t, err, ErrInvalid)
}
