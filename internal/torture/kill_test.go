package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kvd-db/kvd/internal/testwait"
	"github.com/kvd-db/kvd/pkg/kvd"
)

const (
	clients       = 8
	keysPerClient = 60
)

func cycles(t *testing.T) int {
	t.Helper()
	s := os.Getenv("KILL_CYCLES")
	if s == "" {
		return 3
	}
	n, err := strconv.Atoi(s)
	require.NoError(t, err, "KILL_CYCLES")
	return n
}

// An acknowledged write, at durability sync or buffered, survives kill -9, and a
// batch under way is wholly there or wholly absent.
func TestKilledServerLosesNothingAcknowledged(t *testing.T) {
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(7, 11))
	oracles := make([]*oracle, clients)
	for i := range oracles {
		oracles[i] = &oracle{acked: make(map[string]state)}
	}
	var acked, unknown, lost, torn int
	n := cycles(t)
	for cycle := range n {
		// Small memtables: kills fall into flushes, merges and rotations too.
		s := serve(t, dir, "--partitions", "4", "--memory", "64MiB", "--flush-keys", "300")
		a, u, l, x := oneLife(t, s, oracles, rng.Uint64(), time.Duration(rng.IntN(400))*time.Millisecond, cycle == 0)
		acked, unknown, lost, torn = acked+a, unknown+u, lost+l, torn+x
		require.Zero(t, lost+torn, "cycle %d: %d lost, %d torn\n%s", cycle, lost, torn, s.log)
	}
	s := serve(t, dir)
	for c, o := range oracles {
		l, x, err := settle(s, c, o)
		require.NoError(t, err)
		lost, torn = lost+l, torn+x
	}
	s.stop(t)
	fmt.Printf("kill -9 cycles: %d, %d requests acknowledged, %d under way at a kill, %d lost, %d torn\n", n, acked, unknown, lost, torn)
	assert.Zero(t, lost+torn)
	assert.Positive(t, acked)
}

// oneLife settles what the last kill left, writes from all clients, and kills
// the server after some time.
func oneLife(t *testing.T, s *server, oracles []*oracle, seed uint64, life time.Duration, first bool) (acked, unknown, lost, torn int) {
	t.Helper()
	var group sync.WaitGroup
	var mu sync.Mutex
	stop := make(chan struct{})
	settled := make(chan struct{}, clients)
	written := make(chan struct{})
	onAck := sync.OnceFunc(func() { close(written) })
	for c, o := range oracles {
		group.Go(func() {
			l, x, err := settle(s, c, o)
			settled <- struct{}{}
			if !assert.NoError(t, err) {
				return
			}
			a, err := writeUntilKilled(s.addr, c, o, rand.New(rand.NewPCG(seed, uint64(c))), onAck, stop)
			assert.NoError(t, err)
			mu.Lock()
			defer mu.Unlock()
			lost, torn, acked = lost+l, torn+x, acked+a
			if len(o.pending) > 0 {
				unknown++
			}
		})
	}
	for range clients {
		<-settled
	}
	if first { // something must have been acknowledged
		testwait.Receive(t, written, "a write is acknowledged")
	}
	time.Sleep(life) // the moment of the kill is meant to be arbitrary
	s.kill(t)
	close(stop)
	group.Wait()
	return acked, unknown, lost, torn
}

// settle decides what was under way when the server died, and reads every key
// twice: an outcome that is decided does not change again.
func settle(s *server, client int, o *oracle) (lost, torn int, err error) {
	db, err := kvd.Open(s.addr, kvd.WithTimeout(testwait.Left()))
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	read := func(key string) (state, error) {
		first, err := readState(db, key)
		if err != nil {
			return 0, err
		}
		again, err := readState(db, key)
		if err == nil && first != again {
			err = fmt.Errorf("client %d: key %s changed from %d to %d, and nobody wrote it", client, key, first, again)
		}
		return again, err
	}
	return o.settle(read)
}

func readState(db *kvd.Client, key string) (state, error) {
	v, err := db.Get(context.Background(), []byte(key))
	if errors.Is(err, kvd.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	n, err := parseValue(key, v)
	return state(n), err
}

// writeUntilKilled sends requests one after another until the server is gone. The last one, whose
// outcome is unknown, stays pending.
func writeUntilKilled(addr string, client int, o *oracle, rng *rand.Rand, onAck func(), stop <-chan struct{}) (acked int, err error) {
	db, err := kvd.Open(addr)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-stop:
			cancel() // the server is dead; no use to try again
		case <-ctx.Done():
		}
	}()
	for {
		durability := kvd.Sync
		if rng.IntN(2) == 0 {
			durability = kvd.Buffered
		}
		if err := request(ctx, db, client, o, rng, durability); err != nil {
			return acked, nil
		}
		o.ack()
		onAck()
		acked++
	}
}

// request sends one put, delete or batch, noted as pending first.
func request(ctx context.Context, db *kvd.Client, client int, o *oracle, rng *rand.Rand, d kvd.Durability) error {
	pick := func() string { return fmt.Sprintf("w%d-%03d", client, rng.IntN(keysPerClient)) }
	o.next++
	key := pick()
	switch kind := rng.IntN(10); {
	case kind == 0:
		o.pending = []write{{key, 0}}
		return db.Delete(ctx, []byte(key), kvd.Durable(d))
	case kind <= 2:
		var b kvd.Batch
		used := map[string]bool{}
		for range 2 + rng.IntN(5) {
			if key := pick(); !used[key] {
				used[key] = true
				b.Put([]byte(key), makeValue(rng, key, o.next))
				o.pending = append(o.pending, write{key, state(o.next)})
			}
		}
		_, err := db.Apply(ctx, &b, kvd.Durable(d))
		return err
	default:
		o.pending = []write{{key, state(o.next)}}
		return db.Put(ctx, []byte(key), makeValue(rng, key, o.next), kvd.Durable(d))
	}
}
