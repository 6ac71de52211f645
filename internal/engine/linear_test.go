package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/keyhash"
	"github.com/kvd-db/kvd/internal/kv"
	"github.com/kvd-db/kvd/internal/testsize"
	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/internal/vfs"
	"github.com/kvd-db/kvd/internal/vfs/faultfs"
)

// registers is what the histories below ask: a store seen key by key. A version
// of 0 is one that the store does not tell.
type registers interface {
	put(key, value string) (kv.SeqNum, error)
	del(key string) (kv.SeqNum, error)
	get(key string) (item, bool, error)
}

// engineRegisters is an Engine as it is.
type engineRegisters struct {
	e *Engine
	o kv.WriteOptions
}

func (r engineRegisters) put(key, value string) (kv.SeqNum, error) {
	return r.e.Put(context.Background(), []byte(key), []byte(value), r.o)
}

func (r engineRegisters) del(key string) (kv.SeqNum, error) {
	return r.e.Delete(context.Background(), []byte(key), r.o)
}

func (r engineRegisters) get(key string) (item, bool, error) {
	got, err := r.e.Get(context.Background(), []byte(key))
	if errors.Is(err, kv.ErrNotFound) {
		return item{}, false, nil
	}
	return item{value: string(got.Value), version: got.Version}, err == nil, err
}

// registerInput and registerOutput are one operation of a history.
type registerInput struct {
	kind  byte // 'p', 'd' or 'g'
	key   string
	value string
}

type registerOutput struct {
	item
	found bool
}

// registerModel says what a register may answer. Each key stands for itself.
var registerModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[string][]porcupine.Operation{}
		for _, op := range history {
			key := op.Input.(registerInput).key
			byKey[key] = append(byKey[key], op)
		}
		var parts [][]porcupine.Operation
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return registerOutput{} },
	Step: func(state, input, output any) (bool, any) {
		now, in, out := state.(registerOutput), input.(registerInput), output.(registerOutput)
		newer := out.version == 0 || out.version > now.version
		switch in.kind {
		case 'p':
			return newer, registerOutput{item{value: in.value, version: out.version}, true}
		case 'd':
			return newer, registerOutput{item{version: out.version}, false}
		}
		if out.found != now.found || out.value != now.value {
			return false, now
		}
		return !out.found || out.version == 0 || now.version == 0 || out.version == now.version, now
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%v -> %v", input, output) },
}

// historyPlan says what the clients of a history do.
type historyPlan struct {
	clients, ops, keys int
	every              func(n int64) // called after the n-th operation of all clients; may be nil
}

// record runs a plan and returns what the clients saw.
func (p historyPlan) record(t testing.TB, r registers) []porcupine.Operation {
	t.Helper()
	var (
		all     sync.WaitGroup
		count   atomic.Int64
		begin   = time.Now()
		history = make([][]porcupine.Operation, p.clients)
	)
	for client := range p.clients {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(client), 7))
			for i := range p.ops {
				in := registerInput{kind: "ppdggg"[rng.IntN(6)], key: key(rng.IntN(p.keys))}
				call := time.Since(begin)
				var out registerOutput
				var err error
				switch in.kind {
				case 'p':
					in.value = fmt.Sprintf("client %d operation %d", client, i)
					out.version, err = r.put(in.key, in.value)
				case 'd':
					out.version, err = r.del(in.key)
				default:
					out.item, out.found, err = r.get(in.key)
				}
				if !assert.NoError(t, err) {
					return
				}
				history[client] = append(history[client], porcupine.Operation{
					ClientId: client, Input: in, Output: out, Call: int64(call), Return: int64(time.Since(begin)),
				})
				if n := count.Add(1); p.every != nil {
					p.every(n)
				}
			}
		})
	}
	all.Wait()
	var whole []porcupine.Operation
	for _, h := range history {
		whole = append(whole, h...)
	}
	return whole
}

func judgeHistory(history []porcupine.Operation) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(registerModel, history, testwait.Left())
}

// W1: in the source, flushes of one partition ran concurrently and the older one could end
// last, so that its values hid newer ones for good. Its test could not detect that, since
// no two threads shared a key. Here all share keys, and the first flush of each partition
// is held while later ones run.
func TestSharedKeysAreLinearizableW1(t *testing.T) {
	for _, o := range []kv.WriteOptions{memory, buffered, synced} {
		t.Run(o.Durability.String(), func(t *testing.T) {
			ops := 1000
			if testsize.Reduced() {
				ops = 300
			}
			hold := make(chan struct{})
			release := sync.OnceFunc(func() { close(hold) })
			defer release()
			var held sync.Map // by directory
			flushing := make(chan string, 4)
			disk := faultfs.Wrap(vfs.NewMem(), faultfs.InjectorFunc(func(op faultfs.Op) faultfs.Fault {
				if op.Kind != faultfs.Sync || !faultfs.OnName("*.sst")(op) {
					return faultfs.Fault{}
				}
				dir := op.Name[:len("data/p-0000")]
				if _, loaded := held.LoadOrStore(dir, true); loaded {
					return faultfs.Fault{}
				}
				return faultfs.Fault{Delay: func() {
					flushing <- dir
					<-hold
				}}
			}))
			opts := small(disk)
			opts.FlushKeys, opts.MemtableBytes = 20, 64<<20
			opts.workers = 6 // the held ones must not hold up the others
			e := open(t, opts)
			plan := historyPlan{clients: 8, ops: ops, keys: 12}
			written := map[int]bool{} // partitions
			for i := range plan.keys {
				written[e.route(keyhash.Sum([]byte(key(i))))] = true
			}
			// All clients wait until a flush of each partition is held: on a busy machine the first
			// one may begin late, and would flush what was written since too.
			halfway := sync.OnceFunc(func() {
				for range written {
					testwait.Receive(t, flushing, "a partition is flushed")
				}
				release()
			})
			plan.every = func(n int64) {
				if n >= int64(4*ops) {
					halfway()
				}
			}
			history := plan.record(t, engineRegisters{e, o})
			release()
			require.False(t, t.Failed())
			require.Equal(t, porcupine.Ok, judgeHistory(history))
			// What is sealed is flushed without another write, but perhaps later.
			testwait.Until(t, func() bool { return flushesOf(e) > uint64(len(written)) }, "flushes beside the held one of each partition")

			// What the last writers left is still there after everything was merged.
			before := contents(t, e)
			require.NoError(t, e.CompactAll(t.Context()))
			require.Equal(t, before, contents(t, e))
		})
	}
}

// flushesOf returns how many flushes have ended.
func flushesOf(e *Engine) (n uint64) {
	for _, p := range e.Stats().Partitions {
		n += p.Flushes
	}
	return n
}

// flushAtEighths returns what flushes the store after each eighth of so many operations, however
// seldom a busy machine flushes in the background.
func flushAtEighths(t *testing.T, e *Engine, operations int) (every func(n int64)) {
	return func(n int64) {
		if n%int64(operations/8) == 0 {
			assert.NoError(t, e.Flush(t.Context()))
		}
	}
}

// mixedRegisters writes at all durabilities in turn.
type mixedRegisters struct {
	engineRegisters
	n *atomic.Int64
}

func (r mixedRegisters) next() registers {
	all := [...]kv.WriteOptions{memory, buffered, synced}
	return engineRegisters{r.e, all[r.n.Add(1)%int64(len(all))]}
}

func (r mixedRegisters) put(key, value string) (kv.SeqNum, error) { return r.next().put(key, value) }
func (r mixedRegisters) del(key string) (kv.SeqNum, error)        { return r.next().del(key) }

// slowSyncs returns a disk in memory whose log takes a while to sync.
func slowSyncs(took time.Duration) vfs.FS {
	return faultfs.Wrap(vfs.NewMem(), faultfs.InjectorFunc(func(op faultfs.Op) faultfs.Fault {
		if op.Kind != faultfs.Sync || !faultfs.OnName("*.wal")(op) {
			return faultfs.Fault{}
		}
		return faultfs.Fault{Delay: func() { time.Sleep(took) }}
	}))
}

// Writes of all durabilities meet on the same keys, in front of a disk whose syncs take
// a while: the weaker ones are acknowledged and read before stronger ones that precede
// them in the log.
func TestMixedDurabilitiesAreLinearizable(t *testing.T) {
	opts := small(slowSyncs(time.Millisecond))
	opts.FlushKeys, opts.MemtableBytes = 50, 64<<20
	e := open(t, opts)
	plan := historyPlan{clients: 12, ops: 400, keys: 12, every: flushAtEighths(t, e, 12*400)}
	history := plan.record(t, mixedRegisters{engineRegisters{e: e}, new(atomic.Int64)})
	require.False(t, t.Failed())
	require.Equal(t, porcupine.Ok, judgeHistory(history))
	var early uint64
	for _, p := range e.Stats().Partitions {
		early += p.Early
	}
	require.Positive(t, early, "some writes did not wait for those before them")
	require.Greater(t, flushesOf(e), uint64(4))
	before := contents(t, e)
	require.NoError(t, e.CompactAll(t.Context()))
	require.Equal(t, before, contents(t, e))
}

// The checker must reject wrong histories: those of three stores, each wrong in one way.
func TestWrongStoresAreNotLinearizable(t *testing.T) {
	for name, wrong := range map[string]func(registers) registers{
		"stale reads":                 func(r registers) registers { return &staleReads{registers: r, seen: map[string]registerOutput{}} },
		"lost updates":                func(r registers) registers { return &lostUpdates{registers: r} },
		"acknowledged before applied": func(r registers) registers { return &earlyAnswers{registers: r} },
	} {
		t.Run(name, func(t *testing.T) {
			e := open(t, small(vfs.NewMem()))
			plan := historyPlan{clients: 1, ops: 400, keys: 3} // so that no schedule explains what is wrong
			require.Equal(t, porcupine.Illegal, judgeHistory(plan.record(t, wrong(engineRegisters{e, memory}))))
		})
	}
}

// staleReads answers every other read of a key with what the one before it saw.
type staleReads struct {
	registers
	mu   sync.Mutex
	seen map[string]registerOutput
}

func (s *staleReads) get(key string) (item, bool, error) {
	got, found, err := s.registers.get(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	before, ok := s.seen[key]
	if ok {
		delete(s.seen, key)
		return before.item, before.found, err
	}
	s.seen[key] = registerOutput{got, found}
	return got, found, err
}

// lostUpdates acknowledges every tenth put and forgets it.
type lostUpdates struct {
	registers
	n atomic.Int64
}

func (s *lostUpdates) put(key, value string) (kv.SeqNum, error) {
	if s.n.Add(1)%10 == 0 {
		return 0, nil
	}
	return s.registers.put(key, value)
}

// earlyAnswers applies a put when the next one comes.
type earlyAnswers struct {
	registers
	mu   sync.Mutex
	late func() error
}

func (s *earlyAnswers) put(key, value string) (kv.SeqNum, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	if s.late != nil {
		err = s.late()
	}
	s.late = func() error {
		_, err := s.registers.put(key, value)
		return err
	}
	return 0, err
}

// The test of the sources (their T3): ten threads, one that mostly puts, one that
// mostly deletes, eight that mostly get, each with keys of its own and a map that
// should say the same. KVD_LONG=1 does their 25,000 operations a thread.
func TestTenThreadsWithKeysOfTheirOwn(t *testing.T) {
	ops := 4000
	switch {
	case os.Getenv("KVD_LONG") != "":
		ops = 25_000
	case testsize.Reduced():
		ops = 500
	}
	o := small(vfs.NewMem())
	o.MemtableBytes, o.FlushKeys = 1<<20, 1000
	e := open(t, o)
	var all sync.WaitGroup
	for thread := range 10 {
		put, del := 10, 10 // percent; the rest gets
		switch thread {
		case 0:
			put, del = 80, 5
		case 1:
			put, del = 35, 50
		}
		all.Go(func() { ownKeys(t, e, thread, ops, put, del) })
	}
	all.Wait()
}

func ownKeys(t *testing.T, e *Engine, thread, ops, put, del int) {
	rng := rand.New(rand.NewPCG(0xcafe, uint64(thread)))
	r := engineRegisters{e, memory}
	want := map[string]string{}
	var known []string
	for i := range ops {
		// Known or never seen before, at even odds.
		key := fmt.Sprintf("%016x", rng.Uint64()<<4|uint64(thread))
		if len(known) > 0 && rng.IntN(2) == 0 {
			key = known[rng.IntN(len(known))]
		}
		var err error
		switch dice := rng.IntN(100); {
		case dice < put:
			want[key] = fmt.Sprintf("%d:%0*d", i, rng.IntN(100), 0)
			known = append(known, key)
			_, err = r.put(key, want[key])
		case dice < put+del:
			delete(want, key)
			_, err = r.del(key)
		default:
			var got item
			var found bool
			got, found, err = r.get(key)
			value, ok := want[key]
			if err == nil && (found != ok || got.value != value) {
				err = fmt.Errorf("key %s is %q, want %q", key, got.value, value)
			}
		}
		if !assert.NoError(t, err, "thread %d, operation %d", thread, i) {
			return
		}
	}
	for key, value := range want {
		got, found, err := r.get(key)
		if !assert.NoError(t, err) || !assert.True(t, found, "key %s", key) || !assert.Equal(t, value, got.value) {
			return
		}
	}
}
