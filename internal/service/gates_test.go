package service_test

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/service"
	"github.com/kvd-db/kvd/internal/service/servicetest"
	"github.com/kvd-db/kvd/internal/testwait"
	kvdpb "github.com/kvd-db/kvd/pkg/kvdpb/kvd/v1"
)

func gets(n int) (ops []*kvdpb.PipelineRequest_Op) {
	for i := range n {
		ops = append(ops, getOp(uint64(i), "k"))
	}
	return ops
}

// requireIdleGates: nothing is left inside or waiting.
func (f *fixture) requireIdleGates(t testing.TB) {
	t.Helper()
	for kind, g := range f.Stats().Gates {
		assert.Zero(t, g.Inside, kind)
		assert.Zero(t, g.Waiting, kind)
	}
}

func TestFramesWaitForRoomInTheStore(t *testing.T) {
	eachTransport(t, func(t *testing.T, open opener) {
		store, entered, leave := waiting()
		f := start(t, store, func() *service.Server { return service.New(store, service.Options{ReadOps: 4}, protocols...) })
		p := open(t, f)
		p.send(gets(4)...)
		<-entered
		p.send(gets(3)...)
		for range 3 {
			r := p.result()
			assert.Equal(t, "OVERLOADED", r.Status.GetReason())
			assert.Equal(t, int32(codes.ResourceExhausted), r.Status.GetCode())
			assert.Positive(t, r.Status.GetRetryAfterMs())
		}
		assert.EqualValues(t, 1, f.Stats().Shed["queue_time"], "one call of the store")
		assert.Equal(t, 4, f.Stats().Gates["reads"].Inside.Ops)
		assert.Empty(t, entered, "the store never heard of it")

		p.send(putOp(9, "other", "v")) // does not wait for reads
		assert.Nil(t, p.result().Status)

		leave()
		for range 4 {
			assert.Equal(t, "KEY_NOT_FOUND", p.result().Status.GetReason())
		}
		p.send(gets(3)...)
		for range 3 {
			assert.Equal(t, "KEY_NOT_FOUND", p.result().Status.GetReason(), "there is room again")
		}
		p.close()
		f.requireIdleGates(t)
	})
}

func withTimeout(op *kvdpb.PipelineRequest_Op, millis uint32) *kvdpb.PipelineRequest_Op {
	op.TimeoutMs = millis
	return op
}

func TestAFrameWhoseTimeRunsOutInTheQueueIsDropped(t *testing.T) {
	eachTransport(t, func(t *testing.T, open opener) {
		store, entered, leave := waiting()
		defer leave()
		f := start(t, store, func() *service.Server { return service.New(store, service.Options{ReadOps: 1}, protocols...) })
		p := open(t, f)
		p.send(gets(1)...)
		<-entered
		late := uint64(0)
		testwait.Doubling(t, 5*time.Millisecond, func(d time.Duration) (queued bool) {
			d = min(d, 80*time.Millisecond) // a gate refuses what has waited for 100 ms
			p.send(withTimeout(getOp(2, "k"), uint32(d.Milliseconds())))
			r := p.result()
			assert.EqualValues(t, 2, r.Tag)
			assert.Empty(t, entered, "the store never heard of it")
			gate := f.Stats().Gates["reads"]
			if r.Status.GetReason() == "OVERLOADED" && gate.RefusedLate > late {
				late = gate.RefusedLate // this machine stood still until both times were over
				return false
			}
			assert.Equal(t, "DEADLINE_EXCEEDED", r.Status.GetReason())
			return gate.GivenUp == 1
		})
	})
}

// Each call of the store passes its gate.
func TestUnaryCallsWaitForRoomInTheStore(t *testing.T) {
	hold := make(chan struct{})
	entered := make(chan struct{}, 1)
	wait := func(ctx context.Context) error {
		select {
		case entered <- struct{}{}:
		default:
		}
		select {
		case <-hold:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	store := servicetest.New(kv.DefaultLimits)
	store.OnLookup = func(ctx context.Context, _ []*kv.Lookup) error { return wait(ctx) }
	store.OnWrite = func(ctx context.Context, _ []*kv.Write) error { return wait(ctx) }
	f := start(t, store, func() *service.Server {
		return service.New(store, service.Options{ReadOps: 1, WriteOps: 1}, protocols...)
	})
	ctx, key := testContext(t), []byte("k")
	calls := map[string]map[string]func() error{
		"reads": {
			"Get":      func() error { _, err := f.kv.Get(ctx, &kvdpb.GetRequest{Key: key}); return err },
			"Get at":   func() error { _, err := f.kv.Get(ctx, &kvdpb.GetRequest{Key: key, AtVersion: 1}); return err },
			"BatchGet": func() error { _, err := f.kv.BatchGet(ctx, &kvdpb.BatchGetRequest{Keys: [][]byte{key}}); return err },
		},
		"writes": {
			"Put":    func() error { _, err := f.kv.Put(ctx, &kvdpb.PutRequest{Item: &kvdpb.Item{Key: key}}); return err },
			"Delete": func() error { _, err := f.kv.Delete(ctx, &kvdpb.DeleteRequest{Key: key}); return err },
			"DeleteRange": func() error {
				_, err := f.kv.DeleteRange(ctx, &kvdpb.DeleteRangeRequest{Range: &kvdpb.Range{Start: key, End: []byte("l")}})
				return err
			},
			"Write": func() error {
				_, err := f.kv.Write(ctx, &kvdpb.WriteRequest{Atomic: true, Mutations: []*kvdpb.Mutation{put("a", "1")}})
				return err
			},
			"Write each": func() error {
				_, err := f.kv.Write(ctx, &kvdpb.WriteRequest{Mutations: []*kvdpb.Mutation{put("a", "1")}})
				return err
			},
			"Commit": func() error {
				_, err := f.txn.Commit(ctx, &kvdpb.CommitRequest{Mutations: []*kvdpb.Mutation{put("a", "1")}})
				return err
			},
			"Execute": func() error {
				_, err := f.txn.Execute(ctx, &kvdpb.ExecuteRequest{ThenMutations: []*kvdpb.Mutation{put("a", "1")}})
				return err
			},
		},
	}
	held := map[string]string{"reads": "Get", "writes": "Put"}
	answers := make(chan error, len(held))
	for kind, name := range held {
		go func() { answers <- calls[kind][name]() }()
		<-entered
	}
	for kind, named := range calls {
		refused := make(chan error, len(named))
		for _, call := range named {
			go func() { refused <- call() }()
		}
		for range named {
			info, retryAfter := requireFailure(t, <-refused, codes.ResourceExhausted, "OVERLOADED")
			assert.Contains(t, []string{"queue_time", "queue_full"}, info.Metadata["cause"])
			assert.Positive(t, retryAfter)
		}
		g := f.Stats().Gates[kind]
		assert.EqualValues(t, len(named), g.RefusedLate+g.RefusedFull, kind)
	}
	close(hold)
	for range held {
		if err := <-answers; err != nil {
			assert.Equal(t, codes.NotFound, status.Code(err))
		}
	}
	for _, named := range calls {
		for name, call := range named {
			assert.NotEqual(t, codes.ResourceExhausted, status.Code(call()), name)
		}
	}
	f.requireIdleGates(t)
}

// The lines at a gate are those of connections: one that fills its own leaves room
// for the others.
func TestAConnectionThatFloodsFillsItsOwnLine(t *testing.T) {
	eachTransport(t, func(t *testing.T, open opener) {
		testwait.Until(t, func() bool { return fillsItsOwnLine(t, open) })
	})
}

// fillsItsOwnLine reports false if this machine stood still for so long that what was in line was
// refused for its time before the line was full.
func fillsItsOwnLine(t *testing.T, open opener) bool {
	store, entered, leave := waiting()
	f := start(t, store, func() *service.Server { return service.New(store, service.Options{ReadOps: 16}, protocols...) })
	flood := open(t, f)
	for range 8 { // as many as are served at once: one inside, four in line
		flood.send(gets(16)...)
	}
	<-entered
	causes := map[string]int{}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		for range 8 * 16 {
			causes[flood.result().Status.GetReason()]++
		}
	}()
	testwait.Until(t, func() bool { return f.Stats().Shed["queue_full"] == 3 || f.Stats().Shed["queue_time"] > 0 })
	if f.Stats().Shed["queue_full"] != 3 {
		leave()
		<-answered
		flood.close()
		return false
	}

	// Another connection, by gRPC.
	other := kvdpb.NewKVServiceClient(f.dial(t))
	answer := make(chan error, 1)
	go func() {
		_, err := other.Get(testContext(t), &kvdpb.GetRequest{Key: []byte("k")})
		answer <- err
	}()
	testwait.Until(t, func() bool {
		g := f.Stats().Gates["reads"]
		return g.Waiting.Ops%16 == 1 || g.RefusedLate > 0
	})
	leave()
	if err := <-answer; status.Code(err) != codes.NotFound {
		info, _ := requireFailure(t, err, codes.ResourceExhausted, "OVERLOADED")
		assert.Equal(t, "queue_time", info.Metadata["cause"], "a machine that slow")
	}
	<-answered
	assert.GreaterOrEqual(t, causes["OVERLOADED"], 3*16)
	assert.GreaterOrEqual(t, causes["KEY_NOT_FOUND"], 16)
	assert.EqualValues(t, 3, f.Stats().Shed["queue_full"])
	flood.close()
	f.requireIdleGates(t)
	return true
}

// A peer takes one turn at a gate, whatever the number of its connections; those of this
// machine, which have one address, take one each.
func TestAPeerTakesOneTurnHoweverManyItsConnections(t *testing.T) {
	for address, want := range map[string][]string{
		"10.0.0.1:1":  {"many", "many", "few", "many", "many"},
		"127.0.0.1:1": {"many", "many", "many", "many", "few"},
	} {
		t.Run(address, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { assert.Equal(t, want, turns(t, address)) })
		})
	}
}

// turns has four connections from an address, and then one from elsewhere, send a frame each,
// as large as all that is let in at a time, and returns the order in which they are.
func turns(t *testing.T, address string) (order []string) {
	const frameOps = 256
	store := servicetest.New(kv.DefaultLimits)
	entered, leave := make(chan string, 5), make(chan struct{})
	store.OnWrite = func(_ context.Context, writes []*kv.Write) error {
		entered <- string(writes[0].Op.Key)
		<-leave
		return nil
	}
	f := start(t, store, func() *service.Server { return service.New(store, service.Options{WriteOps: frameOps}, protocols...) })
	var all []*pipeline
	send := func(from, key string) {
		p := f.rawPipelineFrom(t, from)
		var ops []*kvdpb.PipelineRequest_Op
		for i := range frameOps {
			ops = append(ops, putOp(uint64(i), key, "v"))
		}
		p.send(ops...)
		synctest.Wait() // it is inside, or in line; the clock stands still
		all = append(all, p)
	}
	for range 4 {
		send(address, "many")
	}
	send("10.0.0.2:1", "few")
	for range all {
		order = append(order, <-entered)
		leave <- struct{}{}
		synctest.Wait()
	}
	for _, p := range all {
		for range frameOps {
			assert.Nil(t, p.result().Status)
		}
	}
	f.requireIdleGates(t)
	return order
}

// Many connections at once bring more than the store can take. Each operation has
// one answer; what was refused was not done, what was not refused was done once.
func TestAnOverloadLosesNothingAndDoublesNothing(t *testing.T) {
	eachTransport(t, func(t *testing.T, open opener) {
		const clients, frames, frameOps, bound = 24, 12, 32, 64
		store := servicetest.New(kv.DefaultLimits)
		var f *fixture
		overloaded := sync.OnceFunc(func() {
			testwait.Until(t, func() bool {
				g := f.Stats().Gates["writes"]
				return g.RefusedFull+g.RefusedLate > 0
			}, "a write is refused")
		})
		store.OnWrite = func(context.Context, []*kv.Write) error {
			overloaded()                     // however slow the clients are
			time.Sleep(5 * time.Millisecond) // what makes it slow
			return nil
		}
		f = start(t, store, func() *service.Server { return service.New(store, service.Options{WriteOps: bound}, protocols...) })
		versions := make(map[uint64]string) // of what was done
		refused := make(map[string]bool)
		var mu sync.Mutex
		key := func(client int, tag uint64) string { return fmt.Sprintf("%02d-%04d", client, tag) }
		receive := func(client int, p *pipeline) {
			seen := make(map[uint64]bool)
			for range frames * frameOps {
				r := p.result()
				if seen[r.Tag] { // not an assertion: this runs often
					t.Errorf("%s was answered twice", key(client, r.Tag))
				}
				seen[r.Tag] = true
				mu.Lock()
				if r.Status == nil {
					version := r.GetPut().GetMeta().GetVersion()
					if other, taken := versions[version]; taken {
						t.Errorf("version %d is that of %s and of %s", version, other, key(client, r.Tag))
					}
					versions[version] = key(client, r.Tag)
				} else {
					if r.Status.GetReason() != "OVERLOADED" || r.Status.GetRetryAfterMs() <= 0 {
						t.Errorf("%s: %v", key(client, r.Tag), r.Status)
					}
					refused[key(client, r.Tag)] = true
				}
				mu.Unlock()
			}
		}
		var all sync.WaitGroup
		for client := range clients {
			p := open(t, f)
			all.Go(func() {
				var received sync.WaitGroup
				received.Go(func() { receive(client, p) })
				for i := range frames {
					var ops []*kvdpb.PipelineRequest_Op
					for j := range frameOps {
						tag := uint64(i*frameOps + j)
						ops = append(ops, putOp(tag, key(client, tag), key(client, tag)))
					}
					p.send(ops...)
				}
				received.Wait()
				p.close()
			})
		}
		peak := f.watchGate(t, "writes")
		all.Wait()
		most := peak()
		assert.Less(t, most.inside, bound+frameOps)
		assert.Less(t, most.waiting, 8*bound+frameOps)

		require.Equal(t, clients*frames*frameOps, len(versions)+len(refused))
		assert.NotEmpty(t, refused) // a line was full, or the wait in it too long
		assert.Equal(t, len(versions), store.Len(), "nothing beside what was answered")
		f.requireEach(t, maps.Values(versions), func(name string, found bool, value string) {
			if !found || value != name {
				t.Errorf("%s: found %v, %q", name, found, value)
			}
		})
		f.requireEach(t, maps.Keys(refused), func(name string, found bool, _ string) {
			if found {
				t.Errorf("%s was refused and done all the same", name)
			}
		})
		f.requireIdleGates(t)
		testwait.Until(t, func() bool { return f.Stats().Streams == 0 && f.Stats().Bytes == 0 })
		f.put(t, "later", "there is room again")
		t.Logf("done %d, refused %d: %v", len(versions), len(refused), f.Stats().Shed)
	})
}

// requireEach reads keys in large batches, a request for each would be most of the test, and
// has check look at each answer.
func (f *fixture) requireEach(t testing.TB, keys iter.Seq[string], check func(key string, found bool, value string)) {
	t.Helper()
	for some := range slices.Chunk(slices.Collect(keys), 512) {
		var raw [][]byte
		for _, key := range some {
			raw = append(raw, []byte(key))
		}
		r, err := f.kv.BatchGet(testContext(t), &kvdpb.BatchGetRequest{Keys: raw})
		require.NoError(t, err)
		require.Len(t, r.Lookups, len(some))
		for i, key := range some {
			check(key, r.Lookups[i].Found, string(r.Lookups[i].GetItem().GetValue()))
		}
	}
}

// peak is the most operations that were seen at a gate.
type peak struct{ inside, waiting int }

// watchGate looks at a gate until the function that it returns is called.
func (f *fixture) watchGate(t testing.TB, kind string) func() peak {
	var most peak
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				g := f.Stats().Gates[kind]
				most.inside, most.waiting = max(most.inside, g.Inside.Ops), max(most.waiting, g.Waiting.Ops)
			}
		}
	}()
	return func() peak {
		close(stop)
		<-stopped
		return most
	}
}
